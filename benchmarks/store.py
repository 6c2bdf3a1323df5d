"""Time of reading bags from a store, and the share of it that verifying their checksums takes.

Bags are read from the page cache, and after the kernel was asked to drop them from it, as the first reader does.

    python benchmarks/store.py --json store.json
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from unittest import mock

import numpy as np

from common import Record, options, record, synthetic_bags, timed, write
from patchvote import Recipe, Store
from patchvote.bags.entries import Entry
from patchvote.bags.shard import Shard
from patchvote.bags.shard_writing import ShardWriter

DESCRIPTORS = 254  # per photo, as the default recipe has them


def make_store(folder: Path, photos: int) -> Store:
    """Write a store of synthetic bags, in float16 as extraction does."""
    writer = ShardWriter(folder, Recipe(), "0" * 16, 1280, "float16")
    bags, _ = synthetic_bags(1, 25, DESCRIPTORS, 1280)
    halves = bags.astype(np.float16)
    for index in range(photos):
        writer.add(Entry(f"{index}.jpg", "a", f"{index:064d}"), halves[index % 25])
    writer.close()
    return Store.open(folder)


def drop_from_cache(folder: Path) -> None:
    """Ask the kernel to drop the pages of all files."""
    for path in folder.iterdir():
        with path.open("rb+") as file:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def measure(folder: Path, photos: int, rounds: int) -> list[Record]:
    """Read all bags with and without verifying, in turns; return what verifying adds to the time of reading."""
    make_store(folder, photos)
    records = []
    for dtype in (np.float16, np.float32):
        for cold in (False, True):
            seconds: dict[bool, list[float]] = {False: [], True: []}
            for _ in range(rounds):
                for verified in (False, True):
                    if cold:
                        drop_from_cache(folder)
                    with mock.patch.object(Shard, "_verify", Shard._verify if verified else lambda *_: None):
                        store = Store.open(folder)
                        seconds[verified].append(
                            timed(lambda: [store.load([i], dtype) for i in range(photos)])[0]  # noqa: B023
                        )
            plain, verifying = min(seconds[False]), min(seconds[True])  # the least disturbed round of each
            name = f"{np.dtype(dtype).name}, from {'disk' if cold else 'the page cache'}"
            added = 100 * (verifying / plain - 1)
            records.append(record(f"time that verifying adds to reading as {name}", added, "%", 2, "reading alone"))
    return records


def main() -> None:
    """Run the benchmark."""
    args = options(__doc__).parse_args()
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as name:  # not where files may live in memory
        write(measure(Path(name), *((50, 3) if args.quick else (1000, 9))), args.json)


if __name__ == "__main__":
    main()
