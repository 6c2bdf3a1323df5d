"""Read a safetensors file without trusting it, and compute the checksum of its content.

The format is the length of the header, the header (JSON), and the arrays. The size of the header is limited before it
is parsed, and the arrays must lie where the header says, one behind the other up to the end of the file. Arrays are
read in blocks that are still in the processor's cache when their checksum is computed. The safetensors library cannot
do that: it copies each array twice, and takes more than twice as long.
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

from .row_file import blocks_of
from .schema import brief, listed, record, text, whole

_BLOCK = 1 << 20  # bytes read at once; few enough to stay in cache between reading and hashing
_MAX_HEADER = 1 << 26  # bytes of the header; enough for the names and counts of a million photos
_MAX_VALUES = 1 << 20  # values in the header; parsing and checking these takes less than a second

# The types that patchvote writes, by their names in the format; bytes are codes of descriptors, which no model holds.
TYPES = {
    "F16": "float16",
    "F32": "float32",
    "F64": "float64",
    "I8": "int8",
    "I16": "int16",
    "I64": "int64",
    "U8": "uint8",
}
STORED = frozenset(TYPES.values()) - {"uint8"}
_ENTRY = record({"dtype": text(10), "shape": listed(whole(0, 1 << 50)), "data_offsets": listed(whole(0, 1 << 50))})


@dataclasses.dataclass(frozen=True)
class Place:
    """Type, shape and byte range of an array in a file; a type that patchvote does not write has the file's name."""

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
    """Refuse JSON with too many values before it is parsed, so that parsing and checking take little time.

    Raises
    ------
    ValueError
        There are more than a million values.
    """
    if sum(map(data.count, (b",", b"[", b"{"))) > _MAX_VALUES:
        raise ValueError(f"its header has more than {_MAX_VALUES:,} values")


def parse(data: bytes) -> dict[str, Any]:
    """Parse a JSON object.

    Raises
    ------
    ValueError
        The data is not a JSON object, or has too many values.
    """
    check_bounds(data)
    try:
        value = json.loads(data, parse_constant=_refuse_constant)
    except RecursionError:
        raise ValueError("its header is not JSON that can be read: it nests too deeply") from None
    except ValueError as error:
        raise ValueError(f"its header is not JSON ({str(error)[:200]})") from None
    if not isinstance(value, dict):
        raise ValueError("its header is not a table")
    return value


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a number")


def _place(name: str, entry: Any, first: int) -> Place:
    problem = _ENTRY(entry)
    if problem is not None or len(entry["data_offsets"]) != 2 or len(entry["shape"]) > 8:
        raise ValueError(f"its header describes the array {brief(name)} in a way that makes no sense")
    start, stop = entry["data_offsets"]
    dtype = TYPES.get(entry["dtype"], entry["dtype"])
    if start > stop or (
        dtype in TYPES.values() and stop - start != math.prod(entry["shape"]) * np.dtype(dtype).itemsize
    ):
        raise ValueError(f"its header gives the array {brief(name)} a size that does not fit its type and shape")
    return Place(dtype, tuple(entry["shape"]), first + start, first + stop)


def empty(places: Mapping[str, Place]) -> dict[str, npt.NDArray[Any]]:
    """Return uninitialised arrays for some places of a file.

    Raises
    ------
    ValueError
        An array has a type that no model has.
    """
    for name, place in places.items():
        if place.dtype not in STORED:
            raise ValueError(f"the array {brief(name)} has the unsupported type {brief(place.dtype)}")
    return {name: np.empty(place.shape, place.dtype) for name, place in places.items()}


def fill(
    file: io.BufferedReader, places: Mapping[str, Place], arrays: Mapping[str, npt.NDArray[Any]]
) -> Iterator[bytes | npt.NDArray[np.uint8]]:
    """Read arrays from a file, and yield what `contents` yields of them block by block, as soon as it is read.

    Places without an array are read as well, since a checksum covers them, but their bytes are not kept.
    """
    for name, place in sorted(places.items()):
        yield _description(name, place)
        file.seek(place.start)
        data = arrays[name].reshape(-1).view(np.uint8) if name in arrays else None
        passing = np.empty(_BLOCK if data is None else 0, np.uint8)
        for start in range(0, place.stop - place.start, _BLOCK):
            size = min(_BLOCK, place.stop - place.start - start)
            block = passing[:size] if data is None else data[start : start + size]
            if file.readinto(block.data) != len(block):
                raise ValueError("it became shorter while it was read")
            yield block


def contents(arrays: Mapping[str, npt.NDArray[Any]]) -> Iterator[bytes | npt.NDArray[Any]]:
    """Yield what a checksum of arrays covers: name, type, shape and values of each."""
    for name in sorted(arrays):
        yield _description(name, arrays[name])
        yield from blocks_of(arrays[name])


def _description(name: str, array: npt.NDArray[Any] | Place) -> bytes:
    dtype = array.dtype if isinstance(array, Place) else array.dtype.name
    return f"{name} {dtype} {array.shape} ".encode()
