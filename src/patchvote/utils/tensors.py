"""Reading a safetensors file of which nothing is believed, and the checksum of what it holds.

The format is a length, that many bytes of JSON, and arrays. The JSON is bounded before it is parsed, and every array
must lie where the JSON says, one behind the other up to the end of the file. Arrays are read in blocks that are still
in the processor's cache when their checksum is taken, which is why this does not go through the library: the library
copies each array twice, and takes more than twice as long.
"""

from __future__ import annotations

import dataclasses
import io
import json
import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from .schema import brief, listed, record, text, whole

_BLOCK = 1 << 20  # bytes; few enough to stay in cache between reading and hashing
_MAX_HEADER = 1 << 26  # bytes of JSON; the names and counts of a million photos
_MAX_VALUES = 1 << 20  # values in it; parsing and checking these takes less than a second

# The types that patchvote writes, by their names in the format.
_TYPES = {"F16": "float16", "F32": "float32", "F64": "float64", "I16": "int16", "I64": "int64"}
_ENTRY = record({"dtype": text(10), "shape": listed(whole(0, 1 << 50)), "data_offsets": listed(whole(0, 1 << 50))})


@dataclasses.dataclass(frozen=True)
class Place:
    """Where an array lies in a file, and what it is; a type that patchvote does not write is named as it came."""

    dtype: str
    shape: tuple[int, ...]
    start: int
    stop: int


def read_header(file: io.BufferedReader) -> tuple[dict[str, str], dict[str, Place]]:
    """Return the metadata of a safetensors file, and the place of each array.

    Raises
    ------
    ValueError
        The file is not in this format, or contradicts itself.
    """
    size = file.seek(0, 2)
    file.seek(0)
    length = int.from_bytes(file.read(8), "little")
    if size < 8 or length > size - 8:
        raise ValueError("it is not in the safetensors format, or is cut off")
    if length > _MAX_HEADER:
        raise ValueError(f"its header has {length:,} bytes, more than {_MAX_HEADER:,}")
    header = parse(file.read(length))
    metadata = header.pop("__metadata__", {})
    if not isinstance(metadata, dict) or not all(isinstance(value, str) for value in metadata.values()):
        raise ValueError("its metadata is not a table of texts")
    places = {name: _place(name, entry, 8 + length) for name, entry in header.items()}
    end = 8 + length
    for place in sorted(places.values(), key=lambda place: (place.start, place.stop)):
        if place.start != end:
            raise ValueError("its arrays do not lie one behind the other")
        end = place.stop
    if end != size:
        raise ValueError(f"its arrays end at byte {end:,}, the file at {size:,}")
    return metadata, places


def check_bounds(data: bytes) -> None:
    """Refuse JSON with more values than can be parsed and checked in bearable time, before it is parsed.

    Raises
    ------
    ValueError
        There are more.
    """
    if sum(map(data.count, (b",", b"[", b"{"))) > _MAX_VALUES:
        raise ValueError(f"its header has more than {_MAX_VALUES:,} values")


def parse(data: bytes) -> dict[str, Any]:
    """Parse JSON that must be a table.

    Raises
    ------
    ValueError
        It is something else, or has too many values.
    """
    check_bounds(data)
    try:
        found = json.loads(data, parse_constant=_no_constant)
    except RecursionError:
        raise ValueError("its header is not JSON that can be read: it nests too deeply") from None
    except ValueError as error:
        raise ValueError(f"its header is not JSON ({str(error)[:200]})") from None
    if not isinstance(found, dict):
        raise ValueError("its header is not a table")
    return found


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a number")


def _place(name: str, entry: Any, first: int) -> Place:
    wrong = _ENTRY(entry)
    if wrong is not None or len(entry["data_offsets"]) != 2 or len(entry["shape"]) > 8:
        raise ValueError(f"its header describes the array {brief(name)} in a way that makes no sense")
    start, stop = entry["data_offsets"]
    dtype = _TYPES.get(entry["dtype"], entry["dtype"])
    if start > stop or (
        dtype in _TYPES.values() and stop - start != math.prod(entry["shape"]) * np.dtype(dtype).itemsize
    ):
        raise ValueError(f"its header says that the array {brief(name)} has another size than it has")
    return Place(dtype, tuple(entry["shape"]), first + start, first + stop)


def empty(places: Mapping[str, Place]) -> dict[str, npt.NDArray[Any]]:
    """Return arrays without content for some places of a file.

    Raises
    ------
    ValueError
        One is of a type that patchvote does not write.
    """
    for name, place in places.items():
        if place.dtype not in _TYPES.values():
            raise ValueError(f"the array {brief(name)} is of the type {brief(place.dtype)}")
    return {name: np.empty(place.shape, place.dtype) for name, place in places.items()}


def fill(
    file: io.BufferedReader, places: Mapping[str, Place], arrays: Mapping[str, npt.NDArray[Any]]
) -> Iterator[bytes | npt.NDArray[np.uint8]]:
    """Read arrays from a file, and yield on the way what `contents` yields of them, cut into blocks."""
    for name in sorted(arrays):
        yield _description(name, arrays[name])
        file.seek(places[name].start)
        data = arrays[name].reshape(-1).view(np.uint8)
        for start in range(0, len(data), _BLOCK):
            block = data[start : start + _BLOCK]
            if file.readinto(block.data) != len(block):
                raise ValueError("it was cut off while it was read")
            yield block


def contents(arrays: Mapping[str, npt.NDArray[Any]]) -> Iterator[bytes | npt.NDArray[Any]]:
    """Yield what a checksum of arrays covers: of each the name, the type, the shape and the numbers."""
    for name in sorted(arrays):
        yield _description(name, arrays[name])
        yield arrays[name]


def _description(name: str, array: npt.NDArray[Any]) -> bytes:
    return f"{name} {array.dtype.name} {array.shape} ".encode()
