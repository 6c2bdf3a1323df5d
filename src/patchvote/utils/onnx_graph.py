"""Build ONNX graphs node by node, with code that reads like the arithmetic itself.

`onnx` is imported only when a graph is built.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import onnx

OPSET = 17  # version of the ONNX operators in our graphs
_IR_VERSION = 8  # version of the file format that belongs to this opset


class GraphBuilder:
    """Collects nodes and constants; every method returns the name of the value that it adds.

    Generated names begin with `prefix`, which distinguishes them from the names of graphs that are merged in.
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
        inputs: Mapping[str, Sequence[int | str]],
        outputs: Mapping[str, Sequence[int | str]],
        *,
        kinds: dict[str, str] | None = None,
        opset: int = OPSET,
        metadata: dict[str, str] | None = None,
    ) -> onnx.ModelProto:
        """Return everything that was added as one model.

        `inputs` and `outputs` are shapes by name, in which an axis of variable length is a word; `kinds` are the types
        of those that are not "FLOAT".
        """
        helper, types = self._helper, kinds or {}

        def values(shapes: Mapping[str, Sequence[int | str]]) -> list[onnx.ValueInfoProto]:
            return [
                helper.make_tensor_value_info(key, getattr(self._types, types.get(key, "FLOAT")), list(shape))
                for key, shape in shapes.items()
            ]

        graph = helper.make_graph(self.nodes, name, values(inputs), values(outputs), list(self.constants.values()))
        model: onnx.ModelProto = helper.make_model(
            graph,
            opset_imports=[helper.make_opsetid("", opset)],
            ir_version=_IR_VERSION,
            producer_name="patchvote",
        )
        if metadata:
            helper.set_model_props(model, metadata)
        return model
