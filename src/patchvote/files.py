"""Files that are either whole or absent.

Every file that patchvote writes goes to a temporary name in the same folder, is synced, and is then renamed: a reader,
a crash or a full disk never meets half a file. Temporary names begin with a dot and carry the host and process that
own them, so that the leavings of a dead process can be told from the work of a living one.
"""

from __future__ import annotations

import hashlib
import os
import re
import socket
import uuid
from collections.abc import Iterable
from pathlib import Path

_TEMPORARY = re.compile(r"^\.writing-(?P<host>[^@]*)@(?P<pid>\d+)-[0-9a-f]+$")


def _host() -> str:
    return re.sub(r"[^A-Za-z0-9.-]", "-", socket.gethostname())


def write_atomically(path: Path, parts: Iterable[bytes | memoryview]) -> None:
    """Write `parts` one after the other; `path` is at every moment absent, or old and whole, or new and whole."""
    temporary = path.with_name(f".writing-{_host()}@{os.getpid()}-{uuid.uuid4().hex}")
    try:
        with temporary.open("xb") as file:
            for part in parts:
                file.write(part)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    _sync_folder(path.parent)


def _sync_folder(folder: Path) -> None:
    """Make a rename in `folder` survive a power cut, where the system can (Windows cannot open folders)."""
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


def remove_leavings(folder: Path) -> None:
    """Remove the temporary files that dead processes of this host left in `folder`."""
    for path in folder.iterdir():
        match = _TEMPORARY.match(path.name)
        if match and match["host"] == _host() and not _is_alive(int(match["pid"])):
            path.unlink(missing_ok=True)


def _is_alive(pid: int) -> bool:
    if os.name == "nt":  # there, signal 0 would end the process instead of asking after it
        return True
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


def file_digest(path: Path) -> str:
    """SHA-256 of a file's bytes, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
