"""Cut an ONNX graph at the tensor that is to be read.

ONNX Runtime computes every output of a graph, wanted or not, and cannot give what is no output. So the graph is cut
once: everything behind the wanted tensor goes, and the tensor becomes the only output. Choosing "before the activation"
is the same cut, one node earlier.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ..errors import NetworkError
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
    nodes = list(graph.node)
    maker = {name: index for index, node in enumerate(nodes) for name in node.output if name}
    if output not in maker:
        outputs = ", ".join(output_names(model))[:500]
        raise NetworkError(f"the graph has no tensor {output!r}. Its outputs are: {outputs}.")

    wanted = _before_activation(output, nodes, maker) if activation == "before" else output
    if [wanted] == output_names(model):
        return model
    needed: set[int] = set()
    used: set[str] = set()
    waiting = [wanted]
    while waiting:
        name = waiting.pop()
        used.add(name)
        index = maker.get(name)
        if index is not None and index not in needed:
            needed.add(index)
            waiting.extend(_inputs(nodes[index]))

    known = {value.name: value for value in [*graph.output, *graph.value_info]}
    value = known.get(wanted) or onnx.helper.make_empty_tensor_value_info(wanted)
    part = onnx.helper.make_graph(
        [nodes[index] for index in sorted(needed)],
        graph.name,
        [value for value in graph.input if value.name in used],
        [value],
        [tensor for tensor in graph.initializer if tensor.name in used],
        sparse_initializer=[t for t in graph.sparse_initializer if t.values.name in used],
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


def tail(model: onnx.ModelProto, start: str) -> onnx.ModelProto:
    """Return the part of `model`, a graph with one output, that goes on from the tensor `start`.

    Raises
    ------
    NetworkError
        There is no such tensor, or the output needs something else from before it.
    """
    import onnx

    graph = model.graph
    nodes = list(graph.node)
    maker = {name: index for index, node in enumerate(nodes) for name in node.output if name}
    if start not in maker:
        raise NetworkError(f"the graph has no tensor {start!r} to begin from.{nearest(start, maker)}")
    constants = {tensor.name for tensor in graph.initializer}
    needed: set[int] = set()
    used: set[str] = set()
    waiting = [graph.output[0].name]
    while waiting:
        name = waiting.pop()
        if name == start or name in used or not name:
            continue
        used.add(name)
        if name in constants:
            continue
        if name not in maker:
            raise NetworkError(
                f"the output is not made from {start!r} alone: it also needs {name!r}. Begin at a tensor that all of "
                "the graph goes through, such as the sum at the end of a block."
            )
        needed.add(maker[name])
        waiting.extend(_inputs(nodes[maker[name]]))
    part = onnx.helper.make_graph(
        [nodes[index] for index in sorted(needed)],
        graph.name,
        [onnx.helper.make_tensor_value_info(start, onnx.TensorProto.FLOAT, ["n", "d", "rows", "columns"])],
        [graph.output[0]],
        [tensor for tensor in graph.initializer if tensor.name in used],
    )
    return onnx.helper.make_model(part, opset_imports=model.opset_import, ir_version=model.ir_version)


def _inputs(node: onnx.NodeProto) -> Iterator[str]:
    """Names of all tensors that a node reads, those inside its branches and loops included."""
    yield from node.input
    for attribute in node.attribute:
        for graph in [attribute.g, *attribute.graphs]:
            for inner in graph.node:
                yield from _inputs(inner)
            yield from (value.name for value in graph.output)  # a branch may pass an outer tensor on as it is


def _before_activation(output: str, nodes: list[onnx.NodeProto], maker: dict[str, int]) -> str:
    """Name what goes into the activation that `output` comes out of."""
    node = nodes[maker[output]]
    if node.op_type in ACTIVATIONS:
        return str(node.input[0])
    # Nodes that only move numbers about may hide the activation: then its own output is the tensor to ask for.
    while node.op_type in _PASS_ON and node.input[0] in maker:
        name = node.input[0]
        node = nodes[maker[name]]
        if node.op_type in ACTIVATIONS:
            raise NetworkError(f"the tensor {output!r} only passes on {name!r}: read that one to go before it.")
    raise NetworkError(f"the tensor {output!r} does not come out of an activation, so there is no 'before'.")
