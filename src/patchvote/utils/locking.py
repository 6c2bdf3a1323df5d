"""File locks: one writer at a time, and none overwrites a version that it has not read.

A writer takes the lock of the file, compares the file with what it read before, and only then replaces it. The lock
belongs to an open file, so the system releases it when the process ends, however it ends: nothing has to be cleaned up.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import sys
import time
import unicodedata
import warnings
from collections.abc import Iterator
from pathlib import Path

from ..errors import WaitWarning
from .remote import RemotePath

_SILENT_SECONDS = 1.0  # of waiting before a warning; writing a file usually takes less
_PAUSE_SECONDS = 0.02  # between two attempts: not noticed by a user, and no load on the processor

if sys.platform == "win32":
    import msvcrt

    def _try_lock(handle: int) -> bool:
        try:
            msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)
        except PermissionError:
            return False
        return True
else:
    import fcntl

    def _try_lock(handle: int) -> bool:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the lock of a file, which need not exist, while the block runs; wait for it if necessary.

    After a second of waiting, a `WaitWarning` names the file. Where the file system has no locks, or the folder is not
    writable, the block runs without a lock.
    """
    if isinstance(path, RemotePath):  # remote file systems have no locks
        yield
        return
    lock = lock_file(path)
    handle = _acquire(lock, path)
    try:
        yield
    finally:
        if handle is not None:
            with contextlib.suppress(OSError):  # Windows cannot remove a file that a process holds open
                if not os.fstat(handle).st_size:  # a file with content is not a lock, whatever its name
                    lock.unlink()
            os.close(handle)


@contextlib.contextmanager
def lock_at_once(path: Path) -> Iterator[bool]:
    """Hold the lock of a file while the block runs, without waiting; yield False where another process has it.

    The lock file stays, so that no two processes can hold locks on two files of the same name. Where there can be no
    lock, the block runs without one, as for `locked`.
    """
    try:
        handle = os.open(lock_file(path), os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o600)
    except OSError:  # the folder is not writable: whoever writes there says so
        yield True
        return
    try:
        try:
            is_mine = _try_lock(handle)
        except OSError:  # the file system has no locks
            is_mine = True
        yield is_mine
    finally:
        os.close(handle)


def lock_file(path: Path) -> Path:
    """Return the lock file of `path`: its name has a fixed length, and is the same for all spellings of a name."""
    name = unicodedata.normalize("NFC", path.name).casefold().encode("utf-8", "surrogatepass")
    return path.with_name(f".patchvote-{hashlib.sha256(name).hexdigest()[:32]}.lock")


def _acquire(lock: Path, path: Path) -> int | None:
    while True:
        try:
            handle = os.open(lock, os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o600)
        except OSError:
            return None
        try:
            _wait_for(handle, lock, path)
            if os.path.samestat(os.fstat(handle), lock.stat()):
                return handle
        except FileNotFoundError:
            pass  # the previous holder has removed the lock file: try again with a new one
        except OSError:
            os.close(handle)
            return None
        except BaseException:
            os.close(handle)
            raise
        os.close(handle)


def _wait_for(handle: int, lock: Path, path: Path) -> None:
    start = time.monotonic()
    warned = False
    while not _try_lock(handle):
        if not warned and time.monotonic() - start > _SILENT_SECONDS:
            warned = True
            warnings.warn(
                f"waiting until another process has written {path} (it holds {lock.name}).", WaitWarning, stacklevel=2
            )
        time.sleep(_PAUSE_SECONDS)


def stamp(path: Path) -> tuple[int, ...] | None:
    """Return a value that changes whenever a file is replaced; None where there is no file."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns
