"""Walk through ONNX graphs, find the tensor that holds descriptors, and cut the graph there.

ONNX Runtime computes all outputs of a graph, and returns nothing but outputs. So everything after the wanted tensor is
removed, and the tensor becomes the only output. "Before the activation" is the same cut, one node earlier.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import TYPE_CHECKING

from ..errors import NetworkError
from ..utils.terminal import nearest
from .base import Activation

if TYPE_CHECKING:
    import onnx

ACTIVATIONS = {"Relu", "Clip", "LeakyRelu", "PRelu", "Elu", "Selu", "Celu", "Gelu", "HardSwish", "HardSigmoid", "Mish"}
_NONLINEAR = {"Sigmoid", "Tanh", "Erf", "Softplus"}  # parts of activations that consist of several nodes
_ARITHMETIC = {"Mul", "Div", "Add"}  # further parts of such activations


# --- walking ----------------------------------------------------------------------------------------------------------


def subgraphs(node: onnx.NodeProto) -> Iterator[onnx.GraphProto]:
    """Yield the graphs nested in a node: branches, and bodies of loops."""
    for attribute in node.attribute:
        if attribute.HasField("g"):
            yield attribute.g
        yield from attribute.graphs


def all_nodes(nodes: Iterable[onnx.NodeProto]) -> Iterator[onnx.NodeProto]:
    """Yield nodes, including those of nested graphs."""
    for node in nodes:
        yield node
        for graph in subgraphs(node):
            yield from all_nodes(graph.node)


def inputs_of(node: onnx.NodeProto) -> Iterator[str]:
    """Yield the names of all tensors that a node reads, including those that its branches and loops read."""
    yield from node.input
    for graph in subgraphs(node):
        for inner in graph.node:
            yield from inputs_of(inner)
        yield from (value.name for value in graph.output)  # a branch may pass an outer tensor on as it is


def makers(graph: onnx.GraphProto) -> dict[str, int]:
    """Return, for the name of each tensor, the index of the node that makes it."""
    return {name: index for index, node in enumerate(graph.node) for name in node.output if name}


def needed_for(output: str, graph: onnx.GraphProto, stop: Collection[str] = ()) -> tuple[list[int], set[str]]:
    """Walk from a tensor back to what it is computed from; the walk ends at the tensors `stop`.

    Returns the indices of the nodes that are needed, in order, and the names of `output` and of all tensors that these
    nodes read, including constants, inputs and those of `stop`.
    """
    made_by = makers(graph)
    nodes: set[int] = set()
    tensors: set[str] = set()
    waiting = [output]
    while waiting:
        name = waiting.pop()
        if not name or name in tensors:
            continue
        tensors.add(name)
        index = None if name in stop else made_by.get(name)
        if index is not None and index not in nodes:
            nodes.add(index)
            waiting.extend(inputs_of(graph.node[index]))
    return sorted(nodes), tensors


def output_names(model: onnx.ModelProto) -> list[str]:
    """Return the names of the outputs of a graph."""
    return [value.name for value in model.graph.output]


# --- cutting ----------------------------------------------------------------------------------------------------------


def cut(model: onnx.ModelProto, output: str, activation: Activation = "after") -> onnx.ModelProto:
    """Return the part of `model` that computes the tensor `output`, read after or before its last activation."""
    import onnx

    graph = model.graph
    made_by = makers(graph)
    if output not in made_by:
        outputs = ", ".join(output_names(model))[:500]
        raise NetworkError(f"the graph has no tensor {output[:200]!r}. Its outputs are: {outputs}.")
    if activation == "before":
        node = graph.node[made_by[output]]
        if node.op_type not in ACTIVATIONS:
            raise NetworkError(f"the tensor {output!r} does not come out of an activation, so there is no 'before'.")
        output = str(node.input[0])
    if [output] == output_names(model):
        return model
    indices, used = needed_for(output, graph)
    known = {value.name: value for value in [*graph.output, *graph.value_info]}
    value = known.get(output) or onnx.helper.make_empty_tensor_value_info(output)
    return _part(model, indices, used, [value for value in graph.input if value.name in used], value)


def channels_last(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return a model whose one output, a feature map, has its channels last.

    ONNX Runtime has a layout of its own within a network, and writes this order as fast as any other. To change it
    afterwards takes longer than all else that is done to a feature map.
    """
    import onnx

    changed = onnx.ModelProto()
    changed.CopyFrom(model)
    (output,) = changed.graph.output
    node = onnx.helper.make_node("Transpose", [output.name], ["channels last"], perm=[0, 2, 3, 1])
    shape = ["n", "rows", "columns", "d"]
    changed.graph.node.append(node)
    output.CopyFrom(onnx.helper.make_tensor_value_info("channels last", onnx.TensorProto.FLOAT, shape))
    return changed


def tail(model: onnx.ModelProto, start: str) -> onnx.ModelProto:
    """Return the part of `model`, a graph with one output, that follows the tensor `start` and reads no other."""
    import onnx

    graph = model.graph
    made_by = makers(graph)
    if start not in made_by:
        raise NetworkError(f"the graph has no tensor {start!r} to begin from.{nearest(start, made_by)}")
    indices, used = needed_for(graph.output[0].name, graph, stop={start})
    constants = {tensor.name for tensor in graph.initializer}
    missing = sorted(name for name in used - constants - {start} if name not in made_by)
    if missing:
        raise NetworkError(f"the output is not computed from {start!r} alone: it also needs {missing[0]!r}.")
    value = onnx.helper.make_tensor_value_info(start, onnx.TensorProto.FLOAT, ["n", "d", "rows", "columns"])
    return _part(model, indices, used, [value], graph.output[0])


def _part(
    model: onnx.ModelProto,
    indices: Iterable[int],
    used: set[str],
    inputs: Iterable[onnx.ValueInfoProto],
    output: onnx.ValueInfoProto,
) -> onnx.ModelProto:
    """Return a model of some nodes of another, with the constants that they use."""
    import onnx

    graph = model.graph
    part = onnx.helper.make_graph(
        [graph.node[index] for index in indices],
        graph.name,
        list(inputs),
        [output],
        [tensor for tensor in graph.initializer if tensor.name in used],
        sparse_initializer=[tensor for tensor in graph.sparse_initializer if tensor.values.name in used],
    )
    return onnx.helper.make_model(
        part,
        opset_imports=model.opset_import,
        ir_version=model.ir_version,
        producer_name=model.producer_name,
    )


# --- the activation that follows a layer ------------------------------------------------------------------------------


def cut_at_layer(graph: onnx.ModelProto, activation: Activation) -> onnx.ModelProto:
    """Cut a graph at its tensor ``layer``: after or before the activation that follows the tensor or computes it."""
    nodes = list(graph.graph.node)
    (maker,) = (node for node in nodes if "layer" in node.output)
    if maker.op_type in ACTIVATIONS:
        return cut(graph, "layer", activation)
    inner = maker.input[0] if maker.op_type == "Identity" else "layer"  # a copy; the next nodes read the original
    end = _activation_after(nodes, inner, {tensor.name for tensor in graph.graph.initializer})
    if activation == "after" and end:
        return cut(graph, end)
    if activation == "before" and not end:
        if any(inner in node.output and node.op_type in ACTIVATIONS for node in nodes):
            return cut(graph, inner, activation)  # the layer ends with one, as a block of a ResNet does
        raise NetworkError("no activation follows the layer or ends it, so there is no 'before'.")
    return cut(graph, "layer")


def _activation_after(nodes: list[onnx.NodeProto], start: str, constants: set[str]) -> str | None:
    """Return the output of the activation that follows the tensor `start`: one node, or several as in SiLU and GELU."""
    constants = constants | {name for node in nodes if node.op_type == "Constant" for name in node.output}
    made, nonlinear = [start], False  # tensors computed from `start` alone; whether one of their nodes is not linear
    for node in nodes:
        inputs = [name for name in node.input if name and name not in constants]
        if not inputs or not set(inputs) <= set(made) or node.op_type not in ACTIVATIONS | _NONLINEAR | _ARITHMETIC:
            continue
        made.append(node.output[0])
        nonlinear = nonlinear or node.op_type not in _ARITHMETIC
        readers = [other for other in nodes if set(other.input) & set(made[:-1]) and other.output[0] != "layer"]
        if nonlinear and all(other.output[0] in made for other in readers):  # all paths go through this node
            following = [other for other in nodes if made[-1] in other.input]
            if "Erf" in {other.op_type for other in readers} and [other.op_type for other in following] == ["Mul"]:
                return str(following[0].output[0])  # GELU ends with a product with 0.5
            return made[-1]
    return None


# --- the tensor that holds descriptors --------------------------------------------------------------------------------


def find_features(model: onnx.ModelProto, path: object) -> str:
    """Return the name of the tensor that holds descriptors, in a network that was published for another purpose.

    That is, in this order: the output ``last_hidden_state``; the only output with three axes (tokens) or four (a map);
    the tensor from which an output is pooled, by a mean over places or by taking the class token; the only output.
    """
    graph, images = model.graph, [name for name in output_names(model) if _reads_image(model.graph, name)]
    axes = {value.name: len(value.type.tensor_type.shape.dim) for value in graph.output}
    several = [name for name in images if axes[name] in (3, 4)]
    pooled = (source for name in images if (source := _pooled_from(graph, name)) is not None)
    if "last_hidden_state" in images:
        return "last_hidden_state"
    found = next(iter(several), None) or next(pooled, None) or (images[0] if len(images) == 1 else None)
    if found is None or len(several) > 1:
        listed = ", ".join(several or output_names(model))[:500]
        raise NetworkError(f"{path} has several outputs ({listed}): say which to read, with ?output=NAME.")
    return found


def _reads_image(graph: onnx.GraphProto, output: str) -> bool:
    """Whether an output is computed from one input, which can be a batch of images."""
    _, used = needed_for(output, graph)
    inputs = [value for value in _inputs(graph) if value.name in used]
    return len(inputs) == 1 and len(inputs[0].type.tensor_type.shape.dim) in (0, 4)


def _inputs(graph: onnx.GraphProto) -> list[onnx.ValueInfoProto]:
    """Return the inputs of a graph that are not constants."""
    constants = {tensor.name for tensor in graph.initializer}
    return [value for value in graph.input if value.name not in constants]


def _pooled_from(graph: onnx.GraphProto, output: str) -> str | None:
    """Return the tensor that an output is pooled from: the last one that all paths to the output go through."""
    indices, _ = needed_for(output, graph)
    inputs = {value.name for value in _inputs(graph)}
    for index in reversed(indices):
        source = _source(graph, graph.node[index])
        if source and source not in inputs and not inputs & needed_for(output, graph, stop={source})[1]:
            return source
    return None


def _source(graph: onnx.GraphProto, node: onnx.NodeProto) -> str | None:
    """Return the tensor that a node reduces to one vector per image, if it does."""
    source, pooled = str(node.input[0]) if node.input else "", False
    if node.op_type in ("GlobalAveragePool", "GlobalMaxPool"):
        maker = makers(graph).get(source)
        if maker is not None and _ints(graph, graph.node[maker], "perm") == [0, 2, 1]:
            return str(graph.node[maker].input[0])  # tokens that were transposed, as in Swin
        pooled = True
    elif node.op_type in ("ReduceMean", "ReduceMax"):
        axes = set(_ints(graph, node, "axes", 1))
        # A mean that is subtracted from what it is the mean of is a normalisation.
        centred = any(other.op_type == "Sub" and {node.output[0], source} <= set(other.input) for other in graph.node)
        pooled = axes in ({2, 3}, {-2, -1}, {1, 2}, {-3, -2}) or (axes == {1} and not centred)
    elif node.op_type == "Gather":  # the class token
        pooled = (_ints(graph, node, "axis"), _ints(graph, node, "", 1)) == ([1], [0])
    elif node.op_type == "Slice":
        pooled = [_ints(graph, node, key, n) for n, key in enumerate(("starts", "ends", "axes"), 1)] == [[0], [1], [1]]
    return source if pooled else None


def _ints(graph: onnx.GraphProto, node: onnx.NodeProto, attribute: str, place: int | None = None) -> list[int]:
    """Return the whole numbers of an attribute of a node, or of its input at a place where that is a constant."""
    from onnx import numpy_helper

    for one in node.attribute:
        if one.name == attribute:
            return list(one.ints or [one.i])
    if place is None or len(node.input) <= place:
        return []
    name = node.input[place]
    tensors = [tensor for tensor in graph.initializer if tensor.name == name]
    for other in graph.node:
        if other.op_type == "Constant" and name in other.output:
            tensors += [one.t for one in other.attribute if one.name == "value"]
    if not tensors or tensors[0].data_type not in (tensors[0].INT32, tensors[0].INT64):
        return []
    return [int(value) for value in numpy_helper.to_array(tensors[0]).ravel()[:8]]


def patch_size(model: onnx.ModelProto) -> int | None:
    """Return the stride of the first convolution, which cuts the image into the patches of a transformer, or None."""
    for node in model.graph.node:
        if "Conv" in node.op_type:
            strides = _ints(model.graph, node, "strides")
            return strides[0] if len(strides) == 2 and strides[0] == strides[1] > 0 else None
    return None
