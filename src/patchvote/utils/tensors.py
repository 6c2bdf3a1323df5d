"""Write safetensors files from parts of arrays, read them without trusting them, and compute checksums.

The size of the header is limited before it is parsed, and arrays must lie where the header says, one behind the other.
The safetensors library copies each array twice, maps files (a file that somebody shortens would end the process), and
has no checksum.
"""

from __future__ import annotations

import dataclasses
import io
import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import xxhash

from .schema import brief, listed, record, text, whole

_MAX_HEADER = 1 << 26  # bytes of the header; enough for the names and counts of a million photos
_MAX_VALUES = 1 << 20  # values in the header; parsing and checking these takes less than a second

# The types that patchvote writes, by their names in the format.
_TYPES = {"F16": "float16", "F32": "float32", "F64": "float64", "I8": "int8", "I16": "int16", "I64": "int64"}
_NAMES = {dtype: name for name, dtype in _TYPES.items()}
_ENTRY = record({"dtype": text(10), "shape": listed(whole(0, 1 << 50)), "data_offsets": listed(whole(0, 1 << 50))})


def checksum(parts: Iterable[bytes | npt.NDArray[Any]]) -> str:
    """Return the XXH3 checksum of concatenated bytes and arrays; it detects failing disks and incomplete copies."""
    state = xxhash.xxh3_64()
    for part in parts:
        state.update(part if isinstance(part, bytes) else np.ascontiguousarray(part).reshape(-1).view(np.uint8).data)
    return state.hexdigest()


def contents(arrays: Mapping[str, npt.NDArray[Any]]) -> Iterator[bytes | npt.NDArray[Any]]:
    """Yield what a checksum of arrays covers: name, type, shape and values of each."""
    for name in sorted(arrays):
        yield f"{name} {arrays[name].dtype.name} {arrays[name].shape} ".encode()
        yield arrays[name]


@dataclasses.dataclass(frozen=True)
class Place:
    """Type, shape and byte range of an array in a file; a type that patchvote does not write has the file's name."""

    dtype: str
    shape: tuple[int, ...]
    start: int
    stop: int


def header_of(arrays: Mapping[str, Sequence[npt.NDArray[Any]]], metadata: Mapping[str, str]) -> bytes:
    """Return the header of a file; the parts of each array are stacked in order."""
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
            yield np.ascontiguousarray(part).data


def read_header(file: io.BufferedReader) -> tuple[dict[str, str], dict[str, Place]]:
    """Return the metadata of a safetensors file, and the place of each array; `ValueError` if it contradicts itself."""
    size = file.seek(0, 2)
    file.seek(0)
    length = int.from_bytes(file.read(8), "little")
    if size < 8 or length > min(size - 8, _MAX_HEADER):
        raise ValueError("it is not in the safetensors format, or is cut off")
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
    """Refuse JSON with more than a million values before it is parsed, so that this takes little time."""
    if sum(map(data.count, (b",", b"[", b"{"))) > _MAX_VALUES:
        raise ValueError(f"its header has more than {_MAX_VALUES:,} values")


def parse(data: bytes) -> dict[str, Any]:
    """Parse an untrusted JSON object; `ValueError` unless it is one in UTF-8 that has no key twice."""
    check_bounds(data)
    try:
        value = json.loads(data.decode(), parse_constant=_refuse_constant, object_pairs_hook=_unique)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"its header is not JSON ({str(error)[:200]})") from None
    if not isinstance(value, dict):
        raise ValueError("its header is not a table")
    return value


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    table = dict(pairs)
    if len(table) != len(pairs):
        raise ValueError("a key stands in it twice")
    return table


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a number")


def _place(name: str, entry: Any, first: int) -> Place:
    if _ENTRY(entry) is not None or len(entry["data_offsets"]) != 2 or len(entry["shape"]) > 8:
        raise ValueError(f"its header describes the array {brief(name)} in a way that makes no sense")
    (start, stop), shape, dtype = entry["data_offsets"], tuple(entry["shape"]), _TYPES.get(entry["dtype"])
    if start > stop or (dtype is not None and stop - start != math.prod(shape) * np.dtype(dtype).itemsize):
        raise ValueError(f"its header gives the array {brief(name)} a size that does not fit its type and shape")
    return Place(dtype or entry["dtype"], shape, first + start, first + stop)


def read_arrays(file: io.BufferedReader, places: Mapping[str, Place]) -> dict[str, npt.NDArray[Any]]:
    """Read arrays from a file; `ValueError` for a type that patchvote does not write."""
    for name, place in places.items():
        if place.dtype not in _NAMES:
            raise ValueError(f"the array {brief(name)} has the unsupported type {brief(place.dtype)}")
    return {name: read_rows(file, place, 0, np.empty(place.shape, place.dtype)) for name, place in places.items()}


def header_bytes(file: io.BufferedReader) -> bytes:
    """Return the bytes of the header of a file that `read_header` has checked."""
    file.seek(0)
    prefix = file.read(8)
    return prefix + file.read(int.from_bytes(prefix, "little"))


def read_rows(file: io.BufferedReader, place: Place, first: int, rows: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Fill `rows` with consecutive rows of an array, from the row `first` on; `ValueError` where the file ends before.

    The file's buffer, one more copy, is bypassed.
    """
    file.raw.seek(place.start + first * rows.itemsize * math.prod(place.shape[1:]), io.SEEK_SET)
    rest = rows.reshape(-1).view(np.uint8).data
    while rest:
        count = file.raw.readinto(rest)
        if not count:
            raise ValueError("the file has become shorter")
        rest = rest[count:]
    return rows
