"""Write files in the safetensors format from parts of arrays, and read some rows of them.

The writer of the safetensors library needs whole arrays and makes three more copies of each, which took a few percent
of the time of an extraction. Its reader parses the header again for every array.
"""

from __future__ import annotations

import io
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from .row_file import blocks_of, read_at
from .tensors import TYPES, Place

_NAMES = {dtype: name for name, dtype in TYPES.items()}


def header_of(arrays: Mapping[str, Sequence[npt.NDArray[Any]]], metadata: Mapping[str, str]) -> bytes:
    """Return the header of a file.

    Each array is given in parts, which are stacked in the given order; a part may be in a file itself (`RowFile`).
    """
    entries: dict[str, Any] = {"__metadata__": metadata}
    end = 0
    for name, parts in arrays.items():
        start, end = end, end + sum(part.nbytes for part in parts)
        shape = [sum(len(part) for part in parts), *parts[0].shape[1:]] if len(parts) > 1 else [*parts[0].shape]
        entries[name] = {"dtype": _NAMES[parts[0].dtype.name], "shape": shape, "data_offsets": [start, end]}
    header = json.dumps(entries).encode()
    header += b" " * (-len(header) % 8)  # arrays begin at a multiple of 8 bytes
    return len(header).to_bytes(8, "little") + header


def content_of(arrays: Mapping[str, Sequence[npt.NDArray[Any]]]) -> Iterator[memoryview]:
    """Yield the bytes that follow the header."""
    for parts in arrays.values():
        for part in parts:
            for block in blocks_of(part):
                yield np.ascontiguousarray(block).data


def header_bytes(file: io.BufferedReader) -> bytes:
    """Return the bytes of the header of a file that `tensors.read_header` has checked."""
    file.seek(0)
    prefix = file.read(8)
    return prefix + file.read(int.from_bytes(prefix, "little"))


def read_rows(file: io.BufferedReader, place: Place, first: int, rows: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Fill `rows` with consecutive rows of an array, from the row `first` on.

    Raises
    ------
    EOFError
        The file ends before the last of these rows.
    """
    read_at(file, place.start + first * rows.itemsize * math.prod(place.shape[1:]), rows)
    return rows
