r"""Text for people: everything that is printed goes through here, one line at a time.

Names of files, classes and networks come from anywhere, and so do model cards and the messages of libraries. Raw, they
could move the cursor, change colours, reverse the reading order or pretend to be further lines of output. Characters
that a terminal obeys instead of showing are therefore printed as escapes such as ``\x1b``.
"""

from __future__ import annotations

import contextlib
import errno
import json
import re
import sys
from collections.abc import Iterator
from typing import Any

from ..errors import PatchvoteError

# Control characters of ASCII and Latin-1 (C0, DEL, C1), invisible characters that change the reading order or separate
# lines, and halves of surrogate pairs, by which Python stands for bytes of file names that are not UTF-8. Joiners
# (U+200C, U+200D) stay: scripts and emoji need them.
_OBEYED = re.compile(
    "[\x00-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\ud800-\udfff"
    "\U000e0000-\U000e007f]"
)


class ReaderGone(Exception):  # noqa: N818 - no error: `patchvote predict … | head` has all that it wanted
    """Whoever read standard output has ended."""


def printable(text: object) -> str:
    r"""Return text that a terminal shows as it is, on one line.

    Examples
    --------
    >>> printable("a\x1b[2Jb\nc")
    'a\\x1b[2Jb\\nc'
    >>> printable("Straße 桜 👩‍🌾")
    'Straße 桜 👩‍🌾'
    """
    return _OBEYED.sub(lambda found: found[0].encode("unicode_escape").decode("ascii"), str(text))


def printable_json(value: Any) -> str:
    r"""Return one line of JSON that reads back exactly, and that a terminal shows as it is.

    Examples
    --------
    >>> printable_json({"file": "é\x9b.jpg"})
    '{"file": "é\\u009b.jpg"}'
    """
    text = json.dumps(value, ensure_ascii=False)
    return _OBEYED.sub(lambda found: json.dumps(found[0])[1:-1], text)


def show(*lines: object) -> None:
    """Print lines of the result to standard output."""
    for line in lines:
        emit(printable(line))


def show_json(value: Any, indent: int | None = None) -> None:
    """Print the result to standard output as JSON, all in ASCII."""
    emit(json.dumps(value, indent=indent))


def emit(text: str, *, flush: bool = False) -> None:
    """Print data to standard output as it is; the caller has made it harmless, or it is for programs alone."""
    with _standard_output():
        print(text, file=sys.stdout, flush=flush)  # noqa: T201


def flush_output() -> None:
    """Hand all that was printed to whoever reads it."""
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
    """Print lines that are not the result to standard error; where that is closed or full, nobody is left to tell."""
    if sys.stderr is None:  # print would take standard output instead
        return
    with contextlib.suppress(OSError, ValueError):
        for line in lines:
            print(printable(line), file=sys.stderr, flush=True)  # noqa: T201
