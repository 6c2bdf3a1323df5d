"""Graphs that were built once, kept in the user's cache folder, and verified each time they are read.

The name of a file ends in the SHA-256 of its bytes. A file that does not match its name is damaged: it is removed, and
the graph is built again. That detects damage, not attacks: whoever can write into a shared folder can write a file with
the right name. So a file is used only if it belongs to this user or to the administrator, and nobody else may write to
it. Where the folder is not writable, there is a warning, and the graph is built each time.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import stat
import warnings
from collections.abc import Callable
from pathlib import Path

import platformdirs

from ..errors import CacheWarning
from ..utils.files import write_atomically
from ..utils.reading import open_regular

_GRAPH = re.compile(r".+-[0-9a-f]{64}\.onnx", re.DOTALL)  # names of files: the key, and the SHA-256 of the content


def cache_folder() -> Path:
    """Return the folder of the cache: `$PATCHVOTE_CACHE`, or the system's folder for caches."""
    return Path(os.environ.get("PATCHVOTE_CACHE") or platformdirs.user_cache_dir("patchvote", appauthor=False))


def cached_graph(key: str, build: Callable[[], bytes]) -> bytes:
    """Return the cached graph of this key; build and cache it where there is none."""
    folder = cache_folder() / "networks"
    cached: list[Path] = []
    with contextlib.suppress(OSError):  # a folder that may not be entered
        cached = sorted(folder.glob(f"{key}-*.onnx"))
    for path in cached:
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
        path.chmod(0o644)  # also where the umask lets a group write to new files
    except OSError as error:  # the cache saves time only
        _warn(cache_folder(), error)
    return data


def built_graphs() -> list[Path]:
    """Return the files of the graphs in the cache; links and other files are left out."""
    files = (cache_folder() / "networks").glob("*.onnx")
    return sorted(path for path in files if _GRAPH.fullmatch(path.name) and path.is_file() and not path.is_symlink())


def _is_own(status: os.stat_result) -> bool:
    """Return whether a file belongs to this user or to the administrator, and nobody else can change it."""
    if not hasattr(os, "geteuid"):  # Windows, where the cache lies in the user's own folder
        return True
    return status.st_uid in (os.geteuid(), 0) and not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


def _warn(root: Path, error: OSError) -> None:
    # All warnings about a cache have the same line and text, so Python's filter shows only the first.
    warnings.warn(
        f"the cache {root} cannot be written ({error.strerror or error}): nothing is kept there, and the next run will "
        "take as long as this one.",
        CacheWarning,
        stacklevel=1,
    )
