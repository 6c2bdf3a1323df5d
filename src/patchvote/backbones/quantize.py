"""Quantize a network: its products in 8-bit integers, with scales that are calibrated on photos.

The scales are fixed when the graph is written, so that the descriptors of a photo do not depend on other photos.
Weights have 7 bits: without VNNI, an x86 processor adds pairs of products in 16 bits, which 8-bit weights exceed, and
the same graph would give other descriptors on another processor. The first convolutions see pixels and the last one
makes the descriptors; both lose most by rounding, and stay in floating point.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ..errors import NetworkError, first_line
from ..utils.temporary import temporary_folder

if TYPE_CHECKING:
    import onnx

_PRODUCTS = ("Conv", "Gemm", "MatMul")
_FIRST = 4  # products that stay in floating point at the input: a relative error of 0.20 instead of 0.35 with Lite0
_QUANTIZED = frozenset({"QuantizeLinear", "DynamicQuantizeLinear", "ConvInteger", "MatMulInteger", "QLinearConv"})


def quantized(graph: onnx.ModelProto, inputs: Iterable[npt.NDArray[np.float32]], name: str) -> onnx.ModelProto:
    """Return a graph with products of 8-bit integers.

    Parameters
    ----------
    graph : onnx.ModelProto
        Graph with one input, from preprocessed images to descriptors.
    inputs : iterable of array
        Inputs of the graph on which the ranges of all tensors are measured.
    name : str
        Name of the network, for messages.

    Raises
    ------
    NetworkError
        The graph is quantized already, has too few products, or cannot be quantized.
    """
    import onnx
    from onnxruntime.quantization import QuantFormat, QuantType, quantize_static
    from onnxruntime.quantization.shape_inference import quant_pre_process

    if any(node.op_type in _QUANTIZED for node in graph.graph.node):
        raise NetworkError(f"{name} is quantized already.")
    with temporary_folder() as folder, _quiet():
        prepared, written = folder / "prepared.onnx", folder / "int8.onnx"
        try:
            quant_pre_process(graph, prepared, skip_symbolic_shape=True)
            model = onnx.load(str(prepared))
            for number, node in enumerate(model.graph.node):
                node.name = node.name or f"node {number}"  # what stays in floating point is given by name
            quantize_static(
                model,
                written,
                _reader(graph.graph.input[0].name, inputs),
                quant_format=QuantFormat.QDQ,
                activation_type=QuantType.QUInt8,
                weight_type=QuantType.QInt8,
                per_channel=True,
                reduce_range=True,
                nodes_to_exclude=_in_floating_point(model, name),
            )
            return onnx.load(str(written))
        except NetworkError:
            raise
        except Exception as error:  # the library raises anything for graphs that it does not know
            raise NetworkError(f"{name} cannot be quantized: {first_line(error)}") from error


def _in_floating_point(graph: onnx.ModelProto, name: str) -> list[str]:
    """Return the names of the products that are not quantized."""
    products = [node.name for node in graph.graph.node if node.op_type in _PRODUCTS]
    if len(products) <= _FIRST + 1:
        raise NetworkError(f"{name} has too few products to quantize: {len(products)}.")
    return [*products[:_FIRST], products[-1]]


def _reader(name: str, inputs: Iterable[npt.NDArray[np.float32]]) -> Any:
    """Return what the library reads the inputs from."""
    from onnxruntime.quantization import CalibrationDataReader

    class Reader(CalibrationDataReader):  # type: ignore[misc]
        def __init__(self) -> None:
            self._rest: Iterator[npt.NDArray[np.float32]] = iter(inputs)

        def get_next(self) -> dict[str, npt.NDArray[np.float32]] | None:
            found = next(self._rest, None)
            return None if found is None else {name: found}

    return Reader()


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Keep the library's advice to programmers from the terminal."""
    logger = logging.getLogger()
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(before)
