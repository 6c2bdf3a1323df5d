"""Graphs that were built once, in the user's cache folder, each under a name that ends in the SHA-256 of its bytes.

A damaged file is removed and built again. Whoever may write into a shared folder can also write a file with the right
name, so a file is used only if it belongs to this user or the administrator, and nobody else may change it.
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
from ..utils.files import open_regular, write_atomically


def cache_folder() -> Path:
    """Return the folder of the cache: `$PATCHVOTE_CACHE`, or the system's folder for caches."""
    return Path(os.environ.get("PATCHVOTE_CACHE") or platformdirs.user_cache_dir("patchvote", appauthor=False))


def cached_graph(key: str, build: Callable[[], bytes]) -> bytes:
    """Return the cached graph of this key; build and cache it where there is none."""
    folder = cache_folder() / "networks"
    for path in sorted(folder.glob(f"{key}-*.onnx")):
        with contextlib.suppress(OSError), open_regular(path) as file:
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
        warn_unwritten(cache_folder(), error)
    return data


def warn_unwritten(folder: Path, error: OSError) -> None:
    """Warn that nothing is kept; all warnings have the same line and text, so Python shows only the first."""
    warnings.warn(
        f"the cache {folder} cannot be written ({error.strerror or error}): the work is done without it, and the next "
        "run will take as long as this one.",
        CacheWarning,
        stacklevel=1,
    )


def built_graphs() -> list[Path]:
    """Return the files of the graphs in the cache; links and other files are left out."""
    pattern = re.compile(r".+-[0-9a-f]{64}\.onnx", re.DOTALL)
    files = (cache_folder() / "networks").glob("*.onnx")
    return sorted(path for path in files if pattern.fullmatch(path.name) and path.is_file() and not path.is_symlink())


def _is_own(status: os.stat_result) -> bool:
    if not hasattr(os, "geteuid"):  # Windows, where the cache is in the user's own folder
        return True
    return status.st_uid in (os.geteuid(), 0) and not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
