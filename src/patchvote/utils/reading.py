"""Read untrusted files: only ordinary ones, and at most a given number of bytes.

A path can lead to a pipe without a writer, a device without an end, or a file that grows while it is read. Each of them
would block the reader for ever or fill the memory. Here they raise an `OSError` at once, with the reason in its
`strerror`, so that a caller handles them as any other file that cannot be read.
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

_MAX_TOML_BYTES = 1 << 18  # 262 kB; the largest of our files has 5 kB
_MAX_TOML_DOTS = 200  # per line: the parser's time for a dotted key grows with the square of the number of its parts

_KINDS = (
    (stat.S_ISDIR, "it is a folder, not a file"),
    (stat.S_ISFIFO, "it is a pipe, not an ordinary file"),
    (stat.S_ISSOCK, "it is a socket, not an ordinary file"),
    (stat.S_ISCHR, "it is a device, not an ordinary file"),
    (stat.S_ISBLK, "it is a device, not an ordinary file"),
)


def open_regular(path: str | Path) -> io.BufferedReader:
    """Open an ordinary file for reading, without ever blocking on anything else; also a file of a remote file system.

    Raises
    ------
    OSError
        The path leads to a folder, a pipe, a socket or a device, or the file cannot be opened.
    """
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


def check_regular(path: str | Path) -> None:
    """Raise what `open_regular` would raise, for readers that open files themselves."""
    open_regular(path).close()


def read_bytes(path: str | Path, limit: int) -> bytes:
    """Read a whole ordinary file of at most `limit` bytes.

    The limit applies to the bytes that are read, not to the size that the system reports: that is 0 for files in /proc.

    Raises
    ------
    OSError
        The file cannot be read, or has more bytes.
    """
    with open_regular(path) as file:
        size = path.stat().st_size if isinstance(path, RemotePath) else os.fstat(file.fileno()).st_size
        content = file.read(size + 1) if size <= limit else b""
        while size <= limit and len(content) <= limit and (more := file.read(limit + 1 - len(content))):
            content += more
    if max(size, len(content)) > limit:
        raise OSError(errno.EFBIG, f"it has more than the {limit:,} bytes that are read of such a file", str(path))
    return content


def read_text(path: str | Path, limit: int, encoding: str = "utf-8") -> str:
    """Read a whole ordinary file of at most `limit` bytes as text, with its line ends unchanged.

    Raises
    ------
    OSError
        The file cannot be read, or has more bytes.
    UnicodeDecodeError
        The file is not text of this encoding.
    """
    return read_bytes(path, limit).decode(encoding)


def read_toml(path: str | Path) -> dict[str, Any]:
    """Read an untrusted TOML file in bounded time.

    Raises
    ------
    OSError
        The file cannot be read, or is far too large.
    ValueError
        The file is not TOML, or is nested too deeply.
    """
    return parse_toml(read_text(path, _MAX_TOML_BYTES))


def parse_toml(text: str) -> dict[str, Any]:
    """Parse an untrusted text in TOML in bounded time.

    Raises
    ------
    ValueError
        The text is too long, is not TOML, or is nested too deeply.
    """
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


def _check_regular(path: str | Path, mode: int) -> None:
    if not stat.S_ISREG(mode):
        reason = next((message for is_kind, message in _KINDS if is_kind(mode)), "it is not an ordinary file")
        raise OSError(errno.EINVAL, reason, str(path))
