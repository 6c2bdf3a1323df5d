"""Temporary files and folders, and the removal of those that a dead process left behind.

The owner holds a lock (flock) on a temporary file or folder as long as it lives. The kernel releases the lock when the
owner ends, in whatever way, and every container on the machine sees it, however containers name themselves and number
their processes. The name carries the machine: its boot id where the system tells one, which no two machines share even
where their host names are equal. What another machine left, or what lies on a disk without locks, is removed once it
has not been written to for a week.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import socket
import stat
import tempfile
import time
import uuid
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import BinaryIO

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

_FILE = re.compile(r"\.writing-(?P<machine>[^@]*)@\d+-[0-9a-f]+")
_FOLDER = re.compile(r"patchvote-(?P<machine>[^@]*)@\d+-[a-z0-9_]{8}")
_LONG_AGO = 7 * 86400.0  # seconds; no writer pauses for as long


@cache
def machine() -> str:
    """Return what names this machine, until it starts anew, in letters that a file name can have."""
    try:
        name = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        name = socket.gethostname()
    return re.sub(r"[^A-Za-z0-9.-]", "-", name)


def owner() -> str:
    """Return what names this process among those of all machines: its machine and number."""
    return f"{machine()}@{os.getpid()}"


@contextlib.contextmanager
def temporary_file(folder: Path) -> Iterator[tuple[Path, BinaryIO]]:
    """Open a new file in `folder` to write to, locked until the end; it is removed unless it was renamed by then."""
    while True:
        path = folder / f".writing-{owner()}-{uuid.uuid4().hex}"
        try:
            with path.open("xb") as file:
                if _lock(file.fileno()) is False or not path.exists():
                    continue  # before it was locked, another process took it for abandoned
                yield path, file
                return
        finally:
            with contextlib.suppress(OSError):
                path.unlink(missing_ok=True)


@contextlib.contextmanager
def temporary_folder() -> Iterator[Path]:
    """Make a folder where the system keeps temporary ones, locked until the end; then it is removed.

    Those that dead processes left there are removed first.
    """
    remove_leavings(Path(tempfile.gettempdir()))
    while True:
        path = Path(tempfile.mkdtemp(prefix=f"patchvote-{owner()}-"))
        try:
            with _opened(path) as handle:
                if _lock(handle) is False or not path.is_dir():
                    continue  # as above
                yield path
                return
        finally:
            shutil.rmtree(path, ignore_errors=True)


def remove_leavings(folder: Path) -> None:
    """Remove the temporary files and folders in `folder` that belong to this user and whose owner is dead."""
    with contextlib.suppress(OSError):
        for entry in list(os.scandir(folder)):
            match = _FILE.fullmatch(entry.name) or _FOLDER.fullmatch(entry.name)
            if match is None:
                continue
            path = folder / entry.name
            with contextlib.suppress(OSError), abandoned(path, match["machine"]) as is_abandoned:
                if is_abandoned:
                    shutil.rmtree(path) if path.is_dir() else path.unlink()


@contextlib.contextmanager
def abandoned(path: Path, by: str) -> Iterator[bool]:
    """Tell whether the process that held the lock of a file or folder is dead; no other takes the lock meanwhile.

    Parameters
    ----------
    path : Path
        The file or folder.
    by : str
        The machine of that process, or its `owner()`; empty where it is not known.

    Raises
    ------
    OSError
        There is no such file.
    """
    status = path.lstat()
    kind = stat.S_IFMT(status.st_mode)
    if kind not in (stat.S_IFREG, stat.S_IFDIR) or (hasattr(os, "geteuid") and status.st_uid != os.geteuid()):
        yield False
        return
    with _opened(path) as handle:
        locked = _lock(handle)
        here = locked is True and by.partition("@")[0] == machine()
        yield locked is not False and (here or time.time() - status.st_mtime > _LONG_AGO)


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[int | None]:
    """Open a file or folder to lock it; None where that cannot be done."""
    handle = None
    if fcntl is not None:
        flags = os.O_RDONLY if path.is_dir() else os.O_RDWR  # over NFS, a lock takes the right to write
        with contextlib.suppress(OSError):
            handle = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        yield handle
    finally:
        if handle is not None:
            os.close(handle)


def _lock(handle: int | None) -> bool | None:
    """Lock an open file until it is closed: False where another holds the lock, None where there are no locks."""
    if fcntl is None or handle is None:
        return None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return None
    return True
