"""Build ONNX graphs node by node, and walk through those that exist.

`GraphBuilder` collects nodes and constants and returns the names of their values, so that code which builds a graph
reads like the arithmetic itself. The functions below it walk through a graph: which graphs are nested in a node, which
tensors a node reads, which nodes a tensor is computed from. `onnx` is imported only when a graph is built.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from .marks import NAME

if TYPE_CHECKING:
    import onnx

OPSET = 17  # version of the ONNX operators in our graphs
_IR_VERSION = 8  # version of the file format that belongs to this opset


class GraphBuilder:
    """Collects nodes and constants; every method returns the name of the value that it adds.

    Parameters
    ----------
    prefix : str, default "pv_"
        Prefix of generated names, which distinguishes them from the names of graphs that are merged in.

    Attributes
    ----------
    nodes : list of onnx.NodeProto
        The nodes so far.
    constants : dict of onnx.TensorProto
        The constants so far, by name.

    Examples
    --------
    >>> graph = GraphBuilder()
    >>> doubled = graph.node("Mul", "x", graph.constant(2.0))
    >>> graph.name(graph.sum(doubled, 0), "y")
    'y'
    >>> [node.op_type for node in graph.model("sum", {"x": ["n"]}, {"y": [1]}).graph.node]
    ['Mul', 'ReduceSum', 'Identity']
    """

    def __init__(self, prefix: str = "pv_") -> None:
        from onnx import TensorProto, helper, numpy_helper

        self._helper, self._types, self._numpy = helper, TensorProto, numpy_helper
        self._prefix, self._count = prefix, 0
        self.nodes: list[onnx.NodeProto] = []
        self.constants: dict[str, onnx.TensorProto] = {}

    def node(self, op: str, *inputs: str, output: str = "", **attributes: Any) -> str:
        """Add a node; its output gets the name `output`, or a generated one."""
        self._count += 1
        output = output or f"{self._prefix}{op.lower()}_{self._count}"
        self.nodes.append(self._helper.make_node(op, list(inputs), [output], name=output, **attributes))
        return output

    def name(self, value: str, name: str) -> str:
        """Give a value a chosen name, which the outputs of a graph need."""
        self.nodes.append(self._helper.make_node("Identity", [value], [name], name=f"{self._prefix}{name}"))
        return name

    def constant(self, value: Any, dtype: Any = np.float32, *, name: str = "") -> str:
        """Add an array; a constant of the same name is replaced."""
        name = name or f"{self._prefix}c{len(self.constants)}"
        array = np.asarray(value, dtype, order="C")
        self.constants[name] = self._numpy.from_array(array, name)
        return name

    def ints(self, *values: int) -> str:
        """Add a vector of whole numbers, such as axes."""
        return self.constant(list(values), np.int64)

    def cast(self, value: str, kind: str) -> str:
        """Convert a value to a type of `onnx.TensorProto`, such as "FLOAT" or "INT64"."""
        return self.node("Cast", value, to=getattr(self._types, kind))

    def sum(self, value: str, axis: int, keep: bool = True) -> str:
        """Sum over an axis, which stays with length 1 or is dropped."""
        return self.node("ReduceSum", value, self.ints(axis), keepdims=int(keep))

    def largest(self, value: str, count: int, axis: int) -> list[str]:
        """Return the largest, second largest, … slice along an axis, which stays with length 1."""
        top = f"{self._prefix}topk_{self._count}"
        inputs = [value, self.ints(count)]
        self.nodes.append(self._helper.make_node("TopK", inputs, [top, f"{top}_places"], name=top, axis=axis))
        return [
            self.node("Slice", top, self.ints(place), self.ints(place + 1), self.ints(axis)) for place in range(count)
        ]

    def model(
        self,
        name: str,
        inputs: dict[str, Sequence[int | str]],
        outputs: dict[str, Sequence[int | str]],
        *,
        kinds: dict[str, str] | None = None,
        opset: int = OPSET,
        metadata: dict[str, str] | None = None,
    ) -> onnx.ModelProto:
        """Return everything that was added as one model.

        Parameters
        ----------
        name : str
            Name of the graph.
        inputs, outputs : dict
            Shapes of the inputs and outputs, by name; an axis of variable length is a word.
        kinds : dict, optional
            Types of the inputs and outputs that are not "FLOAT", by name.
        opset : int
            Version of the ONNX operators.
        metadata : dict, optional
            Metadata of the file: text by key.
        """
        helper, types = self._helper, kinds or {}

        def values(shapes: dict[str, Sequence[int | str]]) -> list[onnx.ValueInfoProto]:
            return [
                helper.make_tensor_value_info(key, getattr(self._types, types.get(key, "FLOAT")), list(shape))
                for key, shape in shapes.items()
            ]

        graph = helper.make_graph(self.nodes, name, values(inputs), values(outputs), list(self.constants.values()))
        model: onnx.ModelProto = helper.make_model(
            graph,
            opset_imports=[helper.make_opsetid("", opset)],
            ir_version=_IR_VERSION,
            producer_name=NAME,
        )
        if metadata:
            helper.set_model_props(model, metadata)
        return model


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


def nodes_of(model: onnx.ModelProto) -> Iterator[onnx.NodeProto]:
    """Yield all nodes of a model: those of its graph, of nested graphs, and of its functions."""
    for body in (model.graph.node, *(function.node for function in model.functions)):
        yield from all_nodes(body)


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
    """Walk from a tensor back to what it is computed from.

    Parameters
    ----------
    output : str
        Name of the tensor.
    graph : onnx.GraphProto
        Graph that computes the tensor.
    stop : collection of str
        Names of tensors at which the walk ends: what they are computed from is not needed.

    Returns
    -------
    nodes : list of int
        Indices of the nodes that are needed, in the order of the graph.
    tensors : set of str
        Names of `output` and of all tensors that these nodes read, including constants, inputs and those of `stop`.
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
