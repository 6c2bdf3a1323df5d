"""An ONNX graph as a module of PyTorch, whose constants can be trained and written back.

It supports the usual operations of image networks: convolutions, normalisation, activations, sums, products and
pooling. The result of fine-tuning is the same graph with other constants.
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

_Operation = Callable[[list[Any], dict[str, Any]], Tensor]  # from inputs and attributes of a node to its output


class OnnxModule(nn.Module):
    """Runs a graph with one input and one output.

    Weights and biases of convolutions, matrix products and normalisations become parameters; other constants are not
    trained.
    """

    def __init__(self, model: onnx.ModelProto) -> None:
        from onnx import helper, numpy_helper

        super().__init__()
        graph = model.graph
        self._input, self._output = graph.input[0].name, graph.output[0].name
        self._nodes: list[tuple[str, list[str], str, dict[str, Any]]] = []
        trained: set[str] = set()
        constants = [(tensor.name, tensor) for tensor in graph.initializer]
        for node in graph.node:
            if node.op_type == "Constant" and node.attribute[0].name == "value":
                constants.append((node.output[0], node.attribute[0].t))
                continue
            if node.op_type not in _OPERATIONS:
                known = ", ".join(sorted(_OPERATIONS))
                raise NetworkError(f"{node.op_type} cannot be run in torch here. Supported are: {known}.")
            attributes = {item.name: helper.get_attribute_value(item) for item in node.attribute}
            self._nodes.append((node.op_type, list(node.input), node.output[0], attributes))
            if node.op_type in ("Conv", "Gemm", "MatMul", "BatchNormalization"):
                trained.update(node.input[1:3])
        self._names: dict[str, str] = {}
        for constant, tensor in constants:
            name = self._names[constant] = constant.replace(".", "/")  # a dot would name a submodule
            value = torch.from_numpy(np.array(numpy_helper.to_array(tensor)))
            if constant in trained and value.is_floating_point():
                self.register_parameter(name, nn.Parameter(value))
            else:
                self.register_buffer(name, value)

    def forward(self, x: Tensor) -> Tensor:
        """Run the graph."""
        computed = {self._input: x}

        def value(name: str) -> Tensor:
            return computed[name] if name in computed else getattr(self, self._names[name])

        for kind, inputs, output, attributes in self._nodes:
            computed[output] = _OPERATIONS[kind]([value(name) if name else None for name in inputs], attributes)
        return computed[self._output]

    def write_back(self, model: onnx.ModelProto) -> None:
        """Write the current constants into a graph with constants of these names."""
        from onnx import numpy_helper

        for tensor in model.graph.initializer:
            if tensor.name in self._names:
                value = getattr(self, self._names[tensor.name]).detach().cpu().numpy()
                tensor.CopyFrom(numpy_helper.from_array(np.ascontiguousarray(value), tensor.name))


def _convolve(inputs: list[Any], attributes: dict[str, Any]) -> Tensor:
    x, weight = inputs[0], inputs[1]
    bias = inputs[2] if len(inputs) > 2 else None
    stride = attributes.get("strides", [1, 1])
    dilation = attributes.get("dilations", [1, 1])
    x = _padded(x, weight.shape[2:], stride, dilation, attributes)
    return functional.conv2d(x, weight, bias, stride, 0, dilation, attributes.get("group", 1))


def _padded(
    x: Tensor, kernel: Any, stride: list[int], dilation: list[int], attributes: dict[str, Any], fill: float = 0.0
) -> Tensor:
    """Pad as ONNX does: by given numbers, or so that the output has one cell per stride of the input."""
    mode = attributes.get("auto_pad", b"NOTSET").decode()
    if mode in ("NOTSET", "VALID"):
        top, left, bottom, right = attributes.get("pads", [0, 0, 0, 0]) if mode == "NOTSET" else [0, 0, 0, 0]
    else:
        pads = []
        for size, side, step, gap in zip(x.shape[2:], kernel, stride, dilation, strict=True):
            missing = max(0, (-(-size // step) - 1) * step + (side - 1) * gap + 1 - size)
            small, large = missing // 2, missing - missing // 2
            pads.append((small, large) if mode == "SAME_UPPER" else (large, small))
        (top, bottom), (left, right) = pads
    return functional.pad(x, (left, right, top, bottom), value=fill) if any((top, left, bottom, right)) else x


def _max_pool(inputs: list[Any], attributes: dict[str, Any]) -> Tensor:
    stride, dilation = attributes.get("strides", [1, 1]), attributes.get("dilations", [1, 1])
    x = _padded(inputs[0], attributes["kernel_shape"], stride, dilation, attributes, fill=-torch.inf)
    return functional.max_pool2d(x, attributes["kernel_shape"], stride, 0, dilation)


def _clip(inputs: list[Any], attributes: dict[str, Any]) -> Tensor:
    """Clip; the bounds are inputs, before opset 11 attributes."""
    low, high = (*inputs[1:], None, None)[:2]
    low, high = attributes.get("min") if low is None else low, attributes.get("max") if high is None else high
    return inputs[0] if low is None and high is None else torch.clamp(inputs[0], low, high)


def _flatten(inputs: list[Any], attributes: dict[str, Any]) -> Tensor:
    shape = inputs[0].shape
    flat: Tensor = inputs[0].reshape(math.prod(shape[: attributes.get("axis", 1)]), -1)
    return flat


def _normalise(inputs: list[Any], attributes: dict[str, Any]) -> Tensor:
    x, weight, bias, mean, variance = inputs
    return functional.batch_norm(x, mean, variance, weight, bias, eps=attributes.get("epsilon", 1e-5))


def _gemm(inputs: list[Any], attributes: dict[str, Any]) -> Tensor:
    a = inputs[0].T if attributes.get("transA") else inputs[0]
    b = inputs[1].T if attributes.get("transB") else inputs[1]
    product: Tensor = attributes.get("alpha", 1.0) * (a @ b)
    return product + attributes.get("beta", 1.0) * inputs[2] if len(inputs) > 2 else product


_OPERATIONS: dict[str, _Operation] = {
    "Add": lambda x, attributes: x[0] + x[1],
    "BatchNormalization": _normalise,
    "Clip": _clip,
    "Concat": lambda x, attributes: torch.cat(x, dim=attributes["axis"]),
    "Conv": _convolve,
    "Dropout": lambda x, attributes: x[0],
    "Flatten": _flatten,
    "Gemm": _gemm,
    "GlobalAveragePool": lambda x, attributes: x[0].mean(dim=(2, 3), keepdim=True),
    "HardSwish": lambda x, attributes: functional.hardswish(x[0]),
    "Identity": lambda x, attributes: x[0],
    "LeakyRelu": lambda x, attributes: functional.leaky_relu(x[0], attributes.get("alpha", 0.01)),
    "MatMul": lambda x, attributes: x[0] @ x[1],
    "MaxPool": _max_pool,
    "Mul": lambda x, attributes: x[0] * x[1],
    "Relu": lambda x, attributes: functional.relu(x[0]),
    "Sigmoid": lambda x, attributes: torch.sigmoid(x[0]),
}
