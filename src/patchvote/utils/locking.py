"""One writer at a time, and none that overwrites what it has not seen.

Whoever replaces a file takes its lock, compares the file with what it read, and only then writes. The lock belongs to
an open file, so that the system releases it when its process ends, however it ends: nothing is left to be cleared away.
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

_PATIENCE = 1.0  # seconds after which it is said that a lock is waited for
_PAUSE = 0.02  # seconds between two attempts

if sys.platform == "win32":
    import msvcrt

    def _try(handle: int) -> bool:
        try:
            msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)
        except PermissionError:
            return False
        return True
else:
    import fcntl

    def _try(handle: int) -> bool:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the lock of a file, which need not be there, for as long as the block runs; wait for it where need be.

    After a second of waiting, a `WaitWarning` says for what. Some file systems know no locks, and some folders cannot
    be written to. The block then runs without.
    """
    lock = lock_file(path)
    handle = _acquire(lock, path)
    try:
        yield
    finally:
        if handle is not None:
            with contextlib.suppress(OSError):  # Windows cannot remove a file that somebody holds open
                if not os.fstat(handle).st_size:  # one with content is somebody's, whatever its name
                    lock.unlink()
            os.close(handle)


def lock_file(path: Path) -> Path:
    """Return the file whose lock stands for `path`: as short for long names, and one for all spellings of a name."""
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
            pass  # whoever held it has removed it: the next one is taken from a new file
        except OSError:
            os.close(handle)
            return None
        except BaseException:
            os.close(handle)
            raise
        os.close(handle)


def _wait_for(handle: int, lock: Path, path: Path) -> None:
    begin = time.monotonic()
    said = False
    while not _try(handle):
        if not said and time.monotonic() - begin > _PATIENCE:
            said = True
            warnings.warn(
                f"waiting until another process has written {path} (it holds {lock.name}).", WaitWarning, stacklevel=2
            )
        time.sleep(_PAUSE)


def stamp(path: Path) -> tuple[int, ...] | None:
    """Return what changes whenever a file is replaced; None where there is no file."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns
