"""Arithmetic of arrays that numpy has not, or has slowly: float16, integers of 8 bits, moments of a stream, devices."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from ..errors import PatchvoteError, first_line
from .onnx_graph import GraphBuilder

_CHUNK = 1 << 16  # numbers per call of ONNX Runtime: 256 kB as float32, which stay in cache
_FLOAT32, _FLOAT16 = 1, 10  # numbers of the types in ONNX
# A graph of one cast as bytes, since the package that builds graphs takes long to import (see tests/test_arrays.py).
_GRAPH = (
    "08083a400a170a01781201792204436173742a090a02746f18{target:02x}a001021201635a100a0178120b0a0908{source:02x}"
    "12050a0312016e62100a0179120b0a0908{target:02x}12050a0312016e42040a001011"
)
MOST_ROW, MOST_MATRIX = 63, 127  # largest absolute values in a row of an `int8_product`, and in its matrix
_ZERO = 64  # added to its rows, which are stored as unsigned bytes
_BLOCK = 1 << 18  # numbers per block of `Moments`: 1 MB in float32, which stays in the processor's cache
_ROWS = 4096  # descriptors per block at most, few enough to sum them in their own type


def to_float32(values: npt.NDArray[Any], out: npt.NDArray[Any] | None = None) -> npt.NDArray[Any]:
    """Return numbers of any type as float32; float32 itself is not copied unless `out` is given.

    Processors have an instruction for float16, which numpy does not use, but ONNX Runtime does: many times as fast.
    """
    if values.dtype == np.float16 and values.ndim > 0 and (out is None or out.dtype == np.float32):
        session = _session(_FLOAT16, _FLOAT32)
        return _cast(session, values, np.empty(values.shape, np.float32) if out is None else out)
    if out is None:
        return values.astype(np.float32, copy=False)
    out[...] = values
    return out


def to_float16(values: npt.NDArray[Any]) -> npt.NDArray[np.float16]:
    """Return float32 numbers as float16, equal to ``values.astype(np.float16)``; too large ones are infinite."""
    session = _session(_FLOAT32, _FLOAT16)
    return _cast(session, np.asarray(values, np.float32), np.empty(values.shape, np.float16))


def _cast(session: Any, values: npt.NDArray[Any], out: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Cast numbers into `out`, some rows at a time."""
    rows = max(1, _CHUNK // max(1, values[:1].size))
    for start in range(0, len(values), rows):
        part, target = np.ascontiguousarray(values[start : start + rows]).reshape(-1), out[start : start + rows]
        if part.size:
            target[...] = session.run(None, {"x": part})[0].reshape(target.shape)
    return out


@functools.cache
def _session(source: int, target: int) -> Any:
    """Return a session of ONNX Runtime that casts a vector."""
    return _on_one_thread(bytes.fromhex(_GRAPH.format(source=source, target=target)))


def _on_one_thread(graph: bytes) -> Any:
    """Return a session of ONNX Runtime that runs on the thread that calls it: callers run one thread per core."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4
    return onnxruntime.InferenceSession(graph, options, providers=["CPUExecutionProvider"])


def int8_product(matrix: npt.NDArray[Any]) -> Callable[[npt.NDArray[Any]], npt.NDArray[np.int32]]:
    """Return a function that computes ``rows @ matrix.T`` for integer rows and this integer matrix.

    It is two to three times as fast as in floating point, and may be called from several threads at once; each call
    runs on the thread of its caller. Rows have 7 bits (-63 to 63), the matrix has 8 (-127 to 127): with 8 in both,
    processors without VNNI could overflow when they add pairs of products.
    """
    graph = GraphBuilder()
    operands = "rows", graph.constant(matrix.T, np.int8), graph.constant(_ZERO, np.uint8)
    graph.node("MatMulInteger", *operands, output="products")
    kinds = {"rows": "UINT8", "products": "INT32"}
    model = graph.model("p", {"rows": ["n", matrix.shape[1]]}, {"products": ["n", len(matrix)]}, kinds=kinds)
    session = _on_one_thread(model.SerializeToString())

    def product(rows: npt.NDArray[Any]) -> npt.NDArray[np.int32]:
        return np.asarray(session.run(None, {"rows": (rows + _ZERO).astype(np.uint8)})[0])

    return product


def all_finite(values: npt.NDArray[Any]) -> bool:
    """Return whether no number is infinite or NaN; float16 is tested by its bits, which is several times as fast."""
    if values.dtype != np.float16:
        return bool(np.isfinite(values).all())
    return not values.size or int(np.bitwise_and(values.view(np.uint16), 0x7C00).max()) < 0x7C00


class Moments:
    """Weighted mean and variance of a stream, summed in float64, by the update of Chan, Golub and LeVeque (1983)."""

    def __init__(self) -> None:
        self.weight = 0.0
        self.mean: npt.NDArray[np.float64] = np.zeros(0)
        self._squares: npt.NDArray[np.float64] = np.zeros(0)
        self._rounding = 0.0  # relative rounding error of the coarsest input

    def update(self, values: npt.NDArray[Any], weight: npt.NDArray[Any] | None = None) -> None:
        """Add a block of descriptors, each counted `weight` times."""
        step = min(_ROWS, max(1, _BLOCK // max(1, values[:1].size)))
        for start in range(0, len(values), step):
            rows = values[start : start + step]
            rows = rows if rows.dtype == np.float64 else rows.astype(np.float32, copy=False)
            self._rounding = max(self._rounding, 64 * float(np.finfo(rows.dtype).eps))
            counts = np.ones(len(rows)) if weight is None else weight[start : start + step]
            self._merge(rows, counts.astype(rows.dtype))

    def _merge(self, rows: npt.NDArray[Any], counts: npt.NDArray[Any]) -> None:
        """Merge one block; sums are made by `einsum`, as a product would wake the threads of BLAS."""
        total = float(counts.sum(dtype=np.float64))
        if total <= 0:
            return
        centre = (np.einsum("i,ij->j", counts, rows) / rows.dtype.type(total)).astype(rows.dtype)
        apart = rows - centre
        error = np.einsum("i,ij->j", counts, apart).astype(np.float64) / total  # rounding of the centre
        squares = np.einsum("i,ij->j", counts, np.square(apart, out=apart)).astype(np.float64)
        # Rows are added one by one, so a long sum is off by enough to make a constant feature seem to vary.
        self._add(total, centre + error, np.maximum(squares - total * error**2, 0))

    def _add(self, total: float, mean: npt.NDArray[np.float64], squares: npt.NDArray[np.float64]) -> None:
        if self.weight == 0:
            self.weight, self.mean, self._squares = total, mean, squares
            return
        both = self.weight + total
        shift = mean - self.mean
        self._squares = self._squares + squares + shift**2 * (self.weight * total / both)
        self.mean = self.mean + shift * (total / both)
        self.weight = both

    def as_array(self) -> npt.NDArray[np.float64]:
        """Return the means, and the sums of squared differences from them, as two rows."""
        return np.stack([self.mean, self._squares])

    def merge(self, count: float, rows: npt.NDArray[np.float64]) -> None:
        """Add `count` descriptors of which only ``as_array()`` is known, from values in float32 or coarser."""
        self._rounding = max(self._rounding, 64 * float(np.finfo(np.float32).eps))
        if count > 0:
            self._add(float(count), rows[0].copy(), rows[1].copy())

    def deviation(self) -> npt.NDArray[np.float64]:
        """Return the standard deviation of each feature, or 1 for a feature that varies by no more than rounding."""
        deviation = np.sqrt(self._squares / self.weight)
        constant = deviation <= self._rounding * np.maximum(np.abs(self.mean), 1e-12)
        return np.where(constant, 1.0, deviation)


def on_device(array: Any, device: str) -> Any:
    """Return an array as a tensor of torch on a device, such as "cuda"; on the CPU, it shares memory where possible."""
    try:
        from array_api_compat import torch
    except ImportError:
        raise PatchvoteError(
            f"the device {device!r} needs torch. Install it with: pip install 'patchvote[torch]'"
        ) from None
    namespace: Any = torch
    try:
        return namespace.asarray(array, device=device)
    except (RuntimeError, AssertionError, TypeError) as error:
        raise PatchvoteError(f"torch cannot use the device {device!r} here: {first_line(error)}") from None


def on_host(array: Any) -> npt.NDArray[Any]:
    """Return an array of any library as an array of numpy; arrays of numpy are returned unchanged."""
    from array_api_compat import is_numpy_array, to_device

    return array if is_numpy_array(array) else np.asarray(to_device(array, "cpu"))
