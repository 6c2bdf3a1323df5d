"""Shards: safetensors files that describe themselves, of which a store consists.

A shard holds the bags of some photos and, in its header, the recipe, the network's fingerprint, and the name, label and
content hash of each photo; it may also list photos that are removed from the store. It is written once, under a
temporary name, and never changed; later shards replace its entries. `checks` holds a checksum of the header and one per
photo's bag; everything that is read is compared with them. `moments` holds the mean of each feature and of the centres
of the boxes, and the sums of squared differences from it, over all descriptors of the shard.
"""

from __future__ import annotations

import dataclasses
import json
import os
import re
import sys
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ..errors import DamagedShardError, PatchvoteError, StoreError
from ..utils.arrays import Moments, to_float32
from ..utils.files import open_regular, write_atomically
from ..utils.tensors import Place, checksum, content_of, header_bytes, header_of, read_arrays, read_header, read_rows
from .bags import Bags
from .recipe import Recipe

FORMAT = "patchvote-bags-2"
ENDING = ".safetensors"
SET_ASIDE = ".damaged"  # appended to the name of a damaged shard
SHARD_BYTES = 16 << 20  # of descriptors, at which a shard is written
_SHARD_SECONDS = 20.0  # after which a shard is written even if it is small: an interruption loses no more work
_SHARD_PHOTOS = 4096  # in a shard at most, so that headers are parsed quickly
_MAX_FEATURES = 1 << 20  # per descriptor; networks have some thousands
_PARTS = ("values", "boxes", "level")  # arrays that a photo has a part of
_COVERED = ("offsets", "moments")  # arrays that the header's checksum covers, in this order


@dataclasses.dataclass(frozen=True)
class Entry:
    """Metadata of one photo in a shard.

    `digest` is the SHA-256 of its content; `size` and `modified` (ns) of its file identify an unchanged file without
    reading it, and are 0 if they cannot be relied on.
    """

    name: str
    label: str | None
    digest: str
    size: int = 0
    modified: int = 0


@dataclasses.dataclass(frozen=True, eq=False)
class Shard:
    """The header of one shard; descriptors stay on disk until `read_into` reads them."""

    path: Path
    recipe: Recipe
    fingerprint: str
    names: list[str]
    labels: list[str | None]
    digests: list[str]
    stamps: npt.NDArray[np.int64]  # size and time of change of each file
    forgotten: list[str]
    places: Mapping[str, Place]
    offsets: npt.NDArray[np.int64]
    checks: npt.NDArray[np.uint64]
    moments: npt.NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.names)

    @property
    def dim(self) -> int:
        """Number of features per descriptor."""
        return self.places["values"].shape[1]

    @property
    def kind(self) -> tuple[object, ...]:
        """Properties that must be equal for bags to be comparable; the path of a network's file need not be."""
        return self.recipe.sampling, self.recipe.activation, self.fingerprint, self.dim

    def entry(self, index: int) -> Entry:
        """Return the metadata of one photo."""
        size, modified = self.stamps[index].tolist()
        return Entry(self.names[index], self.labels[index], self.digests[index], size, modified)

    @classmethod
    def open(cls, path: Path) -> Shard:
        """Read the header of a shard, and verify it; `DamagedShardError`, or `StoreError` if it is no shard."""
        try:
            with open_regular(path) as file:
                metadata, places = read_header(file)
                header = header_bytes(file)
                _check_header(path, metadata, places)
                arrays = read_arrays(file, {name: places[name] for name in ("offsets", "checks", "moments")})
            checks = arrays["checks"].view(np.uint64)
            if check_of([header, *(arrays[name] for name in _COVERED)]) != checks[0]:
                raise DamagedShardError(f"{path.name} is damaged: its header is not what was written.")
            columns = _columns(json.loads(metadata["entries"]))
            forgotten = json.loads(metadata.get("forgotten", "[]"))
            offsets, moments, rows = arrays["offsets"], arrays["moments"], places["values"].shape[0]
            rising = (offsets[0], offsets[-1]) == (0, rows) and not (np.diff(offsets) < 0).any()
            fits = rising and len(offsets) == len(columns[0]) + 1 and not (moments[1] < 0).any()
            if not fits or {*map(type, forgotten)} - {str}:
                raise DamagedShardError(f"{path.name} contradicts itself: its arrays do not fit its header.")
            recipe = Recipe.from_json(metadata["recipe"])
            return cls(path, recipe, metadata["fingerprint"], *columns, forgotten, places, offsets, checks, moments)
        except StoreError:
            raise
        except PatchvoteError as error:  # the checksum is right, so a later version has written it
            raise StoreError(f"{path.name} has metadata this version does not understand: {error!s:.200}") from error
        except OSError as error:
            raise StoreError(f"{path.name} cannot be read: {error.strerror or error}.") from error
        except Exception as error:  # a hostile header can cause any exception
            raise DamagedShardError(f"{path.name} is damaged, or no part of a store: {error!s:.200}") from error

    def bag(self, index: int) -> Bags:
        """Read and verify the bag of one photo, in its type on disk."""
        rows = int(self.offsets[index + 1] - self.offsets[index])
        values: npt.NDArray[Any] = np.empty((rows, self.dim), np.float16)
        bag = Bags(values, np.array([0, rows]), np.empty((rows, 4), np.float32), np.empty(rows, np.int16))
        self.read_into([(index, bag)])
        return bag

    def read_into(self, wanted: Iterable[tuple[int, Bags]]) -> None:
        """Read and verify bags, given their indices and bags of the same sizes, which are overwritten."""
        buffer: npt.NDArray[Any] = np.empty((0, self.dim), np.float16)
        try:
            with open_regular(self.path) as file:
                for index, bag in wanted:
                    rows = len(bag.values)
                    stored: npt.NDArray[Any] = bag.values
                    if stored.dtype != buffer.dtype:  # one buffer for all bags, which stays in the processor's cache
                        buffer = buffer if len(buffer) >= rows else np.empty((rows, self.dim), np.float16)
                        stored = buffer[:rows]
                    parts = [stored, bag.boxes, bag.level]
                    for name, part in zip(_PARTS, parts, strict=True):
                        read_rows(file, self.places[name], int(self.offsets[index]), part)
                    if check_of(parts) != self.checks[1 + index]:
                        raise DamagedShardError(
                            f"{self.path} is damaged: what it holds of {self.names[index]} is not what was written. "
                            "Without this file, `patchvote extract` extracts its photos again."
                        )
                    if stored is not bag.values:
                        to_float32(stored, bag.values)
        except (ValueError, OSError) as error:
            raise StoreError(f"{self.path} can no longer be read: {error}. Was the store moved or changed?") from error


def _check_header(path: Path, metadata: Mapping[str, str], places: Mapping[str, Place]) -> None:
    """Refuse a file that is no shard, or whose arrays do not fit one another, before any array is read."""
    if (version := metadata.get("format", "")) != FORMAT:
        if version.startswith("patchvote-bags-"):
            raise StoreError(f"{path.name} was made by another version of patchvote: extract its photos again.")
        raise ValueError(f"its format is {version[:40]!r}")
    rows, dim = places["values"].shape
    count = places["offsets"].shape[0]
    described = {name: (place.dtype, place.shape) for name, place in places.items()}
    expected = {
        "values": ("float16", (rows, dim)),
        "offsets": ("int64", (count,)),
        "boxes": ("float32", (rows, 4)),
        "level": ("int16", (rows,)),
        "checks": ("int64", (count,)),
        "moments": ("float64", (2, dim + 2)),
    }
    photos = metadata["entries"].count("{")  # a file may claim any size without having it
    least = min(1, photos)  # without photos, there are no features
    if described != expected or not least <= dim <= _MAX_FEATURES or not 1 <= count <= photos + 1:
        raise DamagedShardError(f"{path.name} contradicts itself: its arrays do not fit one another.")


def _columns(rows: list[dict[str, Any]]) -> tuple[list[str], list[str | None], list[str], npt.NDArray[np.int64]]:
    """Return names, labels, digests and stamps, of which each takes less memory than an object per photo."""
    names, labels, digests = ([row[field] for row in rows] for field in ("name", "label", "digest"))
    if not {*map(type, names), *map(type, digests)} <= {str} or not {*map(type, labels)} <= {str, type(None)}:
        raise TypeError("a field of an entry has the wrong type")
    labels = [label if label is None else sys.intern(label) for label in labels]
    stamps = np.array([(row["size"], row["modified"]) for row in rows], np.int64).reshape(-1, 2)
    return names, labels, digests, stamps


def shard_files(folder: Path) -> list[Path]:
    """Return the files of `folder` that are shards by their names, the oldest first."""
    return sorted(folder.glob(f"[!.]*{ENDING}"), key=lambda path: (_number(path), path.name))


def is_own_name(path: Path) -> bool:
    """Whether a file has the name that `write_shard` gives: only such files are set aside."""
    return re.fullmatch(rf"[0-9]{{20}}-[0-9]+-[0-9a-f]{{12}}{re.escape(ENDING)}", path.name) is not None


def _number(path: Path) -> int:
    return int(path.name[:20]) if is_own_name(path) else 0


def check_of(parts: Iterable[bytes | npt.NDArray[Any]]) -> int:
    """Return the checksum of bytes and arrays as a number."""
    return int(checksum(parts), 16)


# --- writing ----------------------------------------------------------------------------------------------------------


class ShardWriter:
    """Collects bags, and writes a shard when there are enough or the last one was written long ago.

    A shard is written on a separate thread while the next one is collected. At most one is being written, so memory
    holds at most two.
    """

    def __init__(self, path: Path, recipe: Recipe, fingerprint: str, dim: int, shard_bytes: int = SHARD_BYTES) -> None:
        self.path, self.recipe, self.fingerprint = path, recipe, fingerprint
        self._dim, self._shard_bytes, self._bytes, self._since = dim, shard_bytes, 0, time.monotonic()
        self._forgotten: list[str] = []
        self._entries: list[Entry] = []
        self._bags: list[Bags] = []
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="patchvote-writer")
        self._writing: Future[Path] | None = None

    def add(self, entry: Entry, bag: Bags) -> None:
        """Add the bag of a photo, in float16."""
        self._entries.append(entry)
        self._bags.append(bag)
        self._bytes += bag.values.nbytes
        self._flush_if_full()

    def forget(self, name: str) -> None:
        """Remove a photo from the store."""
        self._forgotten.append(name)
        self._flush_if_full()

    def _flush_if_full(self) -> None:
        full = self._bytes >= self._shard_bytes or len(self._entries) + len(self._forgotten) >= _SHARD_PHOTOS
        if full or time.monotonic() - self._since > _SHARD_SECONDS:
            self.flush()

    def flush(self) -> None:
        """Start to write what was collected; raises the error of the previous shard, if any."""
        self._since = time.monotonic()
        self._wait()
        if self._entries or self._forgotten:
            empty: npt.NDArray[Any] = np.empty((0, self._dim), np.float16)
            bags = self._bags or [Bags(empty, np.zeros(1, np.int64))]
            what = self.path, self.recipe, self.fingerprint, self._entries, bags, self._forgotten
            self._entries, self._bags, self._forgotten, self._bytes = [], [], [], 0
            self._writing = self._thread.submit(write_shard, *what)

    def _wait(self) -> None:
        writing, self._writing = self._writing, None
        if writing is not None:
            writing.result()

    def finish(self) -> None:
        """Write the rest, and wait until it is on disk."""
        self.flush()
        self._wait()

    def close(self) -> None:
        """Write the rest, and end."""
        try:
            self.finish()
        finally:
            self._thread.shutdown()


def write_shard(
    folder: Path,
    recipe: Recipe,
    fingerprint: str,
    entries: Sequence[Entry],
    bags: Sequence[Bags],
    forgotten: Sequence[str] = (),
) -> Path:
    """Write a shard atomically, and return its path. Without entries, one empty bag sets the shapes.

    Its name begins with the time, or with the number after the largest in the folder, which shows the later of two
    shards with the same photo; process and random digits let any number of processes and machines write at once.
    """
    metadata = {
        "format": FORMAT,
        "recipe": recipe.to_json(),
        "fingerprint": fingerprint,
        "entries": json.dumps([vars(entry) for entry in entries]),
        "forgotten": json.dumps(list(forgotten)),
    }
    ends = np.cumsum([len(bag.values) for bag in bags])[: len(entries)]
    arrays: dict[str, list[npt.NDArray[Any]]] = {
        "values": [bag.values for bag in bags],
        "offsets": [np.concatenate([[0], ends]).astype(np.int64)],
        "boxes": [bag.boxes for bag in bags],
        "level": [bag.level for bag in bags],
        "moments": [_moments(bags)],
    }
    try:
        number = max([time.time_ns(), *(_number(path) + 1 for path in shard_files(folder))])
        path = folder / f"{number:020d}-{os.getpid()}-{uuid.uuid4().hex[:12]}{ENDING}"
        write_atomically(path, _safetensors(arrays, metadata))
    except OSError as error:
        raise StoreError(
            f"{folder}: the descriptors of {len(entries)} photos cannot be written: {error.strerror or error}. "
            "What was written before is safe: free some space, then run the same command again to continue."
        ) from error
    return path


def _safetensors(arrays: dict[str, list[npt.NDArray[Any]]], metadata: dict[str, str]) -> Iterator[bytes | memoryview]:
    """Yield the bytes of a shard: the header, the arrays, and the checksums of both."""
    count = len(arrays["offsets"][0])  # one for the header, and one per photo
    checks = np.zeros(count, np.uint64)
    arrays = {**arrays, "checks": [checks.view(np.int64)]}
    header = header_of(arrays, metadata)
    checks[0] = check_of([header, *(part for name in _COVERED for part in arrays[name])])
    parts = [arrays[name][: count - 1] for name in _PARTS]
    checks[1:] = [check_of(bag) for bag in zip(*parts, strict=True)]
    yield header
    yield from content_of(arrays)


def _moments(bags: Sequence[Bags]) -> npt.NDArray[np.float64]:
    """Return the moments of all features and of the centres of the boxes, for whoever standardises them later."""
    features, positions = Moments(), Moments()
    with np.errstate(over="ignore", invalid="ignore"):  # moments that are not finite are not used
        for bag in bags:
            if len(bag.values):
                features.update(to_float32(bag.values))
                positions.update((bag.boxes[:, :2] + bag.boxes[:, 2:]) / 2)
    if not features.weight:
        return np.zeros((2, bags[0].dim + 2))
    return np.concatenate([features.as_array(), positions.as_array()], axis=1)
