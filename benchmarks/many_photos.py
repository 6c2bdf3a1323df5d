"""Opening a store of very many photos: time and memory, in a process of its own.

The photos are synthetic and tiny: one descriptor of four features each, under names and labels as long as real ones.

    python benchmarks/many_photos.py --json many-photos.json
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from common import options, record, write
from patchvote import Bags, Recipe, Store
from patchvote.bags.entries import Entry
from patchvote.bags.shard_writing import ShardWriter
from patchvote.utils.machine import peak_memory

FEATURES, CLASSES = 4, 1000


def make_store(folder: Path, photos: int) -> None:
    """Write a store of tiny bags."""
    folder.mkdir()
    bag = Bags.of([np.ones((1, FEATURES), np.float16)])
    writer = ShardWriter(folder, Recipe(), "0" * 16, FEATURES, "float16")
    for index in range(photos):
        label = f"class-{index % CLASSES:04d}"
        writer.add(Entry(f"photos/{label}/{index:08d}.jpg", label, f"{index:064x}"), bag)
    writer.close()


def opened(folder: Path) -> None:
    """Open the store, and print what it took."""
    start = time.perf_counter()
    store = Store.open(folder)
    seconds = time.perf_counter() - start
    told = {"photos": len(store), "shards": len(store.shards), "seconds": seconds, "gigabytes": peak_memory() / 1e9}
    print(json.dumps(told))


def main() -> None:
    """Run the benchmark."""
    parser = options(__doc__)
    parser.add_argument("--photos", type=int, help="photos of the store (default: 1.3 million)")
    parser.add_argument(
        "--open", type=Path, help="open this store and print what it took (used by the benchmark itself)"
    )
    args = parser.parse_args()
    if args.open is not None:
        opened(args.open)
        return
    photos = args.photos or (20_000 if args.quick else 1_300_000)
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as name:
        folder = Path(name) / "store"
        make_store(folder, photos)
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        command = [sys.executable, __file__, "--open", str(folder)]
        done = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
    took = json.loads(done.stdout)
    if took["photos"] != photos:
        raise SystemExit(f"{took['photos']:,} photos were found, of {photos:,}.")
    words = f"a store of {photos:,} photos in {took['shards']:,} shards"
    write(
        [
            record(f"time to open {words}", took["seconds"], "s", 10),
            record(f"peak memory of opening {words}", took["gigabytes"], "GB", 1),
        ],
        args.json,
    )


if __name__ == "__main__":
    main()
