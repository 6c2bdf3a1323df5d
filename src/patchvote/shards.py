"""One shard of a store: a safetensors file that describes itself.

It holds the bags of some photos (descriptors, offsets, boxes, levels) and, in its header, everything needed to make
sense of them: the recipe, the network's fingerprint, and of each photo its name, label and content hash. It may also
name photos that the store is to forget. A shard is written once and never changed; later ones outdo it.
"""

from __future__ import annotations

import dataclasses
import json
import os
import time
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError, safe_open

from .bags import Bags
from .errors import PhotoError, StoreError
from .files import write_atomically
from .reading import check_regular
from .recipe import Recipe

FORMAT = "patchvote-bags-1"
ENDING = ".safetensors"
DTYPES: dict[str, type[np.float16] | type[np.float32]] = {"float16": np.float16, "float32": np.float32}


@dataclasses.dataclass(frozen=True)
class Entry:
    """What a shard knows of one photo.

    Parameters
    ----------
    name, label
        As in `Photo`.
    digest : str
        SHA-256 of the content that was extracted.
    size, modified : int
        Size in bytes and time of the last change (ns) of the file, by which an unchanged file is known without reading
        it; 0 where they cannot be relied on.
    """

    name: str
    label: str | None
    digest: str
    size: int = 0
    modified: int = 0

    def is_sound(self) -> bool:
        """Whether every field has the type that it must have; what was read from a file may have others."""
        texts, numbers = (self.name, self.digest), (self.size, self.modified)
        return (
            all(isinstance(text, str) for text in texts)
            and all(isinstance(number, int) for number in numbers)
            and (self.label is None or isinstance(self.label, str))
        )


@dataclasses.dataclass(frozen=True, eq=False)
class Shard:
    """The header of one shard; the descriptors stay on disk until `read` asks for some."""

    path: Path
    recipe: Recipe
    fingerprint: str
    entries: tuple[Entry, ...]
    offsets: npt.NDArray[np.int64]
    dim: int
    dtype: str
    forgotten: tuple[str, ...] = ()

    @property
    def kind(self) -> tuple[object, ...]:
        """What must be equal for bags to be comparable; the path of a network's file need not be."""
        return self.recipe.sampling, self.recipe.activation, self.fingerprint, self.dim

    @classmethod
    def open(cls, path: Path) -> Shard:
        """Read the header of a shard.

        Raises
        ------
        StoreError
            The file is damaged, or is not a shard.
        """
        try:
            check_regular(path)
            with safe_open(path, framework="numpy") as file:
                told = file.metadata() or {}
                if told.get("format") != FORMAT:
                    raise StoreError(f"{path.name} is of the format {told.get('format')!r}, not {FORMAT!r}.")
                values = file.get_slice("values")
                rows, dim = values.get_shape()
                offsets = file.get_tensor("offsets")
                shapes = file.get_slice("boxes").get_shape(), file.get_slice("level").get_shape()
                shard = cls(
                    path,
                    Recipe.from_json(told["recipe"]),
                    told["fingerprint"],
                    tuple(Entry(**entry) for entry in json.loads(told["entries"])),
                    offsets,
                    dim,
                    {"F16": "float16", "F32": "float32"}[values.get_dtype()],
                    tuple(json.loads(told.get("forgotten", "[]"))),
                )
            if (
                offsets.dtype != np.int64
                or shapes != ([rows, 4], [rows])
                or offsets.shape != (len(shard.entries) + 1,)
                or offsets[0] != 0
                or offsets[-1] != rows
                or (np.diff(offsets) < 0).any()
                or not all(entry.is_sound() for entry in shard.entries)
                or not all(isinstance(name, str) for name in shard.forgotten)
            ):
                raise StoreError(f"{path.name} contradicts itself: its arrays do not fit its header.")
            return shard
        except Exception as error:  # whatever a hostile header can make a reader raise
            raise StoreError(f"{path.name} is damaged or not a shard: {error}") from error

    def read(self, start: int, stop: int) -> Bags:
        """Read the bags of the photos from `start` to `stop`."""
        first, last = int(self.offsets[start]), int(self.offsets[stop])
        try:
            with safe_open(self.path, framework="numpy") as file:
                values, boxes, level = (file.get_slice(key)[first:last] for key in ("values", "boxes", "level"))
        except (SafetensorError, OSError) as error:
            raise StoreError(f"{self.path} can no longer be read: {error}. Was the store moved or changed?") from error
        return Bags(values, self.offsets[start : stop + 1] - first, boxes, level)


def write_shard(
    folder: Path,
    recipe: Recipe,
    fingerprint: str,
    entries: Sequence[Entry],
    bags: Sequence[Bags],
    forgotten: Sequence[str] = (),
) -> Path:
    """Write a shard, whole or not at all.

    The name begins with the time, so that of two shards with the same photo the newer one is known, and ends in a
    random number, so that any number of processes and machines can write at once. Where a clock went back, the number
    goes on from the newest shard instead.
    """
    told = {
        "format": FORMAT,
        "recipe": recipe.to_json(),
        "fingerprint": fingerprint,
        "entries": json.dumps([dataclasses.asdict(entry) for entry in entries]),
        "forgotten": json.dumps(list(forgotten)),
    }
    ends = np.cumsum([len(bag.values) for bag in bags])[
        : len(entries)
    ]  # without entries, one empty bag gives the shape
    offsets = np.concatenate([[0], ends]).astype(np.int64)
    arrays: dict[str, list[npt.NDArray[Any]]] = {
        "values": [bag.values for bag in bags],
        "offsets": [offsets],
        "boxes": [bag.boxes for bag in bags],
        "level": [bag.level for bag in bags],
    }
    try:
        number = max([time.time_ns(), *(_number(path) + 1 for path in shard_files(folder))])
        path = folder / f"{number:020d}-{os.getpid()}-{uuid.uuid4().hex[:12]}{ENDING}"
        write_atomically(path, _safetensors(arrays, told))
    except OSError as error:
        raise StoreError(
            f"{folder}: the bags of {len(entries)} photos cannot be written: {error.strerror}. What was written before "
            "is safe: make room, then run the same command again to go on."
        ) from error
    return path


def shard_files(folder: Path) -> list[Path]:
    """Files of `folder` that are shards by their name, oldest first."""
    return sorted(folder.glob(f"[!.]*{ENDING}"))


def _number(path: Path) -> int:
    first = path.name.partition("-")[0]
    return int(first) if first.isascii() and first.isdigit() and len(first) == 20 else 0


def _safetensors(arrays: dict[str, list[npt.NDArray[Any]]], told: dict[str, str]) -> Iterator[bytes | memoryview]:
    """Give the bytes of a safetensors file whose arrays are each given in parts, to be stacked.

    The library's own writer wants each array whole and copies it three times more on its way, which cost some
    hundredths of the time of an extraction. The format is a length, a line of JSON and the arrays; `Shard` reads it
    with the library.
    """
    names = {"float16": "F16", "float32": "F32", "int64": "I64", "int16": "I16"}
    header: dict[str, Any] = {"__metadata__": told}
    end = 0
    for name, parts in arrays.items():
        start, end = end, end + sum(part.nbytes for part in parts)
        shape = [sum(len(part) for part in parts), *parts[0].shape[1:]]
        header[name] = {"dtype": names[parts[0].dtype.name], "shape": shape, "data_offsets": [start, end]}
    line = json.dumps(header).encode()
    line += b" " * (-len(line) % 8)  # arrays begin at a multiple of 8 bytes
    yield len(line).to_bytes(8, "little")
    yield line
    for parts in arrays.values():
        for part in parts:
            yield np.ascontiguousarray(part).data


def cast(name: str, bag: Bags, dtype: str) -> Bags:
    """Bring the bag of the photo `name` to the type in which it is kept.

    Raises
    ------
    PhotoError
        A descriptor does not fit into that type, or is not finite.
    """
    largest = float(np.abs(bag.values).max(initial=0))  # NaN where any number is
    if not largest <= float(np.finfo(DTYPES[dtype]).max):
        raise PhotoError(
            name,
            f"a descriptor of it is not finite, or does not fit into {dtype}. Keep descriptors in float32, and look at "
            "the network's preprocessing.",
        )
    return bag.astype(DTYPES[dtype])
