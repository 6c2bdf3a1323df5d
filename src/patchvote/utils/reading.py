"""Read untrusted files: only ordinary ones, and at most a given number of bytes.

A path can lead to a pipe without a writer, a device without an end, or a file that grows while it is read. Each of them
would block the reader for ever or fill the memory; here they raise an `OSError` with the reason in its `strerror`.
"""

from __future__ import annotations

import errno
import io
import os
import stat
from pathlib import Path
from typing import Any

from .remote import RemotePath

# Without these, a pipe without a writer would block `open`, and a terminal could become the controlling one.
_FLAGS = getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOCTTY", 0)
_KINDS = {stat.S_IFDIR: "a folder", stat.S_IFIFO: "a pipe", stat.S_IFSOCK: "a socket"}  # all others are devices

_BLOCK = 1 << 16  # bytes that are read at once of a file that has more than the system reports
_MAX_TOML_BYTES = 1 << 18  # 262 kB; the largest of our files has 5 kB
_MAX_TOML_DOTS = 200  # per line: the parser's time for a dotted key grows with the square of the number of its parts


def open_regular(path: str | Path) -> io.BufferedReader:
    """Open an ordinary file for reading, without blocking on anything else; also one of a remote file system."""
    if isinstance(path, RemotePath):
        return path.open_bytes()
    try:
        _check_regular(path, Path(path).stat().st_mode)  # opening some devices has effects, such as rewinding a tape
    except ValueError:
        raise OSError(errno.EINVAL, "no file can have this name", str(path)) from None
    file = open(path, "rb", opener=lambda name, flags: os.open(name, flags | _FLAGS))  # noqa: SIM115
    try:
        _check_regular(path, os.fstat(file.fileno()).st_mode)  # the path may lead elsewhere by now
    except BaseException:
        file.close()
        raise
    return file


def _check_regular(path: str | Path, mode: int) -> None:
    if not stat.S_ISREG(mode):
        kind = _KINDS.get(stat.S_IFMT(mode), "a device")
        raise OSError(errno.EINVAL, f"it is {kind}, not an ordinary file", str(path))


def check_regular(path: str | Path) -> None:
    """Raise what `open_regular` would raise, for readers that open files themselves."""
    open_regular(path).close()


def read_bytes(path: str | Path, limit: int) -> bytes:
    """Read a whole ordinary file; `OSError` if it has more than `limit` bytes, whatever size the system reports."""
    with open_regular(path) as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(0)
        content = file.read(min(size, limit) + 1)
        while len(content) <= limit and (more := file.read(_BLOCK)):
            content += more
    if len(content) > limit:
        raise OSError(errno.EFBIG, f"it has more than the {limit:,} bytes that are read of such a file", str(path))
    return content


def read_text(path: str | Path, limit: int, encoding: str = "utf-8") -> str:
    """Read a whole ordinary file of at most `limit` bytes as text, with its line ends unchanged."""
    return read_bytes(path, limit).decode(encoding)


def read_toml(path: str | Path) -> dict[str, Any]:
    """Read an untrusted TOML file in bounded time; `OSError` or `ValueError` say why it cannot be read."""
    return parse_toml(read_text(path, _MAX_TOML_BYTES))


def parse_toml(text: str) -> dict[str, Any]:
    """Parse an untrusted text in TOML in bounded time; `ValueError` if it is none, or too large."""
    import tomllib

    if len(text) > _MAX_TOML_BYTES:
        raise ValueError(f"it has more than {_MAX_TOML_BYTES:,} characters")
    for number, line in enumerate(text.splitlines(), start=1):
        if line.count(".") > _MAX_TOML_DOTS:
            raise ValueError(f"line {number} has more than {_MAX_TOML_DOTS:,} dots")
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
