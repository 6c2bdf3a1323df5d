"""The cache of bags: what is kept of a photo is a pure function of the photo and the recipe.

Each photo has one file, named after the digest of its content, in the folder of its kind: network, recipe, and what is
kept of a bag. So there is no index and no lock. Any number of processes may use the cache at once: two that do the same
work write the same bytes. A file is written under a temporary name and renamed, and begins with a checksum of its name
and content. A damaged file is removed, and its photo extracted again. The time of change of a file is that of its last
use: the files that were used longest ago are removed first.

    <root>/<network>-<mode>-<12 hex digits>/<kept.name>/<SHA-256 of the photo>.bag
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import datetime
import functools
import hashlib
import os
import re
import stat
import tempfile
import time
from collections.abc import Container, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import xxhash
from safetensors import SafetensorError
from safetensors.numpy import load, save

from ..errors import PatchvoteError, StoreError
from ..networks.cache import cache_folder, warn_unwritten
from ..utils.files import open_regular
from ..utils.remote import RemotePath, place
from .bags import Bags
from .recipe import Recipe

if TYPE_CHECKING:
    from .extract import Described

# Bytes of all bags in the user's cache: the moments of 160,000 photos, or the whole bags of 9,000.
DEFAULT_BOUND = 5_000_000_000
VARIABLE = "PATCHVOTE_CACHE_SIZE"
_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}
_KIND = re.compile(r".+-[a-z]+-[0-9a-f]{12}", re.DOTALL)  # network, mode, and digest of the recipe
_BAG = re.compile(r"[0-9a-f]{64}\.bag")
_TEMPORARY = ".writing-"
_ABANDONED = 86400.0  # seconds after which a temporary file is removed: no file is written for so long
_CHECKSUM_BYTES = 16


class Kept(Protocol):
    """What is kept of the bag of a photo: a pure function of the bag. It can be pickled."""

    @property
    def name(self) -> str:
        """Name of the folder, of the characters A-Z a-z 0-9 . -; it changes whenever the function changes."""

    def of(self, bag: Bags) -> Bags:
        """Return what is kept, rounded as it will be when it is read again; ValueError if it cannot be kept."""

    def pack(self, kept: Bags) -> dict[str, npt.NDArray[Any]]:
        """Return the arrays of a file."""

    def unpack(self, arrays: Mapping[str, npt.NDArray[Any]]) -> Bags:
        """Return what `pack` was given; ValueError if the arrays are not of this form."""


@dataclasses.dataclass(frozen=True)
class _Whole:
    """Keeps the whole bag, in float16."""

    name: str = "whole"

    def of(self, bag: Bags) -> Bags:
        return bag.rounded()

    def pack(self, kept: Bags) -> dict[str, npt.NDArray[Any]]:
        return {"values": kept.values, "boxes": kept.boxes, "level": kept.level}

    def unpack(self, arrays: Mapping[str, npt.NDArray[Any]]) -> Bags:
        return Bags(arrays["values"], np.array([0, len(arrays["values"])]), arrays["boxes"], arrays["level"])


WHOLE: Kept = _Whole()


class Folder(Container[str]):
    """The files of one kind: a container of the digests of photos. Without a path, nothing is kept."""

    def __init__(self, path: Path | None, kept: Kept, *, must_write: bool = False) -> None:
        self.path, self.kept, self.must_write = path, kept, must_write
        self.writes, self.wrote = path is not None, False
        self.again = functools.partial(Folder, path, kept, must_write=True)

    def __contains__(self, digest: object) -> bool:
        return self.path is not None and self._file(digest).exists()

    def read(self, digest: str, damaged: list[str]) -> Bags | None:
        """Return what is kept of a photo; None if it is not there, or damaged: then it is removed and named."""
        path = self._file(digest)
        try:
            with open_regular(path) as file:
                data = memoryview(file.read())
        except OSError:
            return None
        with contextlib.suppress(OSError):
            os.utime(path)
        try:
            if self._checksum(digest, data[_CHECKSUM_BYTES:]) != data[:_CHECKSUM_BYTES]:
                raise ValueError("another checksum")
            return self.kept.unpack(load(bytes(data[_CHECKSUM_BYTES:])))
        except (ValueError, KeyError, SafetensorError):
            with contextlib.suppress(OSError):
                path.unlink()
            damaged.append(path.name)
            return None

    def flush(self) -> None:
        """Do nothing: files are written at once."""

    def write(self, item: Described) -> None:
        """Write what is kept of a photo; the first time that it is not possible, warn, and write nothing more."""
        if self.path is None or not self.writes or item.bag is None:
            return
        content = save({name: np.ascontiguousarray(array) for name, array in self.kept.pack(item.bag).items()})
        try:
            for folder in (self.path.parent.parent, self.path.parent, self.path):
                folder.mkdir(0o700, parents=True, exist_ok=True)  # it is new, or another process has cleared the cache
            handle, temporary = tempfile.mkstemp(prefix=_TEMPORARY, dir=self.path)
            try:
                with os.fdopen(handle, "wb") as file:
                    file.write(self._checksum(item.digest, content) + content)
                os.replace(temporary, self._file(item.digest))  # noqa: PTH105 - both may be text
            except BaseException:
                Path(temporary).unlink(missing_ok=True)
                raise
        except OSError as error:
            if self.must_write:
                raise StoreError(f"{self.path} cannot be written by a worker: {error.strerror or error}.") from error
            self.writes = False
            warn_unwritten(self.path.parent.parent, error)
        else:
            self.wrote = True

    def _checksum(self, digest: str, data: bytes | memoryview) -> bytes:
        """Return the checksum of a file, which is of its place as well: what is of another photo or kind is damage."""
        checksum = xxhash.xxh3_128(f"{self.kept.name}/{digest}".encode())
        checksum.update(data)
        return checksum.digest()

    def _file(self, digest: object) -> Path:
        return Path(f"{self.path}/{digest}.bag")


# --- folders and sizes ------------------------------------------------------------------------------------------------


def root_of(cache: str | Path | bool | None) -> Path | None:
    """Return the folder of a cache: the user's for None or True; None for False, and where nothing may be kept."""
    if cache is False or bound_of(cache) == 0:
        return None
    root = bags_folder() if isinstance(cache, bool | None) else place(cache)
    if isinstance(root, RemotePath):  # times of use cannot be set there
        raise PatchvoteError(
            f"the cache must be a folder of this machine, got {root}. A store may be there: `patchvote extract PHOTOS "
            "STORE`."
        )
    return root.absolute()


def bags_folder() -> Path:
    """Return the folder of the bags in the user's cache."""
    return cache_folder() / "bags"


def base_of(root: Path, recipe: Recipe, fingerprint: str) -> Path:
    """Return the folder for a recipe and the network of a fingerprint."""
    kind = f"{recipe.mode} {recipe.sampling} {recipe.activation} {fingerprint}"
    name = re.sub("[^A-Za-z0-9.]+", "-", Path(recipe.network).name)[:40].strip("-.") or "network"
    return root / f"{name}-{recipe.mode}-{hashlib.sha256(kind.encode()).hexdigest()[:12]}"


def bound_of(cache: str | Path | bool | None = None) -> int | None:
    """Return how many bytes a cache may take: as `PATCHVOTE_CACHE_SIZE` says, else any number for a named folder."""
    text = os.environ.get(VARIABLE, "")
    if text.strip():
        return parse_size(text)
    return DEFAULT_BOUND if isinstance(cache, bool | None) else None


def parse_size(text: str) -> int | None:
    """Return a number of bytes, None for "unlimited"."""
    plain = text.strip().lower()
    if plain == "unlimited":
        return None
    match = re.fullmatch(r"(\d{1,18}(?:\.\d{1,9})?)\s*([kmgt]?)b?", plain, re.ASCII)
    if match is None:
        raise PatchvoteError(
            f"{VARIABLE} must be a size such as 500MB or 5GB, 0 to keep nothing, or unlimited, got {text[:40]!r}."
        )
    return int(float(match[1]) * _UNITS[match[2]])


# --- what is in a cache -----------------------------------------------------------------------------------------------


class CachedFile(NamedTuple):
    """A file of a cache; times are in seconds since 1970."""

    path: Path
    size: int
    used: float


def files_in(root: Path) -> Iterator[CachedFile]:
    """Yield the files of a cache, also temporary ones; nothing else, and no link is followed."""
    for folder, _, names in os.walk(root):
        path = Path(folder)
        if path.parent.parent != root or not _KIND.fullmatch(path.parent.name):
            continue
        for name in names:
            if _BAG.fullmatch(name) or name.startswith(_TEMPORARY):
                with contextlib.suppress(OSError):  # removed since
                    status = (path / name).lstat()
                    if stat.S_ISREG(status.st_mode):
                        yield CachedFile(path / name, status.st_size, status.st_mtime)


def trim(root: Path, bound: int | None) -> None:
    """Remove abandoned temporary files, and the bags that were used longest ago, so that the rest fits the bound."""
    chosen, size = [], 0
    for file in sorted(files_in(root), key=lambda file: file.used, reverse=True):
        if file.path.name.startswith(_TEMPORARY):
            goes = time.time() - file.used > _ABANDONED
        else:
            size += file.size
            goes = bound is not None and size > bound
        if goes:
            chosen.append(file)
    _remove(chosen)


def clear_bags(root: Path) -> int:
    """Remove the bags of a cache; return how many bytes were removed."""
    return _remove(list(files_in(root)))


def _remove(files: Iterable[CachedFile]) -> int:
    """Remove files, and folders that are empty then; return how many bytes were removed."""
    removed, folders = 0, set()
    for file in files:
        with contextlib.suppress(OSError):
            file.path.unlink()
            removed += file.size
        folders |= {file.path.parent, file.path.parent.parent}
    for folder in sorted(folders, reverse=True):  # those within others first
        with contextlib.suppress(OSError):  # not empty
            folder.rmdir()
    return removed


def kinds_in(root: Path) -> list[dict[str, Any]]:
    """Return what is in a cache for each network, recipe and way to keep bags, as plain values; the latest first."""
    folders: dict[Path, list[CachedFile]] = collections.defaultdict(list)
    for file in files_in(root):
        if _BAG.fullmatch(file.path.name):
            folders[file.path.parent].append(file)
    kinds = []
    for folder, files in folders.items():
        network, mode, _ = folder.parent.name.rsplit("-", 2)
        used = datetime.datetime.fromtimestamp(max(file.used for file in files), datetime.UTC)
        what = {"folder": str(folder), "network": network, "mode": mode, "keeps": folder.name, "photos": len(files)}
        size = sum(file.size for file in files)
        kinds.append({**what, "bytes": size, "used": used.isoformat(timespec="seconds")})
    return sorted(kinds, key=lambda kind: str(kind["used"]), reverse=True)
