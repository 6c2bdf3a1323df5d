"""Write files atomically, temporary files that a dead process does not leave behind, and locks of files.

Every file gets a temporary name in the same folder, is synced, and is then renamed: no reader ever sees an incomplete
file, even after a crash or on a full disk. The owner of a temporary file or folder holds a lock (flock) on it, which
the kernel releases when the owner ends, in whatever way; the next writer removes what is not locked.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import hashlib
import os
import re
import shutil
import socket
import stat
import tempfile
import time
import unicodedata
import uuid
import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

from ..errors import PatchvoteError, WaitWarning
from .reading import open_regular
from .remote import RemotePath

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

# The machine is its boot id, which differs even between machines of one host name, but not between its containers.
_FILE = re.compile(r"\.writing-(?P<machine>[^@]*)@\d+-[0-9a-f]+")
_FOLDER = re.compile(r"patchvote-(?P<machine>[^@]*)@\d+-[a-z0-9_]{8}")
_MAX_AGE = 7 * 86400.0  # seconds without a write, for files of other machines or disks without locks
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT)
_LITTLE = 1 << 24  # free bytes below which a disk counts as full: what was being written is still there
_FREE = "Free some space there, or name another folder by the environment variable TMPDIR, then run it again."
_SILENT_SECONDS = 1.0  # of waiting for a lock before a warning; writing a file usually takes less
_PAUSE_SECONDS = 0.02  # between two attempts: not noticed by a user, and no load on the processor


def write_atomically(path: Path, parts: Iterable[bytes | memoryview]) -> None:
    """Write `parts` one after the other; at every moment, `path` is absent, or complete and old, or complete and new.

    A symbolic link is followed: the link stays and its target is replaced. A file that is replaced keeps its mode.
    Folders, devices, pipes and anything else that is no ordinary file are never replaced.
    """
    with write_and_hold(path, parts):
        pass


@contextlib.contextmanager
def write_and_hold(path: Path, parts: Iterable[bytes | memoryview]) -> Iterator[None]:
    """Write as `write_atomically` does, and keep the file locked while the block runs: its owner is alive."""
    if isinstance(path, RemotePath):  # nothing can be locked there
        path.write(b"".join(parts))
        yield
        return
    path = Path(os.path.realpath(path))
    mode = None
    with contextlib.suppress(FileNotFoundError):
        mode = path.stat().st_mode
    if mode is not None and not stat.S_ISREG(mode):
        raise OSError(errno.EEXIST, "something that is no ordinary file has this name", str(path))
    remove_abandoned(path.parent)
    with temporary_file(path.parent) as (temporary, file):
        if mode is not None:
            temporary.chmod(stat.S_IMODE(mode))  # while it is empty: a private file is private at every moment
        for part in parts:
            file.write(part)
        sync(file)
        temporary.replace(path)
        _sync_folder(path.parent)
        yield


def write_file(path: Path, parts: Iterable[bytes | memoryview]) -> None:
    """Write a file that the user asked for, as `write_atomically` does; errors become a `PatchvoteError`."""
    try:
        write_atomically(path, parts)
    except OSError as error:
        raise PatchvoteError(f"{path} cannot be written: {error.strerror or error}.") from error


def make_folder(path: Path) -> None:
    """Make a folder that the user asked for, and its parents; errors become a `PatchvoteError`."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError) as error:
        file = next(above for above in (path, *path.parents) if os.path.lexists(above))
        what = "a file" if file.exists() else "a link that leads nowhere"
        raise PatchvoteError(f"the folder {path} cannot be made: {file} is {what}. Choose another name.") from error
    except OSError as error:
        raise PatchvoteError(f"the folder {path} cannot be made: {error.strerror or error}.") from error


def sync(file: BinaryIO) -> None:
    """Write an open file down to the disk."""
    file.flush()
    os.fsync(file.fileno())
    if os.name == "nt":  # Windows cannot rename an open file
        file.close()


def _sync_folder(folder: Path) -> None:
    """Make a rename in `folder` survive a power cut, where the system supports it (Windows cannot open folders)."""
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def file_digest(path: Path) -> str:
    """Return the SHA-256 of an ordinary file's bytes, in hexadecimal."""
    with open_regular(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@functools.cache
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

    A temporary folder that is missing or full, also if that is found within the block, becomes a `PatchvoteError`.
    """
    try:
        root = Path(tempfile.gettempdir())
        remove_abandoned(root)
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
            if _has_no_room(error) and (str(path) in str(error) or shutil.disk_usage(path).free < _LITTLE):
                raise PatchvoteError(f"the temporary folder {root} is full. {_FREE}") from error
            raise
        finally:
            shutil.rmtree(path, ignore_errors=True)


def _has_no_room(error: BaseException | None) -> bool:
    while error is not None and not (isinstance(error, OSError) and error.errno in _NO_ROOM):
        error = error.__cause__
    return error is not None


def remove_abandoned(folder: Path) -> None:
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

    `by` is the machine of the process, or its `owner()`; empty where it is not known.
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


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the lock of a file, which need not exist, while the block runs; wait for it if necessary.

    After a second of waiting, a `WaitWarning` names the file. Where the file system has no locks, or the folder is not
    writable, the block runs without a lock.
    """
    lock = lock_file(path)
    handle = None if isinstance(path, RemotePath) else _acquire(lock, path)
    try:
        yield
    finally:
        if handle is not None:
            with contextlib.suppress(OSError):
                if not os.fstat(handle).st_size:  # a file with content is not a lock, whatever its name
                    lock.unlink()
            os.close(handle)


@contextlib.contextmanager
def lock_at_once(path: Path) -> Iterator[bool]:
    """Hold the lock of a file while the block runs, without waiting; yield False where another process has it.

    The lock file stays, so that no two processes can hold locks on two files of the same name.
    """
    handle = _open_lock(lock_file(path))
    try:
        yield _lock(handle) is not False
    finally:
        if handle is not None:
            os.close(handle)


def lock_file(path: Path) -> Path:
    """Return the lock file of `path`: its name has a fixed length, and is the same for all spellings of a name."""
    name = unicodedata.normalize("NFC", path.name).casefold().encode("utf-8", "surrogatepass")
    return path.with_name(f".patchvote-{hashlib.sha256(name).hexdigest()[:32]}.lock")


def _open_lock(lock: Path) -> int | None:
    """Open a lock file; None where the folder is not writable: whoever writes there says so."""
    try:
        return os.open(lock, os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o600)
    except OSError:
        return None


def _acquire(lock: Path, path: Path) -> int | None:
    start, warned = time.monotonic(), False
    while (handle := _open_lock(lock)) is not None:
        try:
            while _lock(handle) is False:
                if not warned and time.monotonic() - start > _SILENT_SECONDS:
                    warned = True
                    text = f"waiting until another process has written {path} (it holds {lock.name})."
                    warnings.warn(text, WaitWarning, stacklevel=2)
                time.sleep(_PAUSE_SECONDS)
            with contextlib.suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(handle), lock.stat()):
                    return handle
        except BaseException:
            os.close(handle)
            raise
        os.close(handle)  # the previous holder has removed the lock file: try again with a new one
    return None


def stamp(path: Path) -> tuple[int, ...] | None:
    """Return a value that changes whenever a file is replaced; None where there is no file."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns
