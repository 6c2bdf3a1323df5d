"""ShardWriter: collects bags, and writes a shard when there are enough or the last one was written long ago."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from .bags import Bags
from .codes import Codes, encoded
from .entries import Entry
from .keep import ALL, Keep
from .recipe import Recipe
from .shard import DTYPES, Shard
from .shard_writing import hold_shard, write_shard

SHARD_BYTES = 16 << 20  # of descriptors, at which a shard is written
_SHARD_SECONDS = 20.0  # after which a shard is written even if it is small: an interruption loses no more work
_HEADER_BYTES = 4 << 20  # size of the header at which a shard is written, so that headers are parsed quickly
_BYTES_OF_ENTRY = 250  # per photo in a header, without its name and label
_BYTES_OF_LETTER = 14  # per character of a name in a header, at most: two escapes of seven bytes


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
    keep : Keep
        What the bags are of those that were extracted.
    """

    def __init__(
        self,
        path: Path,
        recipe: Recipe,
        fingerprint: str,
        dim: int,
        dtype: str,
        shard_bytes: int = SHARD_BYTES,
        keep: Keep = ALL,
    ) -> None:
        self.path, self.recipe, self.fingerprint, self.shard_bytes = path, recipe, fingerprint, shard_bytes
        self.keep = keep
        empty: npt.NDArray[Any] = np.empty((0, dim), DTYPES[dtype])
        nothing = Bags(empty, np.zeros(1, np.int64))
        self.nothing: Bags | Codes = encoded(nothing) if dtype == "uint8" else nothing
        self.after = 0  # largest number of a shard in the store
        self.forgotten: list[str] = []
        self.entries: list[Entry] = []
        self.bags: list[Bags | Codes] = []
        self.bytes, self.header = 0, 0  # size of the descriptors, and upper bound of that of the header
        self.since = time.monotonic()
        self.thread = ThreadPoolExecutor(1, thread_name_prefix="patchvote-writer")
        self.writing: Future[Path] | None = None

    def add(self, entry: Entry, bag: Bags | Codes) -> None:
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
            with hold_shard(*self._content([], [], []), keep=self.keep, after=self.after) as path:
                yield Shard.open(path)
        finally:
            if path is not None:
                path.unlink(missing_ok=True)

    def _write(self, entries: list[Entry], bags: list[Bags | Codes], forgotten: list[str]) -> Path:
        return write_shard(*self._content(entries, bags, forgotten), keep=self.keep, after=self.after)

    def _content(self, entries: list[Entry], bags: list[Bags | Codes], forgotten: list[str]) -> tuple[Any, ...]:
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
