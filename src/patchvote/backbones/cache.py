"""Graphs that were built once, kept in the user's cache folder, and checked each time they are read.

A file's name ends in the SHA-256 of its bytes, so a file is its own witness: one that does not match its name is
damaged, is removed, and the graph is built again. That shows damage, not intent: whoever can write into a shared folder
can write a file with the right name. So a file counts only if it belongs to this user (or to the administrator) and
nobody else may write to it. Where the folder cannot be written, a warning says so and the graph is built each time.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path

import platformdirs

from ..errors import CacheWarning
from ..utils.files import write_atomically
from ..utils.reading import open_regular


def cache_folder() -> Path:
    """Return the folder of the cache: `$PATCHVOTE_CACHE`, or the place where this system keeps caches."""
    return Path(os.environ.get("PATCHVOTE_CACHE") or platformdirs.user_cache_dir("patchvote", appauthor=False))


def cached_graph(key: str, build: Callable[[], bytes]) -> bytes:
    """Return the graph kept under `key`, or build it and keep it."""
    folder = cache_folder() / "networks"
    for path in sorted(folder.glob(f"{key}-*.onnx")):
        with contextlib.suppress(OSError):
            with open_regular(path) as file:
                if not _is_own(os.fstat(file.fileno())):
                    continue
                data = file.read()
            if path.stem == f"{key}-{hashlib.sha256(data).hexdigest()}":
                return data
            path.unlink(missing_ok=True)
    data = build()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{key}-{hashlib.sha256(data).hexdigest()}.onnx"
        write_atomically(path, [data])
        path.chmod(0o644)  # also where new files may be written to by a group
    except OSError as error:  # costs time, not correctness
        _warn(cache_folder(), error)
    return data


def _is_own(status: os.stat_result) -> bool:
    """Whether a file was written by this user, or by the administrator, and can be changed by nobody else."""
    if not hasattr(os, "geteuid"):  # Windows, where the cache lies in the user's own folder
        return True
    return status.st_uid in (os.geteuid(), 0) and not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


def is_writable(folder: Path) -> bool:
    """Whether files can be kept in a folder of a cache, which is made if need be; where not, a warning says so once."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return True
    except OSError as error:
        _warn(cache_folder() if folder.is_relative_to(cache_folder()) else folder.parent, error)
        return False


def _warn(root: Path, error: OSError) -> None:
    # From one place and with one text for each cache, so that the filter of warnings lets the first through alone.
    warnings.warn(
        f"the cache {root} cannot be written ({error.strerror or error}): nothing is kept there, and the next run will "
        "take as long as this one.",
        CacheWarning,
        stacklevel=1,
    )
