"""Temporary files and folders, and the removal of those that a dead process left behind.

The owner of a temporary file or folder holds a lock (flock) on it. The kernel releases the lock when the owner ends, in
whatever way, and all containers of the machine see the same lock, whatever their host names and process ids. The file
name contains the machine: its boot id where the system has one, which differs even between machines of the same host
name. Files of other machines, and files on disks without locks, are removed once they have not been written to for a
week.
"""

from __future__ import annotations

import contextlib
import errno
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

from ..errors import PatchvoteError
from .remote import RemotePath

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

_FILE = re.compile(r"\.writing-(?P<machine>[^@]*)@\d+-[0-9a-f]+")
_FOLDER = re.compile(r"patchvote-(?P<machine>[^@]*)@\d+-[a-z0-9_]{8}")
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT)
_LITTLE = 1 << 24  # bytes free on a disk below which it is the one that was full: what was being written is still there
_FREE = "Free some space there, or name another folder by the environment variable TMPDIR, then run it again."
_MAX_AGE = 7 * 86400.0  # seconds without a write, for files whose lock says nothing; no writer pauses for a week


@cache
def machine() -> str:
    """Return the id of this machine until its next boot, in characters that a file name can have."""
    try:
        name = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        name = socket.gethostname()
    return re.sub(r"[^A-Za-z0-9.-]", "-", name)


def owner() -> str:
    """Return the id of this process among those of all machines: the machine and the process id."""
    return f"{machine()}@{os.getpid()}"


@contextlib.contextmanager
def temporary_file(folder: Path) -> Iterator[tuple[Path, BinaryIO]]:
    """Open a new file in `folder` for writing, locked while the block runs, then removed unless it was renamed."""
    while True:
        path = folder / f".writing-{owner()}-{uuid.uuid4().hex}"
        try:
            with path.open("xb") as file:
                if _lock(file.fileno()) is False or not path.exists():
                    continue  # before it was locked, another process considered it abandoned
                yield path, file
                return
        finally:
            with contextlib.suppress(OSError):
                path.unlink(missing_ok=True)


@contextlib.contextmanager
def temporary_folder() -> Iterator[Path]:
    """Make a folder in the system's temporary folder, locked while the block runs; then it is removed.

    Temporary folders of dead processes are removed first.

    Raises
    ------
    PatchvoteError
        There is no temporary folder, or it is full; also if that is found within the block.
    """
    try:
        root = Path(tempfile.gettempdir())
        remove_leavings(root)
    except OSError as error:  # it has tried several, and names them
        raise PatchvoteError(f"nothing temporary can be written: {error.strerror or error}. {_FREE}") from error
    while True:
        try:
            path = Path(tempfile.mkdtemp(prefix=f"patchvote-{owner()}-"))
        except OSError as error:
            raise PatchvoteError(f"the temporary folder {root}: {error.strerror or error}. {_FREE}") from error
        try:
            with _opened(path) as handle:
                if _lock(handle) is False or not path.is_dir():
                    continue  # as above
                yield path
                return
        except (OSError, PatchvoteError) as error:
            if _is_full(error, path):
                raise PatchvoteError(f"the temporary folder {root} is full. {_FREE}") from error
            raise
        finally:
            shutil.rmtree(path, ignore_errors=True)


def _is_full(error: BaseException, folder: Path) -> bool:
    """Whether an error came about because there was no room for a file in a temporary folder."""
    cause: BaseException | None = error
    while cause is not None and not (isinstance(cause, OSError) and cause.errno in _NO_ROOM):
        cause = cause.__cause__
    if cause is None:
        return False
    if isinstance(cause, OSError) and cause.filename:
        return str(folder) in str(cause.filename)
    if str(folder) in str(error):
        return True
    try:
        return shutil.disk_usage(folder).free < _LITTLE  # writing to an open file tells no name
    except OSError:
        return False


def remove_leavings(folder: Path) -> None:
    """Remove the temporary files and folders in `folder` that belong to this user and whose process is dead."""
    if isinstance(folder, RemotePath):  # files are written there under their final names
        return
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
    """Return whether the process that owned a file or folder is dead; hold its lock while the block runs.

    Parameters
    ----------
    path : Path
        File or folder.
    by : str
        Machine of the process, or its `owner()`; empty where it is not known.

    Raises
    ------
    OSError
        There is no such file.
    """
    if isinstance(path, RemotePath):  # without locks, only time shows that nobody works on it
        yield time.time() - path.stat().st_mtime > _MAX_AGE
        return
    status = path.lstat()
    kind = stat.S_IFMT(status.st_mode)
    if kind not in (stat.S_IFREG, stat.S_IFDIR) or (hasattr(os, "geteuid") and status.st_uid != os.geteuid()):
        yield False
        return
    with _opened(path) as handle:
        locked = _lock(handle)
        same_machine = locked is True and by.partition("@")[0] == machine()
        yield locked is not False and (same_machine or time.time() - status.st_mtime > _MAX_AGE)


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[int | None]:
    """Open a file or folder so that it can be locked; None where that is not possible."""
    handle = None
    if fcntl is not None:
        with contextlib.suppress(OSError):
            flags = os.O_RDONLY if path.is_dir() else os.O_RDWR  # NFS locks only files that are open for writing
            handle = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
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
