"""A graph in ONNX as a module of PyTorch, whose constants can be trained and written back.

Only what image networks are made of: convolutions, normalisation, activations, sums, products and pooling. So a network
can be fine-tuned whoever wrote it, and the result is the same graph with other numbers.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from ..errors import NetworkError

if TYPE_CHECKING:
    import onnx

_Step = Callable[[list[Any], dict[str, Any]], Tensor]


class OnnxModule(nn.Module):
    """Runs a graph with one input and one output.

    Parameters
    ----------
    model : onnx.ModelProto
        The graph. Weights and biases of its convolutions, matrix products and normalisations become parameters; other
        constants stay what they are.

    Raises
    ------
    NetworkError
        The graph has an operation that is not known here.
    """

    def __init__(self, model: onnx.ModelProto) -> None:
        from onnx import helper, numpy_helper

        super().__init__()
        graph = model.graph
        self._input, self._output = graph.input[0].name, graph.output[0].name
        self._nodes: list[tuple[str, list[str], str, dict[str, Any]]] = []
        trained: set[str] = set()
        constants = list(graph.initializer)
        for node in graph.node:
            if node.op_type == "Constant" and node.attribute[0].name == "value":
                constants.append(_named(node.attribute[0].t, node.output[0]))
                continue
            if node.op_type not in _STEPS:
                known = ", ".join(sorted(_STEPS))
                raise NetworkError(f"{node.op_type} cannot be run in torch here. What can: {known}.")
            attributes = {item.name: helper.get_attribute_value(item) for item in node.attribute}
            self._nodes.append((node.op_type, list(node.input), node.output[0], attributes))
            if node.op_type in ("Conv", "Gemm", "MatMul", "BatchNormalization"):
                trained.update(node.input[1:3])
        self._names: dict[str, str] = {}
        for tensor in constants:
            name = self._names[tensor.name] = tensor.name.replace(".", "/")  # a dot would name a submodule
            value = torch.from_numpy(np.array(numpy_helper.to_array(tensor)))
            if tensor.name in trained and value.is_floating_point():
                self.register_parameter(name, nn.Parameter(value))
            else:
                self.register_buffer(name, value)

    def forward(self, x: Tensor) -> Tensor:
        """Run the graph."""
        there = {self._input: x}

        def value(name: str) -> Tensor:
            return there[name] if name in there else getattr(self, self._names[name])

        for kind, inputs, output, attributes in self._nodes:
            there[output] = _STEPS[kind]([value(name) if name else None for name in inputs], attributes)
        return there[self._output]

    def write_back(self, model: onnx.ModelProto) -> None:
        """Put the constants as they are now into a graph that holds constants of these names."""
        from onnx import numpy_helper

        for tensor in model.graph.initializer:
            if tensor.name in self._names:
                value = getattr(self, self._names[tensor.name]).detach().cpu().numpy()
                tensor.CopyFrom(numpy_helper.from_array(np.ascontiguousarray(value), tensor.name))


def _named(tensor: onnx.TensorProto, name: str) -> onnx.TensorProto:
    """Return a copy of a constant under another name."""
    copy = type(tensor)()
    copy.CopyFrom(tensor)
    copy.name = name
    return copy


def _convolve(inputs: list[Any], told: dict[str, Any]) -> Tensor:
    x, weight = inputs[0], inputs[1]
    bias = inputs[2] if len(inputs) > 2 else None
    stride = told.get("strides", [1, 1])
    dilation = told.get("dilations", [1, 1])
    x = _padded(x, weight.shape[2:], stride, dilation, told)
    return functional.conv2d(x, weight, bias, stride, 0, dilation, told.get("group", 1))


def _padded(
    x: Tensor, kernel: Any, stride: list[int], dilation: list[int], told: dict[str, Any], fill: float = 0.0
) -> Tensor:
    """Pad as ONNX says: by given numbers, or so that the output has as many cells as the input has strides."""
    way = told.get("auto_pad", b"NOTSET").decode()
    if way in ("NOTSET", "VALID"):
        top, left, bottom, right = told.get("pads", [0, 0, 0, 0]) if way == "NOTSET" else [0, 0, 0, 0]
    else:
        both = []
        for size, side, step, gap in zip(x.shape[2:], kernel, stride, dilation, strict=True):
            missing = max(0, (-(-size // step) - 1) * step + (side - 1) * gap + 1 - size)
            small, large = missing // 2, missing - missing // 2
            both.append((small, large) if way == "SAME_UPPER" else (large, small))
        (top, bottom), (left, right) = both
    return functional.pad(x, (left, right, top, bottom), value=fill) if any((top, left, bottom, right)) else x


def _largest(inputs: list[Any], told: dict[str, Any]) -> Tensor:
    stride, dilation = told.get("strides", [1, 1]), told.get("dilations", [1, 1])
    if told.get("ceil_mode", 0):
        raise NetworkError("MaxPool with ceil_mode cannot be run in torch here.")
    x = _padded(inputs[0], told["kernel_shape"], stride, dilation, told, fill=-torch.inf)
    return functional.max_pool2d(x, told["kernel_shape"], stride, 0, dilation)


def _clip(inputs: list[Any], told: dict[str, Any]) -> Tensor:
    """Bounds are inputs; before opset 11 they were attributes."""
    low, high = (*inputs[1:], None, None)[:2]
    low, high = told.get("min") if low is None else low, told.get("max") if high is None else high
    return inputs[0] if low is None and high is None else torch.clamp(inputs[0], low, high)


def _flatten(inputs: list[Any], told: dict[str, Any]) -> Tensor:
    shape = inputs[0].shape
    flat: Tensor = inputs[0].reshape(math.prod(shape[: told.get("axis", 1)]), -1)
    return flat


def _normalise(inputs: list[Any], told: dict[str, Any]) -> Tensor:
    x, weight, bias, mean, variance = inputs
    return functional.batch_norm(x, mean, variance, weight, bias, eps=told.get("epsilon", 1e-5))


def _gemm(inputs: list[Any], told: dict[str, Any]) -> Tensor:
    a, b = inputs[0].T if told.get("transA") else inputs[0], inputs[1].T if told.get("transB") else inputs[1]
    product: Tensor = told.get("alpha", 1.0) * (a @ b)
    return product + told.get("beta", 1.0) * inputs[2] if len(inputs) > 2 else product


_STEPS: dict[str, _Step] = {
    "Add": lambda x, told: x[0] + x[1],
    "BatchNormalization": _normalise,
    "Clip": _clip,
    "Concat": lambda x, told: torch.cat(x, dim=told["axis"]),
    "Conv": _convolve,
    "Dropout": lambda x, told: x[0],
    "Flatten": _flatten,
    "Gemm": _gemm,
    "GlobalAveragePool": lambda x, told: x[0].mean(dim=(2, 3), keepdim=True),
    "HardSwish": lambda x, told: functional.hardswish(x[0]),
    "Identity": lambda x, told: x[0],
    "LeakyRelu": lambda x, told: functional.leaky_relu(x[0], told.get("alpha", 0.01)),
    "MatMul": lambda x, told: x[0] @ x[1],
    "MaxPool": _largest,
    "Mul": lambda x, told: x[0] * x[1],
    "Relu": lambda x, told: functional.relu(x[0]),
    "Sigmoid": lambda x, told: torch.sigmoid(x[0]),
}
