"""Handle Ctrl-C, and standard streams that are closed, full, or no longer read.

A command writes its result to standard output through `terminal.emit`, which raises an exception of its own if that
fails. This module makes the streams usable before a command begins, and cleans up after it, so that Python reports no
error when it closes them.
"""

from __future__ import annotations

import codecs
import contextlib
import functools
import io
import os
import sys
from collections.abc import Callable, Iterator

from ..utils.terminal import ANYTIME, PRESSED

_REPLACED: dict[str, str] = {}  # encoding of each standard stream in which letters were replaced

KEPT = "What was extracted is kept: run the same command again to continue."


class Interrupted(Exception):  # noqa: N818 - not an error
    """The user pressed Ctrl-C; the message says what happened to the results so far."""


def interruptible(command: Callable[..., None]) -> Callable[..., None]:
    """Make Ctrl-C end a command with `Interrupted`; Typer would end it without a message."""

    @functools.wraps(command)
    def run(*words: object, **options: object) -> None:
        with interruption(ANYTIME):
            command(*words, **options)

    return run


@contextlib.contextmanager
def interruption(text: str | Callable[[], str]) -> Iterator[None]:
    """On Ctrl-C within the block, raise `Interrupted` with this text, or with what a function then returns."""
    try:
        yield
    except KeyboardInterrupt:
        raise Interrupted(text if isinstance(text, str) else text()) from None
    except Interrupted:
        raise
    except Exception:
        if PRESSED:  # a library has replaced the exception
            raise Interrupted(text if isinstance(text, str) else text()) from None
        raise


def open_streams() -> None:
    """Replace standard streams that were closed before the command began.

    A file that is opened later must not get the descriptor of a standard stream, or messages of libraries would be
    written into it. Messages to a closed standard error are lost; printing to a closed standard output fails.
    """
    for number, flags in ((0, os.O_RDONLY), (1, os.O_RDONLY), (2, os.O_WRONLY)):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, flags)  # takes the lowest free descriptor, which is this one
    if sys.stdout is None:
        sys.stdout = open(1, "w", encoding="utf-8", errors="replace", closefd=False)  # noqa: SIM115
    if sys.stderr is None:
        sys.stderr = open(2, "w", encoding="utf-8", errors="replace", closefd=False)  # noqa: SIM115


def replace_unknown_letters() -> None:
    """Print "?" for letters that the encoding of a standard stream lacks: a name must not end the command."""
    _REPLACED.clear()
    for name, stream in (("standard output", sys.stdout), ("standard error", sys.stderr)):
        if isinstance(stream, io.TextIOWrapper):
            handler = f"patchvote, {name}"
            codecs.register_error(handler, functools.partial(_replace, name))
            stream.reconfigure(errors=handler)


def replaced_sentences() -> list[str]:
    """Return a sentence on each stream in which letters were replaced."""
    return [
        f'letters that {encoding}, the encoding of {name}, does not have were printed as "?". Set the environment '
        "variable PYTHONUTF8=1 to print UTF-8; files that patchvote writes itself are UTF-8 always."
        for name, encoding in _REPLACED.items()
    ]


def _replace(name: str, error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    _REPLACED[name] = error.encoding
    return "?" * (error.end - error.start), error.end


def close_streams() -> None:
    """Discard what could not be written to a stream, so that Python does not try again at exit."""
    for stream, number in ((sys.stdout, 1), (sys.stderr, 2)):
        try:
            stream.flush()
        except (OSError, ValueError):
            with contextlib.suppress(OSError):
                nowhere = os.open(os.devnull, os.O_WRONLY)
                os.dup2(nowhere, number)
                os.close(nowhere)
