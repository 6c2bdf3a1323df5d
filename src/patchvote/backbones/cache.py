"""Graphs that were built once, kept in the user's cache folder, and checked each time they are read.

A file's name ends in the SHA-256 of its bytes, so a file is its own witness: one that does not match its name is
damaged, is removed, and the graph is built again. Where the folder cannot be written, the graph is built each time.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Callable
from pathlib import Path

import platformdirs

from ..files import write_atomically


def cache_folder() -> Path:
    """Return the folder of the cache: `$PATCHVOTE_CACHE`, or the place where this system keeps caches."""
    return Path(os.environ.get("PATCHVOTE_CACHE") or platformdirs.user_cache_dir("patchvote", appauthor=False))


def cached_graph(key: str, build: Callable[[], bytes]) -> bytes:
    """Return the graph kept under `key`, or build it and keep it."""
    folder = cache_folder() / "networks"
    for path in sorted(folder.glob(f"{key}-*.onnx")):
        with contextlib.suppress(OSError):
            data = path.read_bytes()
            if path.stem == f"{key}-{hashlib.sha256(data).hexdigest()}":
                return data
            path.unlink(missing_ok=True)
    data = build()
    with contextlib.suppress(OSError):  # a cache that cannot be written costs time, not correctness
        folder.mkdir(parents=True, exist_ok=True)
        write_atomically(folder / f"{key}-{hashlib.sha256(data).hexdigest()}.onnx", [data])
    return data
