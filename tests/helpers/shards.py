"""Shards of made-up bags, and shards that are changed: by a flipped bit, or with the checksum that fits."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

from patchvote import Bags, Recipe, Store
from patchvote.bags.shards import _COVERED, Entry, check_of, write_shard


def make_bag(seed: int, size: int | None = None, dim: int = 5) -> Bags:
    rng = np.random.default_rng(seed)
    n = size or int(rng.integers(1, 9))
    boxes = np.sort(rng.random((n, 4), dtype=np.float32))
    return Bags(rng.normal(size=(n, dim)).astype(np.float16), np.array([0, n]), boxes, rng.integers(0, 3, n))


def put(folder: Path, seeds, label=lambda seed: "ab"[seed % 2], recipe=None, fingerprint="f", **kwargs) -> Path:
    """Write a shard of some bags of `make_bag`."""
    folder.mkdir(exist_ok=True)
    entries = [Entry(f"{seed:03d}.jpg", label(seed), f"digest {seed}") for seed in seeds]
    bags = [make_bag(seed, **kwargs) for seed in seeds]
    return write_shard(folder, recipe or Recipe(), fingerprint, entries, bags)


def same(a: Bags, b: Bags) -> None:
    for name in ("values", "offsets", "boxes", "level"):
        np.testing.assert_array_equal(getattr(a, name), getattr(b, name))


def assert_same_bags(path: Path, expected: Path) -> None:
    """Compare the bags of two stores, bit for bit."""
    store, reference = Store.open(path), Store.open(expected)
    assert store.names == reference.names
    assert [entry.digest for entry in store.entries] == [entry.digest for entry in reference.entries]
    np.testing.assert_array_equal(store.labels, reference.labels)
    same(store.load(dtype=np.float16)[0], reference.load(dtype=np.float16)[0])


def changed_header(path: Path, change) -> None:
    """Change the header of a shard, and give it the checksum that fits."""
    arrays, data = load_file(path), path.read_bytes()
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + length])
    change(header)
    line = json.dumps(header).encode()
    line += b" " * (-len(line) % 8)
    new = len(line).to_bytes(8, "little") + line
    content = bytearray(data[8 + length :])
    place = header["checks"]["data_offsets"][0]
    check = check_of([new, *(arrays[name] for name in _COVERED)])
    content[place : place + 8] = check.to_bytes(8, "little")
    path.write_bytes(new + content)


def rewrite(path: Path, arrays=None, metadata=None) -> None:
    """Write a shard anew with other arrays or metadata, and the checksum of the header that fits."""
    with safe_open(path, "np") as opened:
        told = opened.metadata()
    save_file(load_file(path) | (arrays or {}), path, told | (metadata or {}))
    changed_header(path, lambda header: None)


def flip(path: Path, bit: int) -> None:
    data = bytearray(path.read_bytes())
    data[bit // 8] ^= 1 << bit % 8
    path.write_bytes(data)
