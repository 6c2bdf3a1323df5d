"""From float16 to float32, several times as fast as numpy's own cast.

Bags are kept as float16, and everything computes in float32, so most of a training's preparation is this cast. The bits
of a half, moved to where float32 has them, are the same number but for a constant factor in the exponent: one product
puts it right, for subnormal numbers too. Only infinity and NaN come out wrong, which is seen and done again.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

_CHUNK = 1 << 18  # numbers whose bits stay in cache
_FACTOR = np.float32(2.0**112)  # the exponents' offsets are 15 and 127
_NOT_EXPONENT = np.int32(-0x70000001)  # clears copies of the sign, where the exponent is longer


def to_float32(
    values: npt.NDArray[Any], out: npt.NDArray[Any] | None = None, *, finite: bool = False
) -> npt.NDArray[Any]:
    """Return numbers of any type as float32; float32 itself is not copied unless `out` is given.

    Where the numbers are known to be `finite`, nobody looks for those that are not, which is a third of the work.

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
        np.bitwise_and(bits, _NOT_EXPONENT, out=bits)
        np.multiply(single, _FACTOR, out=single)
        if not finite and single.size and max(float(single.max()), -float(single.min())) >= 65536:
            single[...] = half
    return result


def all_finite(values: npt.NDArray[Any]) -> bool:
    """Tell whether no number is infinite or NaN; of halves, by their bits, which is several times as fast.

    Examples
    --------
    >>> all_finite(np.array([1.0, 2.0], np.float16)), all_finite(np.array([1.0, np.inf], np.float16))
    (True, False)
    """
    if values.dtype != np.float16:
        return bool(np.isfinite(values).all())
    return not values.size or int(np.bitwise_and(values.view(np.uint16), 0x7C00).max()) < 0x7C00
