"""Read untrusted files, write files atomically, temporary files that a dead process does not leave behind, and locks.

A path can lead to a pipe without a writer, a device without an end, or a file that grows while it is read. Each of them
would block a reader for ever or fill the memory; here they raise an `OSError` with the reason in its `strerror`.

Every file is written under a temporary name in the same folder, synced, and then renamed: no reader ever sees an
incomplete file, even after a crash or on a full disk. The owner of a temporary file or folder holds a lock (flock) on
it, which the kernel releases when the owner ends, in whatever way; a later writer removes what is not locked.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import io
import math
import os
import re
import shutil
import stat
import tempfile
import time
import uuid
import warnings
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

from ..errors import PatchvoteError, WaitWarning
from .remote import RemotePath

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

_KINDS = {stat.S_IFDIR: "a folder", stat.S_IFIFO: "a pipe", stat.S_IFSOCK: "a socket"}  # all others are devices

_FOLDER = "patchvote-temporary-"
_TEMPORARY = re.compile(rf"\.writing-[0-9a-f]{{32}}|{_FOLDER}[a-z0-9_]{{8}}")
# Seconds without a write after which a temporary file is abandoned: if nobody has its lock (some disks know locks of
# this machine alone), and where there are no locks. What somebody has locked never is.
_MAX_AGE = {True: 3600.0, None: 7 * 86400.0, False: math.inf}
_SILENT_SECONDS = 1.0  # of waiting for a lock before a warning; writing a file usually takes less
_PAUSE_SECONDS = 0.02  # between two attempts: not noticed by a user, and no load on the processor


# --- reading ----------------------------------------------------------------------------------------------------------


def open_regular(path: str | Path) -> io.BufferedReader:
    """Open an ordinary file for reading, without blocking on anything else; also one of a remote file system."""
    if isinstance(path, RemotePath):
        return path.open_bytes()
    try:
        mode = Path(path).stat().st_mode  # opening a pipe blocks, and opening some devices has effects
    except ValueError:
        raise OSError(errno.EINVAL, "no file can have this name", str(path)) from None
    if not stat.S_ISREG(mode):
        kind = _KINDS.get(stat.S_IFMT(mode), "a device")
        raise OSError(errno.EINVAL, f"it is {kind}, not an ordinary file", str(path))
    return Path(path).open("rb")


def read_bytes(path: str | Path, limit: int) -> bytes:
    """Read a whole ordinary file; `OSError` if it has more than `limit` bytes, or than the system reports."""
    with open_regular(path) as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(0)
        content = file.read(size + 1) if size <= limit else b""
    if size > limit or len(content) > size:
        most = min(size, limit)
        raise OSError(errno.EFBIG, f"it has more than the {most:,} bytes that are read of such a file", str(path))
    return content


def file_digest(path: Path) -> str:
    """Return the SHA-256 of an ordinary file's bytes, in hexadecimal."""
    with open_regular(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def stamp(path: Path) -> tuple[int, ...] | None:
    """Return a value that changes whenever a file is replaced; None where there is no file."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


# --- writing ----------------------------------------------------------------------------------------------------------


def write_atomically(path: Path, parts: Iterable[bytes | memoryview]) -> None:
    """Write `parts` one after the other; at every moment, `path` is absent, or complete and old, or complete and new.

    A symbolic link is followed: the link stays and its target is replaced. A file that is replaced keeps its mode.
    Folders, devices, pipes and anything else that is no ordinary file are never replaced.
    """
    if isinstance(path, RemotePath):
        path.write(b"".join(parts))
        return
    path = Path(os.path.realpath(path))
    mode = path.stat().st_mode if path.exists() else None
    if mode is not None and not stat.S_ISREG(mode):
        raise OSError(errno.EEXIST, "something that is no ordinary file has this name", str(path))

    def take_name(temporary: Path) -> None:
        temporary.replace(path)
        sync(path.parent)

    with temporary_file(path.parent, take_name) as (temporary, file):
        if mode is not None:
            temporary.chmod(stat.S_IMODE(mode))  # while it is empty: a private file is private at every moment
        for part in parts:
            file.write(part)


def write_file(path: Path, parts: Iterable[bytes | memoryview]) -> None:
    """Write a file that the user asked for, as `write_atomically` does; errors become a `PatchvoteError`."""
    try:
        write_atomically(path, parts)
    except OSError as error:
        raise PatchvoteError(f"{path} cannot be written: {error.strerror or error}.") from error


def sync(path: Path) -> None:
    """Have the content of a file, or the names in a folder, survive a power cut."""
    with _opened(path) as handle:
        if handle is not None:
            os.fsync(handle)


def make_folders(path: Path) -> None:
    """Make a folder and its parents, so that they survive a power cut."""
    if not path.is_dir():
        make_folders(path.parent)
        path.mkdir(exist_ok=True)
        sync(path.parent)


def make_folder(path: Path) -> None:
    """Make a folder that the user asked for, and its parents; errors become a `PatchvoteError`."""
    try:
        make_folders(path)
    except OSError as error:
        reason = error.strerror or error
        raise PatchvoteError(f"the folder {path} cannot be made: {reason}. Choose another name.") from error


# --- temporary files --------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def temporary_file(folder: Path, take_name: Callable[[Path], object]) -> Iterator[tuple[Path, BinaryIO]]:
    """Open a new file in `folder` for writing, locked while the block runs; then `take_name` renames it, synced."""
    remove_abandoned(folder)
    path = folder / f".writing-{uuid.uuid4().hex}"
    try:
        with path.open("xb") as file:
            _lock(file.fileno())
            yield path, file
            file.flush()
            os.fsync(file.fileno())
        take_name(path)
    finally:
        with contextlib.suppress(OSError):
            path.unlink(missing_ok=True)


@contextlib.contextmanager
def temporary_folder() -> Iterator[Path]:
    """Make a folder in the system's temporary folder, locked while the block runs; then it is removed."""
    remove_abandoned(Path(tempfile.gettempdir()))
    path = Path(tempfile.mkdtemp(prefix=_FOLDER))
    try:
        with _opened(path) as handle:
            _lock(handle)
            yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def remove_abandoned(folder: Path) -> None:
    """Remove the temporary files and folders in `folder` whose process has ended without removing them."""
    if isinstance(folder, RemotePath):  # files are written there under their final names
        return
    with contextlib.suppress(OSError):
        for entry in [entry for entry in os.scandir(folder) if _TEMPORARY.fullmatch(entry.name)]:
            path, is_folder = folder / entry.name, entry.is_dir(follow_symlinks=False)
            if is_folder or entry.is_file(follow_symlinks=False):
                with contextlib.suppress(OSError), _opened(path) as handle:
                    if time.time() - path.stat().st_mtime > _MAX_AGE[_lock(handle)]:
                        shutil.rmtree(path) if is_folder else path.unlink()


# --- locks ------------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[int | None]:
    """Open a file or folder so that it can be locked; None where that is not possible."""
    handle = None
    if fcntl is not None and not isinstance(path, RemotePath):
        with contextlib.suppress(OSError):
            flags = os.O_RDONLY if path.is_dir() else os.O_RDWR  # NFS locks only files that are open for writing
            handle = os.open(path, flags)
    try:
        yield handle
    finally:
        if handle is not None:
            os.close(handle)


def _lock(handle: int | None) -> bool | None:
    """Lock an open file until it is closed; False where another process has the lock, None where there are no locks."""
    if fcntl is None or handle is None:
        return None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return None
    return True


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the lock of the folder of a file while the block runs; wait for it if necessary.

    After a second of waiting, a `WaitWarning` names the file. Where the file system has no locks, the block runs
    without one.
    """
    start, warned = time.monotonic(), False
    with _opened(path.parent) as handle:
        while _lock(handle) is False:
            if not warned and time.monotonic() - start > _SILENT_SECONDS:
                warned = True
                warnings.warn(f"waiting until another process has written beside {path}.", WaitWarning, stacklevel=3)
            time.sleep(_PAUSE_SECONDS)
        yield


@contextlib.contextmanager
def lock_at_once(folder: Path) -> Iterator[bool]:
    """Hold the lock of a folder while the block runs, without waiting; yield False where another process has it."""
    with _opened(folder) as handle:
        yield _lock(handle) is not False
