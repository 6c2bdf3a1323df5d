"""Checksums that notice a flipped bit in an array or a header.

They guard against failing disks and torn copies, not against people: whoever can write a file can write its checksum,
too. XXH3 reads memory nearly as fast as memory can be read, so that every array can be verified whenever it is read.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt
import xxhash


def checksum(parts: Iterable[bytes | npt.NDArray[Any]]) -> str:
    """Return the checksum of bytes and arrays, one after the other, as 16 hexadecimal digits.

    Only the bytes count: the same numbers in another type, or cut elsewhere, are the caller's to tell apart.

    Examples
    --------
    >>> checksum([b"some", b"thing"]) == checksum([b"something"])
    True
    >>> checksum([np.zeros(3)]) == checksum([np.array([0.0, 0.0, 5e-324])])
    False
    """
    state = xxhash.xxh3_64()
    for part in parts:
        state.update(part if isinstance(part, bytes) else np.ascontiguousarray(part).reshape(-1).view(np.uint8).data)
    return state.hexdigest()
