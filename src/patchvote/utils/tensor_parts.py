"""Files in the safetensors format, written in parts and read in part.

The library's own writer wants each array whole and copies it three times more on its way, which cost some hundredths of
the time of an extraction; its reader parses the header anew for every array that is read.
"""

from __future__ import annotations

import io
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from .tensors import Place

_NAMES = {"float16": "F16", "float32": "F32", "int64": "I64", "int16": "I16"}


def header_of(arrays: Mapping[str, Sequence[npt.NDArray[Any]]], metadata: Mapping[str, str]) -> bytes:
    """Return the header of a file whose arrays are each given in parts, to be stacked in this order."""
    described: dict[str, Any] = {"__metadata__": metadata}
    end = 0
    for name, parts in arrays.items():
        start, end = end, end + sum(part.nbytes for part in parts)
        shape = [sum(len(part) for part in parts), *parts[0].shape[1:]]
        described[name] = {"dtype": _NAMES[parts[0].dtype.name], "shape": shape, "data_offsets": [start, end]}
    line = json.dumps(described).encode()
    line += b" " * (-len(line) % 8)  # arrays begin at a multiple of 8 bytes
    return len(line).to_bytes(8, "little") + line


def content_of(arrays: Mapping[str, Sequence[npt.NDArray[Any]]]) -> Iterator[memoryview]:
    """Give the bytes that follow the header."""
    for parts in arrays.values():
        for part in parts:
            yield np.ascontiguousarray(part).data


def header_bytes(file: io.BufferedReader) -> bytes:
    """Return the header as it stands in a file, which `tensors.read_header` has found to be sound."""
    file.seek(0)
    prefix = file.read(8)
    return prefix + file.read(int.from_bytes(prefix, "little"))


def read_rows(file: io.BufferedReader, place: Place, first: int, rows: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Fill `rows` with as many of an array, from the row `first` on.

    They go past the buffer of the file, which would copy them once more.

    Raises
    ------
    EOFError
        The file ends before them.
    """
    file.raw.seek(place.start + first * rows.itemsize * math.prod(place.shape[1:]), io.SEEK_SET)
    rest = rows.reshape(-1).view(np.uint8).data
    while rest:
        count = file.raw.readinto(rest)
        if not count:
            raise EOFError("the file has become shorter")
        rest = rest[count:]
    return rows
