"""The files of a cache of bags: which there are, how many bytes they may take, and which are removed first.

A cache is a folder of stores. Only shards in folders of a cache count, by the names that patchvote gives them, and
damaged shards that were set aside. Nothing else is ever removed, and no link is followed. A shard is removed as a
whole: the one that was used longest ago first. Its time of change says when it was used.

A command that uses the cache holds a lock. While another command does, nothing is removed: the last one cuts the cache
down to its bound.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import re
import stat
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from ..backbones.cache import cache_folder
from ..errors import PatchvoteError
from ..utils.remote import RemotePath, place
from ..utils.temporary import used_folder
from .shard import SET_ASIDE, is_own_name

# Bytes of all bags in the user's cache: what moments of 150,000 photos take, or the whole bags of 9,000.
DEFAULT_BOUND = 5_000_000_000
VARIABLE = "PATCHVOTE_CACHE_SIZE"
_STORE = re.compile(r".+-[0-9a-f]{12}(-.+)?", re.DOTALL)  # names of the folders of a cache (`cache.base_of`)
_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}
_UNUSED = 86400.0  # seconds without use after which a shard may be removed where the system has no locks


@dataclasses.dataclass(frozen=True)
class CacheFile:
    """One file of a cache.

    Parameters
    ----------
    path : Path
        The file.
    size : int
        Its size in bytes.
    used : float
        Time of its last use, in seconds since 1970.
    """

    path: Path
    size: int
    used: float


def root_of(cache: str | Path | bool | None) -> Path | None:
    """Return the folder of a cache: the user's for None or True; None for False, and where nothing may be kept.

    Raises
    ------
    PatchvoteError
        The folder is on another file system, where there are no locks and times of use cannot be set.
    """
    if cache is False or bound_of(cache) == 0:
        return None
    root = bags_folder() if isinstance(cache, bool | None) else place(cache)
    if isinstance(root, RemotePath):
        raise PatchvoteError(
            f"the cache must be a folder of this machine, got {root}. A store may be there: `patchvote extract PHOTOS "
            "STORE`."
        )
    return root


def bags_folder() -> Path:
    """Return the folder of the bags in the user's cache."""
    return cache_folder() / "bags"


def bound_of(cache: str | Path | bool | None = None) -> int | None:
    """Return how many bytes a cache may take, None for any number.

    `PATCHVOTE_CACHE_SIZE` says it for every cache. Without it, the user's has a default, and a folder that the user
    names for the purpose has no bound.
    """
    text = os.environ.get(VARIABLE, "")
    if text.strip():
        return parse_size(text)
    return DEFAULT_BOUND if isinstance(cache, bool | None) else None


def parse_size(text: str) -> int | None:
    """Return a number of bytes, None for "unlimited".

    Raises
    ------
    PatchvoteError
        It is not a size.

    Examples
    --------
    >>> parse_size("500 MB"), parse_size("1.5g"), parse_size("0"), parse_size("unlimited")
    (500000000, 1500000000, 0, None)
    """
    plain = text.strip().lower()
    if plain == "unlimited":
        return None
    match = re.fullmatch(r"(\d{1,18}(?:\.\d{1,9})?)\s*([kmgt]?)b?", plain, re.ASCII)
    if match is None:
        raise PatchvoteError(
            f"{VARIABLE} must be a size such as 500MB or 5GB, 0 to keep nothing, or unlimited, got {text[:40]!r}."
        )
    return int(float(match[1]) * _UNITS[match[2]])


@contextlib.contextmanager
def using(root: Path, bound: int | None) -> Iterator[None]:
    """Keep everything in a cache while the block runs; then remove what is beyond its bound, unless others use it."""
    with used_folder(root) as alone:
        yield
        if bound is not None and (is_alone := alone()) is not False:
            trim(root, bound, 0.0 if is_alone else _UNUSED)


def trim(root: Path, bound: int, unused: float = 0.0) -> int:
    """Remove the files that were used longest ago until the rest fits the bound; return how many bytes were removed.

    Parameters
    ----------
    root : Path
        Folder of the cache; the caller is alone in it.
    bound : int
        Bytes that may stay.
    unused : float
        Seconds without use from which on a file may be removed.
    """
    files = sorted(files_in(root), key=lambda file: file.used)
    excess, now = sum(file.size for file in files) - bound, time.time()
    chosen: list[CacheFile] = []
    for file in files:
        if excess <= 0 or now - file.used < unused:
            break
        chosen.append(file)
        excess -= file.size
    return remove(chosen)


def remove(files: Iterable[CacheFile]) -> int:
    """Remove files of a cache, and folders that are empty then; return how many bytes were removed."""
    removed, folders = 0, set()
    for file in files:
        with contextlib.suppress(OSError):
            file.path.unlink()
            removed += file.size
        folders.add(file.path.parent)
    for folder in folders:
        with contextlib.suppress(OSError):  # not empty
            folder.rmdir()
    return removed


def files_in(root: Path) -> Iterator[CacheFile]:
    """Yield the files of a cache that patchvote has written."""
    for folder in folders_in(root):
        with contextlib.suppress(OSError), os.scandir(folder) as entries:
            for entry in entries:
                with contextlib.suppress(OSError):
                    status = entry.stat(follow_symlinks=False)
                    if stat.S_ISREG(status.st_mode) and _is_shard(entry.name):
                        yield CacheFile(folder / entry.name, status.st_size, status.st_mtime)


def folders_in(root: Path) -> list[Path]:
    """Return the folders of the stores of a cache, by their names; other stores in the same place and links are not."""
    with contextlib.suppress(OSError), os.scandir(root) as entries:
        folders = [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
        return sorted(root / name for name in folders if _STORE.fullmatch(name))
    return []


def _is_shard(name: str) -> bool:
    """Whether a file has the name of a shard, or of a damaged one that was set aside."""
    return is_own_name(Path(name)) or (
        name.endswith(SET_ASIDE) and is_own_name(Path(re.sub(r"(\.\d+)?$", "", name.removesuffix(SET_ASIDE))))
    )


def touch(paths: Iterable[Path]) -> None:
    """Note that files of a cache are used now."""
    for path in paths:
        with contextlib.suppress(OSError):
            os.utime(path)
