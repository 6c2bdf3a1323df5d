"""Cast float16 to float32 and back, several times as fast as numpy.

Bags are stored as float16 and all computations use float32, so the cast to float32 takes most of the time before a
training. The bits of a float16, shifted to their positions in a float32, give the number up to a constant power of two.
One product corrects that, also for subnormal numbers. Only infinity and NaN come out wrong: chunks with them are cast
by numpy.

The cast to float16 rounds to the nearest number, and to the even one of two: the 13 bits that are cut off carry into
the others if they are more than half, or half of an odd number. A number below the smallest normal float16 is added to
a power of two whose last bit is worth as much as the last bit of the result, so that the processor rounds it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

_CHUNK = 1 << 18  # numbers per chunk: 1 MB as float32, which stays in cache
_SMALL_CHUNK = 1 << 16  # numbers per chunk where several results of each stay in cache
_FACTOR = np.float32(2.0**112)  # the exponent's bias is 15 in float16 and 127 in float32
_MASK = np.int32(-0x70000001)  # clears the copies of the sign in the additional bits of the exponent
# Bits of float32 numbers.
_TOO_LARGE = 0x477FF000  # 65,520, which float16 rounds to infinity
_SMALLEST_NORMAL = np.uint32(0x38800000)  # 2^-14, of float16
# 0.5, whose last bit is worth as much as that of a subnormal float16, and the bits of the smallest normal float16.
_IN_BOTH = np.uint32(0x3F000000 + (1 << 10))
_REBIAS = np.uint32((0xFFF - (112 << 23)) % (1 << 32))  # rounds up from just above half, and corrects the exponent


def to_float32(
    values: npt.NDArray[Any], out: npt.NDArray[Any] | None = None, *, finite: bool = False
) -> npt.NDArray[Any]:
    """Return numbers of any type as float32; float32 itself is not copied unless `out` is given.

    With `finite`, the numbers are known to be finite, and the search for infinity and NaN, a third of the work, is left
    out.

    Examples
    --------
    >>> to_float32(np.array([1.5, -2], np.float16))
    array([ 1.5, -2. ], dtype=float32)
    """
    if values.dtype != np.float16 or values.ndim == 0:
        if out is None:
            return values.astype(np.float32, copy=False)
        out[...] = values
        return out
    result = np.empty(values.shape, np.float32) if out is None else out
    rows = max(1, _CHUNK // max(1, values[:1].size))
    for start in range(0, len(values), rows):
        half, single = values[start : start + rows], result[start : start + rows]
        bits = single.view(np.int32)
        bits[...] = half.view(np.int16)
        np.left_shift(bits, 13, out=bits)
        np.bitwise_and(bits, _MASK, out=bits)
        np.multiply(single, _FACTOR, out=single)
        if not finite and single.size and max(float(single.max()), -float(single.min())) >= 65536:
            single[...] = half
    return result


def to_float16(values: npt.NDArray[Any]) -> npt.NDArray[np.float16]:
    """Return float32 numbers as float16, the same ones as ``values.astype(np.float16)``.

    Examples
    --------
    >>> to_float16(np.array([1.0, -1 / 3, 1e-7], np.float32))
    array([ 1.000e+00, -3.333e-01,  1.192e-07], dtype=float16)
    """
    flat = np.ascontiguousarray(values, np.float32).reshape(-1)
    result = np.empty(len(flat), np.float16)
    for start in range(0, len(flat), _SMALL_CHUNK):
        single, half = flat[start : start + _SMALL_CHUNK], result[start : start + _SMALL_CHUNK]
        bits = single.view(np.uint32)
        size = np.bitwise_and(bits, 0x7FFFFFFF)
        if int(size.max()) >= _TOO_LARGE:  # it becomes infinity, or is NaN
            with np.errstate(over="ignore"):
                half[...] = single
            continue
        # The result is the sum of two parts: one counts up to the smallest normal number, the other from there on.
        # numpy takes either of two results by a mask at a tenth of the speed.
        normal = np.maximum(size, _SMALLEST_NORMAL)
        rounded = np.right_shift(normal, 13)
        np.bitwise_and(rounded, 1, out=rounded)
        np.add(rounded, normal, out=rounded)
        np.add(rounded, _REBIAS, out=rounded)
        np.right_shift(rounded, 13, out=rounded)
        np.minimum(size, _SMALLEST_NORMAL, out=size)
        subnormal = size.view(np.float32)
        np.add(subnormal, np.float32(0.5), out=subnormal)
        np.add(rounded, size, out=rounded)
        np.subtract(rounded, _IN_BOTH, out=rounded)
        if int(bits.max()) >= 1 << 31:  # some number is negative
            np.bitwise_or(rounded, np.bitwise_and(np.right_shift(bits, 16), 0x8000), out=rounded)
        half.view(np.uint16)[...] = rounded
    return result.reshape(values.shape)


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
