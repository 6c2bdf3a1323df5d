"""Cut an ONNX graph at the tensor that is to be read.

ONNX Runtime computes all outputs of a graph, and returns nothing but outputs. So the graph is cut: everything after the
wanted tensor is removed, and the tensor becomes the only output. "Before the activation" is the same cut, one node
earlier.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from ..errors import NetworkError
from ..utils.onnx_graph import makers, needed_for
from ..utils.terminal import nearest
from .base import Activation

if TYPE_CHECKING:
    import onnx

ACTIVATIONS = {"Relu", "Clip", "LeakyRelu", "PRelu", "Elu", "Selu", "Celu", "Gelu", "HardSwish", "HardSigmoid", "Mish"}
_NONLINEAR = {"Sigmoid", "Tanh", "Erf", "Softplus"}  # parts of activations that consist of several nodes
_ARITHMETIC = {"Mul", "Div", "Add"}  # further parts of such activations
_PASS_ON = {"Identity", "Flatten", "Reshape", "Squeeze", "Dropout"}  # do not change values


def output_names(model: onnx.ModelProto) -> list[str]:
    """Return the names of the outputs of a graph."""
    return [value.name for value in model.graph.output]


def cut(model: onnx.ModelProto, output: str, activation: Activation = "after") -> onnx.ModelProto:
    """Return the part of `model` that computes the tensor `output`, read after or before its last activation.

    Raises
    ------
    NetworkError
        There is no such tensor, or it does not come out of an activation.
    """
    import onnx

    graph = model.graph
    made_by = makers(graph)
    if output not in made_by:
        outputs = ", ".join(output_names(model))[:500]
        raise NetworkError(f"the graph has no tensor {output!r}. Its outputs are: {outputs}.")

    wanted = _before_activation(output, graph, made_by) if activation == "before" else output
    if [wanted] == output_names(model):
        return model
    indices, used = needed_for(wanted, graph)
    known = {value.name: value for value in [*graph.output, *graph.value_info]}
    value = known.get(wanted) or onnx.helper.make_empty_tensor_value_info(wanted)
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
    """Return the part of `model`, a graph with one output, that follows the tensor `start`.

    Raises
    ------
    NetworkError
        There is no such tensor, or the output depends on earlier tensors as well.
    """
    import onnx

    graph = model.graph
    made_by = makers(graph)
    if start not in made_by:
        raise NetworkError(f"the graph has no tensor {start!r} to begin from.{nearest(start, made_by)}")
    indices, used = needed_for(graph.output[0].name, graph, stop={start})
    constants = {tensor.name for tensor in graph.initializer}
    missing = sorted(name for name in used - constants - {start} if name not in made_by)
    if missing:
        raise NetworkError(
            f"the output is not computed from {start!r} alone: it also needs {missing[0]!r}. Begin at a tensor that "
            "all paths of the graph go through, such as the sum at the end of a block."
        )
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
        functions=model.functions,
        producer_name=model.producer_name,
    )


def cut_at_layer(graph: onnx.ModelProto, activation: Activation) -> tuple[onnx.ModelProto, str]:
    """Cut a graph at its tensor ``layer``: after or before the activation that follows the tensor or computes it.

    Returns the graph, and the name of its output.
    """
    nodes = list(graph.graph.node)
    (maker,) = (node for node in nodes if "layer" in node.output)
    if maker.op_type in ACTIVATIONS:
        return cut(graph, "layer", activation), "layer"
    inner = maker.input[0] if maker.op_type == "Identity" else "layer"  # a copy; the next nodes read the original
    end = _activation_after(nodes, inner, {tensor.name for tensor in graph.graph.initializer})
    if activation == "after" and end:
        return cut(graph, end), end
    if activation == "before" and not end:
        if any(inner in node.output and node.op_type in ACTIVATIONS for node in nodes):
            return cut(graph, inner, activation), inner  # the layer ends with one, as a block of a ResNet does
        raise NetworkError("no activation follows the layer or ends it, so there is no 'before'.")
    return cut(graph, "layer"), "layer"


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


def _before_activation(output: str, graph: onnx.GraphProto, made_by: dict[str, int]) -> str:
    """Return the input of the activation that computes `output`."""
    node = graph.node[made_by[output]]
    if node.op_type in ACTIVATIONS:
        return str(node.input[0])
    # There may be nodes in between that do not change values: then the user has to name the activation's output.
    while node.op_type in _PASS_ON and node.input[0] in made_by:
        name = node.input[0]
        node = graph.node[made_by[name]]
        if node.op_type in ACTIVATIONS:
            raise NetworkError(f"the tensor {output!r} only passes on {name!r}: name that tensor to read before it.")
    raise NetworkError(f"the tensor {output!r} does not come out of an activation, so there is no 'before'.")
