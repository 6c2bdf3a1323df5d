"""Write files atomically: a file is either complete or absent.

Every file that patchvote writes gets a temporary name in the same folder, is synced, and is then renamed. No reader
ever sees an incomplete file, even after a crash or on a full disk. Temporary files of a killed process are removed by
the next process that writes into the folder.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path

from ..errors import PatchvoteError
from .reading import open_regular
from .remote import RemotePath
from .temporary import remove_leavings, temporary_file


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
    mode = _mode_of(path)
    remove_leavings(path.parent)
    with temporary_file(path.parent) as (temporary, file):
        if mode is not None:
            temporary.chmod(mode)  # while it is empty: the content of a private file is private at every moment
        for part in parts:
            file.write(part)
        file.flush()
        os.fsync(file.fileno())
        if os.name == "nt":  # Windows cannot rename an open file, and there is no lock to keep
            file.close()
        temporary.replace(path)
        _sync_folder(path.parent)
        yield


def write_file(path: Path, parts: Iterable[bytes | memoryview]) -> None:
    """Write a file that the user asked for, as `write_atomically` does.

    Raises
    ------
    PatchvoteError
        The file cannot be written; the message gives the reason in one sentence.
    """
    try:
        write_atomically(path, parts)
    except OSError as error:
        raise PatchvoteError(f"{path} cannot be written: {error.strerror or error}.") from error


def make_folder(path: Path) -> None:
    """Make a folder that the user asked for, and its parents.

    Raises
    ------
    PatchvoteError
        The folder cannot be made; the message gives the reason in one sentence.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError) as error:
        file = next(above for above in (path, *path.parents) if os.path.lexists(above))
        what = "a file" if file.exists() else "a link that leads nowhere"
        raise PatchvoteError(f"the folder {path} cannot be made: {file} is {what}. Choose another name.") from error
    except OSError as error:
        raise PatchvoteError(f"the folder {path} cannot be made: {error.strerror or error}.") from error


def _mode_of(path: Path) -> int | None:
    """Return the permissions of an ordinary file; None where there is no file yet."""
    try:
        status = path.stat()
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(status.st_mode):
        raise OSError(errno.EEXIST, "something that is no ordinary file has this name", str(path))
    return stat.S_IMODE(status.st_mode)


def _sync_folder(folder: Path) -> None:
    """Make a rename in `folder` survive a power cut, where the system supports it (Windows cannot open folders)."""
    try:
        handle = os.open(folder, os.O_RDONLY)
    except OSError:
        return
    try:
        os.fsync(handle)
    except OSError:
        pass
    finally:
        os.close(handle)


def file_digest(path: Path) -> str:
    """Return the SHA-256 of an ordinary file's bytes, in hexadecimal."""
    with open_regular(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
