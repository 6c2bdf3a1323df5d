"""Cast float16 to float32 and back, many times as fast as numpy.

Bags are stored as float16 and all computations use float32. Processors have an instruction for either cast, which numpy
does not use. ONNX Runtime does: a cast is a graph of one node, which runs on the thread that calls it.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import numpy.typing as npt

_CHUNK = 1 << 16  # numbers per call of ONNX Runtime: 256 kB as float32, which stay in cache
_FLOAT32, _FLOAT16 = 1, 10  # numbers of the types in ONNX
# The graph as bytes, since the package that builds graphs takes long to import: tests/test_halves.py builds the same.
_GRAPH = (
    "08083a400a170a01781201792204436173742a090a02746f18{target:02x}a001021201635a100a0178120b0a0908{source:02x}"
    "12050a0312016e62100a0179120b0a0908{target:02x}12050a0312016e42040a001011"
)


def to_float32(values: npt.NDArray[Any], out: npt.NDArray[Any] | None = None) -> npt.NDArray[Any]:
    """Return numbers of any type as float32; float32 itself is not copied unless `out` is given.

    Examples
    --------
    >>> to_float32(np.array([1.5, -2], np.float16))
    array([ 1.5, -2. ], dtype=float32)
    """
    if values.dtype == np.float16 and values.ndim > 0 and (out is None or out.dtype == np.float32):
        session = _session(_FLOAT16, _FLOAT32)
        return _cast(session, values, np.empty(values.shape, np.float32) if out is None else out)
    if out is None:
        return values.astype(np.float32, copy=False)
    out[...] = values
    return out


def to_float16(values: npt.NDArray[Any]) -> npt.NDArray[np.float16]:
    """Return float32 numbers as float16, the same ones as ``values.astype(np.float16)``; too large ones are infinite.

    Examples
    --------
    >>> to_float16(np.array([1.0, -1 / 3, 1e-7], np.float32))
    array([ 1.000e+00, -3.333e-01,  1.192e-07], dtype=float16)
    """
    session = _session(_FLOAT32, _FLOAT16)
    return _cast(session, np.asarray(values, np.float32), np.empty(values.shape, np.float16))


def _cast(session: Any, values: npt.NDArray[Any], out: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Cast numbers into `out`, some rows at a time."""
    rows = max(1, _CHUNK // max(1, values[:1].size))
    for start in range(0, len(values), rows):
        part, target = np.ascontiguousarray(values[start : start + rows]).reshape(-1), out[start : start + rows]
        if target.flags.c_contiguous and part.size:  # written in place
            binding = session.io_binding()
            binding.bind_cpu_input("x", part)
            binding.bind_output("y", "cpu", 0, out.dtype, [part.size], target.ctypes.data)
            session.run_with_iobinding(binding)
        else:
            target[...] = session.run(None, {"x": part})[0].reshape(target.shape)
    return out


@functools.cache
def _session(source: int, target: int) -> Any:
    """Return a session of ONNX Runtime that casts a vector, on the thread that calls it."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4
    graph = bytes.fromhex(_GRAPH.format(source=source, target=target))
    return onnxruntime.InferenceSession(graph, options, providers=["CPUExecutionProvider"])


def all_finite(values: npt.NDArray[Any]) -> bool:
    """Return whether no number is infinite or NaN; float16 is tested by its bits, which is several times as fast.

    Examples
    --------
    >>> all_finite(np.array([1.0, 2.0], np.float16)), all_finite(np.array([1.0, np.inf], np.float16))
    (True, False)
    """
    if values.dtype != np.float16:
        return bool(np.isfinite(values).all())
    return not values.size or int(np.bitwise_and(values.view(np.uint16), 0x7C00).max()) < 0x7C00
