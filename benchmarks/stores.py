"""Synthetic stores of any size, for benchmarks of training at scale."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from common import synthetic_bags
from patchvote import Recipe, Store
from patchvote.bags.entries import Entry
from patchvote.bags.shard_writing import ShardWriter

SIZE = 254  # descriptors per photo, as the default recipe has them for square photos
POOL = 200  # different bags in a store; the others are copies of them under other names


def make_store(folder: Path, descriptors: int, classes: int, features: int) -> Store:
    """Write a store of synthetic bags, in float16 as extraction does; photos of a class are spread over it."""
    per_class = max(1, POOL // classes)
    bags, _ = synthetic_bags(classes, per_class, SIZE, features)
    halves = bags.astype(np.float16)
    folder.mkdir()
    shard = 25 * SIZE * features * 2  # bytes: with 1,280 features those of real shards
    writer = ShardWriter(folder, Recipe(), "0" * 16, features, "float16", shard_bytes=shard)
    for index in range(max(classes, descriptors // SIZE)):
        label, copy = index % classes, index // classes % per_class
        writer.add(Entry(f"{index:08d}.jpg", f"{label:04d}", f"{index:064d}"), halves[label * per_class + copy])
    writer.close()
    return Store.open(folder)


def first_shards(store: Store, folder: Path, descriptors: int) -> Path:
    """Make a store of the first shards of another, by links, that holds at least so many descriptors."""
    folder.mkdir()
    held = 0
    for shard in sorted(store.shards, key=lambda shard: shard.entries.names[0]):
        os.link(shard.path, folder / shard.path.name)
        held += int(shard.offsets[-1])
        if held >= descriptors:
            break
    return folder
