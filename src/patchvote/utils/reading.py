"""Read files that come from anywhere: ordinary files only, and no more of them than was expected.

A name can stand for a pipe that nobody writes to, a device that never ends, or a file that grows while it is read. Each
of them would make a reader wait for ever or fill the memory. Here they raise an `OSError` at once, with the reason in
its `strerror`, so that a caller treats them as any other file that cannot be read.
"""

from __future__ import annotations

import errno
import io
import os
import stat
import tomllib
from pathlib import Path
from typing import Any

# A pipe without a writer would block `open`; a terminal could become the one that controls this process.
_FLAGS = getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOCTTY", 0)

_MAX_TOML_BYTES = 1 << 18  # the largest of ours has 5 kB
_MAX_TOML_DOTS = 200  # in one line: the time that the parser takes for a dotted key grows with the square of its parts

_KINDS = (
    (stat.S_ISDIR, "it is a folder, not a file"),
    (stat.S_ISFIFO, "it is a pipe, not an ordinary file"),
    (stat.S_ISSOCK, "it is a socket, not an ordinary file"),
    (stat.S_ISCHR, "it is a device, not an ordinary file"),
    (stat.S_ISBLK, "it is a device, not an ordinary file"),
)


class NotOrdinaryError(OSError):
    """A name that stands for something else than an ordinary file."""


def open_regular(path: str | Path) -> io.BufferedReader:
    """Open an ordinary file for reading, without ever waiting for one that is not.

    Raises
    ------
    NotOrdinaryError
        It is a folder, a pipe, a socket or a device.
    OSError
        It cannot be opened.
    """
    try:
        _check(path, Path(path).stat().st_mode)  # opening some devices does something, such as rewinding a tape
    except ValueError:
        raise OSError(errno.EINVAL, "no file can have this name", str(path)) from None
    file = open(path, "rb", opener=lambda name, flags: os.open(name, flags | _FLAGS))  # noqa: SIM115
    try:
        _check(path, os.fstat(file.fileno()).st_mode)  # the name may have changed hands since
    except BaseException:
        file.close()
        raise
    return file


def check_regular(path: str | Path) -> None:
    """Raise what `open_regular` would raise, for readers that open files themselves."""
    open_regular(path).close()


def read_bytes(path: str | Path, limit: int) -> bytes:
    """Read a whole ordinary file of at most `limit` bytes.

    The limit holds for what is read, not for the size that the file claims: files below /proc claim to be empty.

    Raises
    ------
    OSError
        It cannot be read, or has more bytes.
    """
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        content = file.read(size + 1) if size <= limit else b""
        while size <= limit and len(content) <= limit and (more := file.read(limit + 1 - len(content))):
            content += more
    if max(size, len(content)) > limit:
        raise OSError(errno.EFBIG, f"it has more than the {limit:,} bytes that are read of such a file", str(path))
    return content


def read_text(path: str | Path, limit: int, encoding: str = "utf-8") -> str:
    """Read a whole ordinary file of at most `limit` bytes as text, with line ends as they are.

    Raises
    ------
    OSError
        It cannot be read, or has more bytes.
    UnicodeDecodeError
        It is not text of this encoding.
    """
    return read_bytes(path, limit).decode(encoding)


def read_toml(path: str | Path) -> dict[str, Any]:
    """Read a TOML file, whatever it holds, in bounded time.

    Raises
    ------
    OSError
        It cannot be read, or is far too large.
    ValueError
        It is not TOML, or is nested too deeply.
    """
    text = read_text(path, _MAX_TOML_BYTES)
    for number, line in enumerate(text.splitlines(), start=1):
        if line.count(".") > _MAX_TOML_DOTS:
            raise ValueError(f"line {number} has more than {_MAX_TOML_DOTS:,} dots")
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def _check(path: str | Path, mode: int) -> None:
    if not stat.S_ISREG(mode):
        reason = next((words for is_kind, words in _KINDS if is_kind(mode)), "it is not an ordinary file")
        raise NotOrdinaryError(errno.EINVAL, reason, str(path))
