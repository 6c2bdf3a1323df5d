"""Shards that are changed: by a flipped bit, or with the checksum that fits."""

from __future__ import annotations

import json
from pathlib import Path

from safetensors import safe_open
from safetensors.numpy import load_file, save_file

from patchvote.bags.shard import COVERED, check_of


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
    check = check_of([new, *(arrays[name] for name in COVERED)])
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


def flip_a_value(path: Path) -> None:
    """Flip a bit of the first descriptors, which follow the header."""
    flip(path, 8 * (8 + int.from_bytes(path.read_bytes()[:8], "little") + 21))
