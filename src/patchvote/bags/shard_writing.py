"""Writing shards: bags are collected, and written when there are enough or the last shard was written long ago.

A shard is a header, arrays and their checksums, streamed to a temporary file that is then renamed.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
import uuid
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ..errors import PhotoError, StoreError
from ..utils.arrays import Moments, to_float32
from ..utils.files import owner, write_and_hold
from ..utils.tensors import content_of, header_of
from .bags import Bags
from .entries import Entry
from .recipe import Recipe
from .shard import COVERED, DIGITS, DTYPES, ENDING, FORMAT, PARTS, Shard, check_of, number_of, shard_files

SHARD_BYTES = 16 << 20  # of descriptors, at which a shard is written
_SHARD_SECONDS = 20.0  # after which a shard is written even if it is small: an interruption loses no more work
_HEADER_BYTES = 4 << 20  # size of the header at which a shard is written, so that headers are parsed quickly
_BYTES_OF_ENTRY = 250  # per photo in a header, without its name and label
_BYTES_OF_LETTER = 14  # per character of a name in a header, at most: two escapes of seven bytes
_ROWS = 256  # descriptors whose moments are computed at once, few enough for the processor's cache


class ShardWriter:
    """Writes bags to a store.

    A shard is written on a separate thread while the next one is collected, so that waiting for the disk costs no time.
    At most one is being written, so memory holds at most two.

    Parameters
    ----------
    path : Path
        Folder of the store.
    recipe, fingerprint, dim
        Recipe and network of the bags, and number of features per descriptor.
    dtype : str
        Type of the descriptors on disk.
    shard_bytes : int
        Size of the descriptors at which a shard is written.
    """

    def __init__(
        self,
        path: Path,
        recipe: Recipe,
        fingerprint: str,
        dim: int,
        dtype: str,
        shard_bytes: int = SHARD_BYTES,
    ) -> None:
        self.path, self.recipe, self.fingerprint, self.shard_bytes = path, recipe, fingerprint, shard_bytes
        empty: npt.NDArray[Any] = np.empty((0, dim), DTYPES[dtype])
        self.nothing = Bags(empty, np.zeros(1, np.int64))
        self.after = 0  # largest number of a shard in the store
        self.forgotten: list[str] = []
        self.entries: list[Entry] = []
        self.bags: list[Bags] = []
        self.bytes, self.header = 0, 0  # size of the descriptors, and upper bound of that of the header
        self.since = time.monotonic()
        self.thread = ThreadPoolExecutor(1, thread_name_prefix="patchvote-writer")
        self.writing: Future[Path] | None = None

    def add(self, entry: Entry, bag: Bags) -> None:
        """Add the bag of a photo."""
        self.entries.append(entry)
        self.bags.append(bag)
        self._count(bag.values.nbytes, _BYTES_OF_ENTRY + _BYTES_OF_LETTER * len(f"{entry.name}{entry.label}"))

    def forget(self, name: str) -> None:
        """Remove a photo from the store."""
        self.forgotten.append(name)
        self._count(0, _BYTES_OF_LETTER * len(name))

    def _count(self, values: int, header: int) -> None:
        self.bytes += values
        self.header += header
        full = self.bytes >= self.shard_bytes or self.header >= _HEADER_BYTES
        if full or time.monotonic() - self.since > _SHARD_SECONDS:
            self.flush()

    def flush(self) -> None:
        """Start to write what was collected; raises the error of the previous shard, if any."""
        self.since = time.monotonic()
        self.wait()
        if self.entries or self.forgotten:
            entries, bags, forgotten = self.entries, self.bags, self.forgotten
            self.entries, self.bags, self.forgotten, self.bytes, self.header = [], [], [], 0, 0
            self.writing = self.thread.submit(self._write, entries, bags, forgotten)

    @contextlib.contextmanager
    def claim(self) -> Iterator[Shard]:
        """Write a shard without bags, to reserve the store for the recipe; it is locked, and removed at the end."""
        path = None
        try:
            with hold_shard(*self._content([], [], []), after=self.after) as path:
                yield Shard.open(path)
        finally:
            if path is not None:
                path.unlink(missing_ok=True)

    def _write(self, entries: list[Entry], bags: list[Bags], forgotten: list[str]) -> Path:
        return write_shard(*self._content(entries, bags, forgotten), after=self.after)

    def _content(self, entries: list[Entry], bags: list[Bags], forgotten: list[str]) -> tuple[Any, ...]:
        bags = bags or [self.nothing]
        return self.path, self.recipe, self.fingerprint, entries, bags, forgotten

    def wait(self) -> None:
        """Wait until the shard that is being written is on disk; raises the error of writing it, if any."""
        writing, self.writing = self.writing, None
        if writing is not None:
            writing.result()

    def close(self) -> None:
        """Write the rest, and wait until it is on disk."""
        try:
            self.flush()
            self.wait()
        finally:
            self.thread.shutdown()


def write_shard(folder: Path, *what: Any, **more: Any) -> Path:
    """Write a shard atomically; see `hold_shard`."""
    with hold_shard(folder, *what, **more) as path:
        return path


@contextlib.contextmanager
def hold_shard(
    folder: Path,
    recipe: Recipe,
    fingerprint: str,
    entries: Sequence[Entry],
    bags: Sequence[Bags],
    forgotten: Sequence[str] = (),
    *,
    after: int = 0,
) -> Iterator[Path]:
    """Write a shard atomically, and keep it locked until the end.

    Its number is the time, which shows the later of two shards with the same photo. If a clock went back, the number
    follows that of the latest shard instead: of those in the folder, by their names, and of `after`, the largest number
    that the caller has read in a header. The file name contains the number and random digits, so that any number of
    processes and machines can write at once.
    """
    metadata = {
        "format": FORMAT,
        "recipe": recipe.to_json(),
        "fingerprint": fingerprint,
        "entries": json.dumps([vars(entry) for entry in entries]),
        "forgotten": json.dumps(list(forgotten)),
        "owner": owner(),
        "id": uuid.uuid4().hex,
    }
    # Without entries, one empty bag sets the shapes.
    ends = np.cumsum([len(bag.values) for bag in bags])[: len(entries)]
    arrays: dict[str, list[npt.NDArray[Any]]] = {
        "values": [bag.values for bag in bags],
        "offsets": [np.concatenate([[0], ends]).astype(np.int64)],
        "boxes": [bag.boxes for bag in bags],
        "level": [bag.level for bag in bags],
        "moments": [_moments(bags)],
    }
    with contextlib.ExitStack() as stack:
        try:
            number = max([time.time_ns(), after + 1, *(number_of(path) + 1 for path in shard_files(folder))])
            if number >= 10**DIGITS:
                raise StoreError(f"{folder} has a file with the number {number - 1}, the largest possible.")
            path = folder / f"{number:020d}-{os.getpid()}-{metadata['id'][:12]}{ENDING}"
            stack.enter_context(write_and_hold(path, _safetensors(arrays, {**metadata, "number": str(number)})))
        except OSError as error:
            raise StoreError(
                f"{folder}: the descriptors of {len(entries)} photos cannot be written: {error.strerror or error}. "
                "What was written before is safe: free some space, then run the same command again to continue."
            ) from error
        yield path


def _safetensors(arrays: dict[str, list[npt.NDArray[Any]]], metadata: dict[str, str]) -> Iterator[bytes | memoryview]:
    """Yield the bytes of a shard: the header, the arrays, and the checksums of both."""
    count = len(arrays["offsets"][0])  # one for the header, and one per photo
    checks = np.zeros(count, np.uint64)
    arrays = {**arrays, "checks": [checks.view(np.int64)]}
    header = header_of(arrays, metadata)
    checks[0] = check_of([header, *(part for name in COVERED for part in arrays[name])])
    parts = [arrays[name][: count - 1] for name in PARTS]
    checks[1:] = [check_of(bag) for bag in zip(*parts, strict=True)]
    yield header
    yield from content_of(arrays)


def _moments(bags: Sequence[Bags]) -> npt.NDArray[np.float64]:
    """Return the moments of all features and of the centres of the boxes, for whoever standardises them later."""
    features, positions, ends = Moments(), Moments(), np.cumsum([len(bag.values) for bag in bags])
    groups = np.searchsorted(ends, np.arange(_ROWS, ends[-1], _ROWS))  # many small bags at once
    with np.errstate(over="ignore", invalid="ignore"):  # moments that are not finite are not used
        for part in np.split(np.arange(len(bags)), np.unique(groups)):
            chosen = [bags[index] for index in part if len(bags[index].values)]
            if chosen:
                values = [bag.values for bag in chosen]
                features.update(to_float32(values[0] if len(values) == 1 else np.concatenate(values)))
                boxes = np.concatenate([bag.boxes for bag in chosen])
                positions.update((boxes[:, :2] + boxes[:, 2:]) / 2)
    if not features.weight:
        return np.zeros((2, bags[0].dim + 2))
    return np.concatenate([features.as_array(), positions.as_array()], axis=1)


def cast(name: str, bag: Bags, dtype: str) -> Bags:
    """Convert the bag of the photo `name` to the dtype of the store.

    Raises
    ------
    PhotoError
        If a descriptor does not fit into that type, or is not finite.
    """
    # NaN if any value is; twice over the values is faster than a copy of their sizes.
    largest = float(np.maximum(bag.values.max(initial=0), -bag.values.min(initial=0)))
    if not largest <= float(np.finfo(DTYPES[dtype]).max):
        advice = "Keep them in float32 (`--dtype float32`), or look" if dtype != "float32" else "Look"
        raise PhotoError(
            name,
            f"a descriptor of it is not finite, or does not fit into {dtype}. {advice} at the network's preprocessing.",
        )
    return bag.astype(DTYPES[dtype])
