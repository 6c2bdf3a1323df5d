"""One writer at a time, and none that overwrites what it has not seen.

Whoever replaces a file takes its lock, compares the file with what it read, and only then writes. The lock belongs to
an open file, so that the system releases it when its process ends, however it ends: nothing is left to be cleared away.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path

if sys.platform == "win32":
    import msvcrt

    def _wait_for(handle: int) -> None:
        msvcrt.locking(handle, msvcrt.LK_LOCK, 1)
else:
    import fcntl

    def _wait_for(handle: int) -> None:
        fcntl.flock(handle, fcntl.LOCK_EX)


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the lock of a file, which need not be there, for as long as the block runs; wait for it where need be.

    Some file systems know no locks, and some folders cannot be written to. The block then runs without.
    """
    lock = path.with_name(f".{path.name}.lock")
    handle = _acquire(lock)
    try:
        yield
    finally:
        if handle is not None:
            with contextlib.suppress(OSError):  # Windows cannot remove a file that somebody holds open
                lock.unlink()
            os.close(handle)


def _acquire(lock: Path) -> int | None:
    while True:
        try:
            handle = os.open(lock, os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o600)
        except OSError:
            return None
        try:
            _wait_for(handle)
            if os.path.samestat(os.fstat(handle), lock.stat()):
                return handle
        except FileNotFoundError:
            pass  # whoever held it has removed it: the next one is taken from a new file
        except OSError:
            os.close(handle)
            return None
        os.close(handle)


def stamp(path: Path) -> tuple[int, ...] | None:
    """Return what changes whenever a file is replaced; None where there is no file."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns
