"""Paths on other file systems (`s3://bucket/photos`, `gs://…`, `memory://…`), reached through fsspec (an extra).

A `RemotePath` is a `Path`: parents, names and endings work as usual, and the methods that ask the file system ask the
remote one. Code that opens files itself goes through `reading.open_regular` and `files.write_atomically`, which treat
both kinds. A remote path never becomes a local name by accident: the system's own functions refuse it.
"""

from __future__ import annotations

import contextlib
import datetime
import errno
import fnmatch
import functools
import io
import os
import re
import stat
import time
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any, Self

from ..errors import PatchvoteError

_URL = re.compile(r"(?P<protocol>[a-z][a-z0-9+]+)://")  # of at least two letters: C:/ is a disk
_BLOCK = 1 << 20  # bytes that are read ahead: a photo, or a few bags


def place(path: str | os.PathLike[str]) -> Path:
    """Return a path as a `Path`: remote if it begins with a protocol, local otherwise."""
    if isinstance(path, RemotePath):
        return path
    match = _URL.match(str(path)) if isinstance(path, str) else None
    if match is None:
        return Path(path)
    if match["protocol"] in ("file", "local"):
        return Path(str(path)[match.end() :])
    return RemotePath(path)


class RemotePath(type(Path())):  # type: ignore[misc]
    """A path on a file system that fsspec reaches. It holds nothing but its name, so it can be pickled.

    Methods raise `OSError`, whatever the library of the file system raises.
    """

    def __str__(self) -> str:
        protocol, *parts = self.parts
        return f"{protocol}//{'/'.join(parts)}"

    def __fspath__(self) -> str:
        raise TypeError(f"{self} is no local file")

    def relative_to(self, *other: Any, **_: Any) -> PurePosixPath:
        """Return the path below a folder, which is no longer remote."""
        return PurePosixPath(*self.parts).relative_to(PurePosixPath(*type(self)(*other).parts))

    def absolute(self, **_: Any) -> Self:
        """Return the path itself: remote paths are absolute, and there are no remote links."""
        return self

    resolve = absolute

    def is_symlink(self) -> bool:
        """Return False: there are no remote links."""
        return False

    def stat(self, *, follow_symlinks: bool = True) -> os.stat_result:
        """Return type, size and time of change; 0 and the current time where the file system does not tell them."""
        info = self._info()
        mode = stat.S_IFDIR if info["type"] == "directory" else stat.S_IFREG
        changed = _seconds(info)
        # The first ten are whole numbers; the times follow once more, in seconds and in nanoseconds.
        numbers = (mode, 0, 0, 1, 0, 0, info.get("size") or 0, int(changed), int(changed), 0)
        return os.stat_result((*numbers, changed, changed, 0.0, int(changed * 1e9), int(changed * 1e9), 0))

    def exists(self, **_: Any) -> bool:
        """Whether there is such a file or folder."""
        return self._kind() is not None

    def is_dir(self, **_: Any) -> bool:
        """Whether it is a folder, or a prefix of files."""
        return self._kind() == "directory"

    def is_file(self, **_: Any) -> bool:
        """Whether it is a file."""
        return self._kind() not in (None, "directory")

    def iterdir(self) -> Iterator[Self]:
        """Yield the files and folders in this folder; none if it does not exist: object stores have no folders."""
        names: list[str] = []
        with contextlib.suppress(FileNotFoundError):
            names = self._call("ls", detail=False)
        names = [name.rstrip("/") for name in names]  # some object stores have an entry of the folder itself
        yield from (self / name.rpartition("/")[2] for name in names if name != self._place)

    def glob(self, pattern: str, **_: Any) -> Iterator[Self]:
        """Yield the files of this folder whose names match the pattern; folders below are not searched."""
        return (path for path in self.iterdir() if fnmatch.fnmatchcase(path.name, pattern))

    def walk_files(self) -> list[Self]:
        """Return all files in this folder and those below, in order of name."""
        names = self._call("find")
        return sorted((self / name[len(self._place) + 1 :] for name in names), key=lambda path: path.parts)

    def mkdir(self, mode: int = 0o777, parents: bool = False, exist_ok: bool = False) -> None:
        """Make a folder where the file system has folders; object stores need none."""
        if not self.is_dir() and len(self.parts) > 2:  # a bucket is not made by writing into it
            with contextlib.suppress(FileExistsError):
                self._call("makedirs", exist_ok=True)

    def rename(self, target: Any) -> Self:
        """Give a file another name; an object store copies it."""
        self._call("mv", str(target))
        return type(self)(*target.parts)

    def open_bytes(self) -> io.BufferedReader:
        """Open the file for reading bytes; it can seek."""
        if self.is_dir():
            raise IsADirectoryError(errno.EISDIR, "it is a folder, not a file", str(self))
        file = self._call("open", "rb", block_size=_BLOCK)
        # memory:// hands out one object, whose position all readers would share.
        return io.BufferedReader(io.BytesIO(file.getvalue()) if isinstance(file, io.BytesIO) else file)

    def write(self, content: bytes) -> None:
        """Write a file in one call, which object stores make visible when it is complete."""
        self._call("pipe_file", content)

    @property
    def _place(self) -> str:
        return str(self._call("_strip_protocol")).rstrip("/")

    def _info(self) -> dict[str, Any]:
        return dict(self._call("info"))

    def _kind(self) -> str | None:
        try:
            return str(self._info()["type"])
        except FileNotFoundError:
            return None

    def _call(self, method: str, *more: Any, **options: Any) -> Any:
        """Call a method of the file system for this path; what its library raises becomes an `OSError`."""
        try:
            return getattr(_file_system(self.parts[0].rstrip(":")), method)(str(self), *more, **options)
        except (OSError, PatchvoteError):
            raise
        except Exception as error:  # libraries of file systems have errors of their own
            raise OSError(errno.EIO, f"{type(error).__name__}: {error}", str(self)) from error


@functools.cache
def _file_system(protocol: str) -> Any:
    try:
        import fsspec

        # Without a cache of listings: other processes write to the same folders.
        return fsspec.filesystem(protocol, use_listings_cache=False)
    except (ImportError, ValueError) as error:
        how = "pip install 'patchvote[remote]', and the package of the file system, such as s3fs or gcsfs"
        raise PatchvoteError(f"{protocol}:// cannot be read or written: {error}. It needs: {how}.") from None


def _seconds(info: dict[str, Any]) -> float:
    """Return the time of change in seconds; each file system calls it differently."""
    times = map(info.get, ("mtime", "LastModified", "last_modified", "updated", "created"))
    changed: Any = next(filter(None, times), None) or time.time()  # if unknown, it may have changed just now
    return changed.timestamp() if isinstance(changed, datetime.datetime) else float(changed)
