"""Find the tensor of a graph that holds descriptors: a feature map, or the tokens of a transformer.

Networks on a hub are published for other purposes: some return ``last_hidden_state``, some only the scores of a
classifier or one vector per image. In that order:

1. the tensor that the user names;
2. the output ``last_hidden_state``;
3. the only output with three axes (tokens) or four (a map);
4. the tensor from which the network makes its vector, by a mean over places or by taking the class token: every path
   from the input to the vector goes through it;
5. the vector itself, which is enough for patches, and not for dense sampling.

Where several outputs could be meant, the user has to say which.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ..errors import NetworkError
from ..utils.onnx_graph import makers, needed_for, nodes_of
from .graph import output_names

if TYPE_CHECKING:
    import onnx

TOKENS = "last_hidden_state"  # the name that exporters give to the tokens, or to the map of a convolutional network
_CONVOLUTIONS = {"Conv", "ConvInteger", "QLinearConv", "FusedConv", "NhwcConv", "NhwcFusedConv"}
_GLOBAL_POOLS = {"GlobalAveragePool", "GlobalMaxPool"}
_REDUCTIONS = {"ReduceMean", "ReduceMax"}
_PLACES = ({2, 3}, {-2, -1}, {1, 2}, {-3, -2})  # axes of a map that hold rows and columns


def find_features(model: onnx.ModelProto, wanted: str | None, path: object) -> str:
    """Return the name of the tensor that holds descriptors.

    Parameters
    ----------
    model : onnx.ModelProto
        The graph.
    wanted : str or None
        Name of a tensor, if the user names one.
    path : object
        File of the graph, for messages.

    Raises
    ------
    NetworkError
        There is no such tensor, or several outputs could be meant.
    """
    names = output_names(model)
    if wanted is not None:
        if wanted not in makers(model.graph):
            raise NetworkError(f"{path} has no tensor {wanted[:200]!r}. Its outputs are: {_listed(names)}.")
        return wanted
    images = [name for name in names if _reads_image(model.graph, name)]
    if TOKENS in images:
        return TOKENS
    several = [name for name in images if _axes(model.graph, name) in (3, 4)]
    if len(several) > 1:
        raise NetworkError(
            f"{path} has several outputs that could be meant ({_listed(several)}): say which, with ?output=NAME."
        )
    if several:
        return several[0]
    for name in images:
        if (source := _pooled_from(model.graph, name)) is not None:
            return source
    if len(images) == 1:
        return images[0]
    if not images:
        raise NetworkError(f"no output of {path} is computed from one image alone ({_listed(names)}).")
    raise NetworkError(f"{path} has {len(images)} outputs ({_listed(images)}): say which to read, with ?output=NAME.")


def patch_size(model: onnx.ModelProto) -> int | None:
    """Return the stride of the first convolution, which cuts the image into the patches of a transformer, or None."""
    for node in model.graph.node:
        if node.op_type in _CONVOLUTIONS:
            strides = next((list(one.ints) for one in node.attribute if one.name == "strides"), [])
            return int(strides[0]) if len(strides) == 2 and strides[0] == strides[1] > 0 else None
    return None


def scales_by_batch(model: onnx.ModelProto) -> bool:
    """Whether the graph quantises its tensors by their largest value: images of one batch would affect each other."""
    return any(node.op_type.startswith("DynamicQuantize") for node in nodes_of(model))


def _listed(names: list[str]) -> str:
    return ", ".join(names)[:500]


def _reads_image(graph: onnx.GraphProto, output: str) -> bool:
    """Whether an output is computed from one input, which can be a batch of images."""
    _, used = needed_for(output, graph)
    constants = {tensor.name for tensor in graph.initializer}
    inputs = [value for value in graph.input if value.name in used and value.name not in constants]
    return len(inputs) == 1 and len(inputs[0].type.tensor_type.shape.dim) in (0, 4)


def _axes(graph: onnx.GraphProto, name: str) -> int | None:
    """Return the number of axes of an output, where the graph states it."""
    for value in graph.output:
        if value.name == name and value.type.tensor_type.HasField("shape"):
            return len(value.type.tensor_type.shape.dim)
    return None


def _pooled_from(graph: onnx.GraphProto, output: str) -> str | None:
    """Return the tensor that an output is pooled from: the last one that all paths to the output go through."""
    indices, _ = needed_for(output, graph)
    inputs = {value.name for value in graph.input} - {tensor.name for tensor in graph.initializer}
    for index in reversed(indices):
        for source in _sources(graph, graph.node[index]):
            _, used = needed_for(output, graph, stop={source})
            if source not in inputs and not inputs & used:
                return source
    return None


def _sources(graph: onnx.GraphProto, node: onnx.NodeProto) -> Iterator[str]:
    """Yield the tensor that a node reduces to one vector per image, if it does."""
    first = {
        "Gather": ("axis", None, [1]),  # the axis of tokens, at place 0
        "Slice": ("axes", 3, [1]),
    }
    if node.op_type in _GLOBAL_POOLS:
        maker = _maker(graph, node.input[0])
        turned = maker is not None and maker.op_type == "Transpose" and list(_ints(graph, maker, "perm")) == [0, 2, 1]
        yield maker.input[0] if turned and maker is not None else node.input[0]  # tokens that were turned, as in Swin
    elif node.op_type in _REDUCTIONS:
        axes = set(_ints(graph, node, "axes", 1))
        if axes in _PLACES or (axes == {1} and not _is_centred(graph, node)):
            yield node.input[0]
    elif node.op_type in first:
        attribute, place, wanted = first[node.op_type]
        starts = list(_ints(graph, node, "starts", 1))[:1]
        ends = list(_ints(graph, node, "ends", 2)) if node.op_type == "Slice" else [1]
        if list(_ints(graph, node, attribute, place)) == wanted and starts == [0] and ends == [1]:
            yield node.input[0]


def _is_centred(graph: onnx.GraphProto, node: onnx.NodeProto) -> bool:
    """Whether a mean is subtracted from what it is the mean of: a normalisation, and no pooling."""
    readers = [other for other in graph.node if node.output[0] in other.input]
    return any(other.op_type == "Sub" and node.input[0] in other.input for other in readers)


def _maker(graph: onnx.GraphProto, name: str) -> onnx.NodeProto | None:
    index = makers(graph).get(name)
    return None if index is None else graph.node[index]


def _ints(graph: onnx.GraphProto, node: onnx.NodeProto, attribute: str, place: int | None = None) -> Iterator[int]:
    """Yield the whole numbers of an attribute of a node, or of its input at a place where that is a constant."""
    from onnx import numpy_helper

    for one in node.attribute:
        if one.name == attribute:
            yield from one.ints or [one.i]
            return
    if place is None or len(node.input) <= place:
        return
    name = node.input[place]
    tensors = [tensor for tensor in graph.initializer if tensor.name == name]
    maker = _maker(graph, name)
    if maker is not None and maker.op_type == "Constant":
        tensors += [one.t for one in maker.attribute if one.name == "value"]
    for tensor in tensors[:1]:
        if tensor.data_type in (tensor.INT32, tensor.INT64):
            yield from map(int, numpy_helper.to_array(tensor).ravel()[:8])
