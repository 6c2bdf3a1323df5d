"""What is in a cache of bags, for people, and how it is cleared."""

from __future__ import annotations

import collections
import dataclasses
import datetime
from pathlib import Path
from typing import Any

from ..errors import PatchvoteError
from ..utils.counting import counted
from ..utils.temporary import remove_leavings, used_folder
from .cache_files import CacheFile, files_in, folders_in, remove
from .cached_stores import opened_store
from .keep import in_words
from .lending import digests_in


@dataclasses.dataclass(frozen=True)
class CachedStore:
    """One store of a cache.

    Parameters
    ----------
    folder : Path
        Its folder.
    size : int
        Bytes of its files.
    used : float
        Time of its last use, in seconds since 1970.
    network, mode, keeps : str
        Network and mode of the recipe, and what is kept of each photo, in words; empty if none of its shards can be
        read.
    digests : frozenset of str
        Digests of the photos of which it has bags.
    """

    folder: Path
    size: int
    used: float
    network: str = ""
    mode: str = ""
    keeps: str = ""
    digests: frozenset[str] = frozenset()

    def plain(self) -> dict[str, Any]:
        """Return it as plain values, for JSON."""
        used = datetime.datetime.fromtimestamp(self.used, datetime.UTC).isoformat(timespec="seconds")
        what = {"network": self.network, "mode": self.mode, "keeps": self.keeps, "photos": len(self.digests)}
        return {"folder": str(self.folder), **what, "bytes": self.size, "used": used}

    def sentence(self, now: float) -> str:
        """Return it in words; `now` is the time in seconds since 1970."""
        if not self.keeps:
            return f"{self.folder.name}: cannot be read"
        photos = counted(len(self.digests), "photo")
        return f"{self.network}, {self.mode}: {self.keeps}, {photos}, last used {ago(now - self.used)}"


def stores_in(root: Path) -> list[CachedStore]:
    """Return the stores of a cache, the one that was used last first."""
    files: dict[Path, list[CacheFile]] = collections.defaultdict(list)
    for file in files_in(root):
        files[file.path.parent].append(file)
    return sorted((_described(folder, own) for folder, own in files.items()), key=lambda one: -one.used)


def _described(folder: Path, files: list[CacheFile]) -> CachedStore:
    size, used, store = sum(file.size for file in files), max(file.used for file in files), opened_store(folder)
    if store is None:
        return CachedStore(folder, size, used)
    what = store.recipe.network, store.recipe.mode, in_words(store.keep), frozenset(digests_in(store))
    return CachedStore(folder, size, used, *what)


def ago(seconds: float) -> str:
    """Return in words how long ago something was.

    Examples
    --------
    >>> ago(20), ago(7200), ago(86400 * 12)
    ('just now', '2 hours ago', '12 days ago')
    """
    for size, word in ((86400, "day"), (3600, "hour"), (60, "minute")):
        if seconds >= size:
            count = int(seconds // size)
            return f"{count:,} {word}{'s' * (count > 1)} ago"
    return "just now"


def clear_bags(root: Path) -> int:
    """Remove the bags of a cache; return how many bytes were removed.

    Raises
    ------
    PatchvoteError
        Another command uses the cache.
    """
    if not root.is_dir():
        return 0
    with used_folder(root) as alone:
        if alone() is False:
            raise PatchvoteError(f"another command uses {root}: nothing was removed. Try again when it has ended.")
        for folder in folders_in(root):
            remove_leavings(folder)
        return remove(list(files_in(root)))
