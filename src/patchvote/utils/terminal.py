r"""Text for people: everything that is printed goes through here, one line at a time.

Names of files, classes and networks, model cards and messages of libraries are untrusted text. Printed raw, they could
move the cursor, change colours, reverse the reading order or imitate further lines of output. Characters that control a
terminal are therefore printed as escapes such as ``\x1b``.

On a terminal, sentences are wrapped between words. In a pipe or a file each stays on one line, for programs to search.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import sys
from collections.abc import Iterator
from typing import Any, TextIO

from ..errors import PatchvoteError
from .columns import wrapped

_LEAST_COLUMNS = 20  # of a terminal; what says that it has fewer does not know

# Control characters of ASCII and Latin-1 (C0, DEL, C1), invisible characters that change the reading order or separate
# lines, and lone surrogates, with which Python represents bytes of file names that are not UTF-8. Joiners (U+200C,
# U+200D) stay: scripts and emoji need them.
_CONTROL = re.compile(
    "[\x00-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\ud800-\udfff"
    "\U000e0000-\U000e007f]"
)


class ReaderGone(Exception):  # noqa: N818 - no error: `patchvote predict … | head` has all that it needs
    """The process that read standard output has ended."""


def printable(text: object) -> str:
    r"""Return text that a terminal shows as it is, on one line.

    Examples
    --------
    >>> printable("a\x1b[2Jb\nc")
    'a\\x1b[2Jb\\nc'
    >>> printable("Straße 桜 👩‍🌾")
    'Straße 桜 👩‍🌾'
    """
    return _CONTROL.sub(lambda match: match[0].encode("unicode_escape").decode("ascii"), str(text))


def printable_json(value: Any) -> str:
    r"""Return one line of JSON that a terminal shows as it is; parsing it restores the exact value.

    Examples
    --------
    >>> printable_json({"file": "é\x9b.jpg"})
    '{"file": "é\\u009b.jpg"}'
    """
    text = json.dumps(value, ensure_ascii=False)
    return _CONTROL.sub(lambda match: json.dumps(match[0])[1:-1], text)


def show(*lines: object, indent: int = 0) -> None:
    """Print lines of the result to standard output; on a terminal, long ones are wrapped, and `indent` what follows.

    Lines that are themselves indented are wrapped only if `indent` is set: others are rows of tables, and commands.
    """
    for line in lines:
        for part in _fitted(printable(line), sys.stdout, indent):
            emit(part)


def muted(text: str) -> str:
    """Return printable text as a terminal shows it faintly; as it is where output goes elsewhere or has no colours."""
    plain = "NO_COLOR" in os.environ or os.environ.get("TERM", "dumb") == "dumb" or not sys.stdout.isatty()
    return text if plain or not text else f"\x1b[2m{text}\x1b[22m"


def columns_of(stream: TextIO) -> int | None:
    """Return the number of columns of the terminal that a stream leads to; None where it leads elsewhere."""
    try:
        if not stream.isatty():
            return None
        columns = int(os.environ.get("COLUMNS", 0)) or os.get_terminal_size(stream.fileno()).columns
    except (OSError, ValueError):  # a terminal that does not tell its size, or a stream without a number
        return None
    return columns if columns >= _LEAST_COLUMNS else None


def _fitted(line: str, stream: TextIO, indent: int) -> list[str]:
    """Return the lines of a sentence; rows of tables, and commands, are indented and stay as they are."""
    columns = columns_of(stream)
    stays = line.startswith(" ") and not indent
    return [line] if columns is None or stays else wrapped(line, columns, indent)


def show_json(value: Any, indent: int | None = None) -> None:
    """Print the result to standard output as JSON in ASCII."""
    emit(json.dumps(value, indent=indent))


def emit(text: str, *, flush: bool = False) -> None:
    """Print text to standard output unchanged; the caller has escaped it, or only programs read it."""
    with _standard_output():
        print(text, file=sys.stdout, flush=flush)  # noqa: T201


def flush_output() -> None:
    """Flush standard output."""
    with _standard_output():
        sys.stdout.flush()


@contextlib.contextmanager
def _standard_output() -> Iterator[None]:
    try:
        yield
    except BrokenPipeError:
        raise ReaderGone from None
    except OSError as error:
        reason = "it is closed" if error.errno == errno.EBADF else error.strerror or error
        raise PatchvoteError(f"standard output cannot be written: {reason}.") from error


def say(*lines: object) -> None:
    """Print messages to standard error, which are not the result; they are dropped where it is closed or full."""
    if sys.stderr is None:  # print would write to standard output instead
        return
    with contextlib.suppress(OSError, ValueError):
        for line in lines:
            print(*_fitted(printable(line), sys.stderr, 0), sep="\n", file=sys.stderr, flush=True)  # noqa: T201
