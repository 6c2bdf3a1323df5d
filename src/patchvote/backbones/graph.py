"""Cut an ONNX graph at the tensor that is to be read.

ONNX Runtime computes every output of a graph, wanted or not, and cannot give what is no output. So the graph is cut
once: everything behind the wanted tensor goes, and the tensor becomes the only output. Choosing "before the activation"
is the same cut, one node earlier.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from ..errors import NetworkError
from ..utils.onnx_graph import makers, needed_for
from ..utils.suggest import nearest
from .base import Activation

if TYPE_CHECKING:
    import onnx

ACTIVATIONS = {"Relu", "Clip", "LeakyRelu", "PRelu", "Elu", "Selu", "Celu", "Gelu", "HardSwish", "HardSigmoid", "Mish"}
_BENT = {"Sigmoid", "Tanh", "Erf", "Softplus"}  # parts of activations that are written as several nodes
_PLAIN = {"Mul", "Div", "Add"}
_PASS_ON = {"Identity", "Flatten", "Reshape", "Squeeze", "Dropout"}  # move numbers about without changing them


def output_names(model: onnx.ModelProto) -> list[str]:
    """Names of the tensors that the graph gives out as it is."""
    return [value.name for value in model.graph.output]


def cut(model: onnx.ModelProto, output: str, activation: Activation = "after") -> onnx.ModelProto:
    """Return the part of `model` that computes the tensor `output`, read after or before its last activation.

    Raises
    ------
    NetworkError
        There is no such tensor, or no activation behind it to read before.
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
    places, used = needed_for(wanted, graph)
    known = {value.name: value for value in [*graph.output, *graph.value_info]}
    value = known.get(wanted) or onnx.helper.make_empty_tensor_value_info(wanted)
    return _part(model, places, used, [value for value in graph.input if value.name in used], value)


def tail(model: onnx.ModelProto, start: str) -> onnx.ModelProto:
    """Return the part of `model`, a graph with one output, that goes on from the tensor `start`.

    Raises
    ------
    NetworkError
        There is no such tensor, or the output needs something else from before it.
    """
    import onnx

    graph = model.graph
    made_by = makers(graph)
    if start not in made_by:
        raise NetworkError(f"the graph has no tensor {start!r} to begin from.{nearest(start, made_by)}")
    places, used = needed_for(graph.output[0].name, graph, stop={start})
    constants = {tensor.name for tensor in graph.initializer}
    missing = sorted(name for name in used - constants - {start} if name not in made_by)
    if missing:
        raise NetworkError(
            f"the output is not made from {start!r} alone: it also needs {missing[0]!r}. Begin at a tensor that all of "
            "the graph goes through, such as the sum at the end of a block."
        )
    value = onnx.helper.make_tensor_value_info(start, onnx.TensorProto.FLOAT, ["n", "d", "rows", "columns"])
    return _part(model, places, used, [value], graph.output[0])


def _part(
    model: onnx.ModelProto,
    places: Iterable[int],
    used: set[str],
    inputs: Iterable[onnx.ValueInfoProto],
    output: onnx.ValueInfoProto,
) -> onnx.ModelProto:
    """Return the model that consists of some nodes of another, with the constants that they use."""
    import onnx

    graph = model.graph
    part = onnx.helper.make_graph(
        [graph.node[place] for place in places],
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
    """Cut a graph at its tensor ``layer``: behind the activation that follows or makes it, or before that.

    Returns the graph, and the name of its output.
    """
    nodes = list(graph.graph.node)
    (maker,) = (node for node in nodes if "layer" in node.output)
    if maker.op_type in ACTIVATIONS:
        return cut(graph, "layer", activation), "layer"
    inner = maker.input[0] if maker.op_type == "Identity" else "layer"  # a copy; what follows reads the original
    end = _activation_behind(nodes, inner, {tensor.name for tensor in graph.graph.initializer})
    if activation == "after" and end:
        return cut(graph, end), end
    if activation == "before" and not end:
        raise NetworkError("no activation follows the layer, so there is no 'before'.")
    return cut(graph, "layer"), "layer"


def _activation_behind(nodes: list[onnx.NodeProto], start: str, constants: set[str]) -> str | None:
    """Name the end of the activation that follows the tensor `start`: one node or, as in SiLU and GELU, several."""
    constants = constants | {name for node in nodes if node.op_type == "Constant" for name in node.output}
    made, bent = [start], False  # tensors that come from `start` alone; whether one of the nodes is not linear
    for node in nodes:
        own = [name for name in node.input if name and name not in constants]
        if not own or not set(own) <= set(made) or node.op_type not in ACTIVATIONS | _BENT | _PLAIN:
            continue
        made.append(node.output[0])
        bent = bent or node.op_type not in _PLAIN
        readers = [other for other in nodes if set(other.input) & set(made[:-1]) and other.output[0] != "layer"]
        if bent and all(other.output[0] in made for other in readers):  # nothing goes around this node
            halved = [other for other in nodes if made[-1] in other.input]
            if "Erf" in {other.op_type for other in readers} and [other.op_type for other in halved] == ["Mul"]:
                return str(halved[0].output[0])  # GELU ends with a half
            return made[-1]
    return None


def _before_activation(output: str, graph: onnx.GraphProto, made_by: dict[str, int]) -> str:
    """Name what goes into the activation that `output` comes out of."""
    node = graph.node[made_by[output]]
    if node.op_type in ACTIVATIONS:
        return str(node.input[0])
    # Nodes that only move numbers about may hide the activation: then its own output is the tensor to ask for.
    while node.op_type in _PASS_ON and node.input[0] in made_by:
        name = node.input[0]
        node = graph.node[made_by[name]]
        if node.op_type in ACTIVATIONS:
            raise NetworkError(f"the tensor {output!r} only passes on {name!r}: read that one to go before it.")
    raise NetworkError(f"the tensor {output!r} does not come out of an activation, so there is no 'before'.")
