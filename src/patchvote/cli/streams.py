"""Standard streams that are closed or full, or whose reader has gone; and Ctrl-C.

A command writes its result to standard output through `terminal.emit`, which says in an exception of its own when that
fails. Here streams are made usable before a command begins and left in peace when it has ended, so that Python has
nothing to complain about when it closes them.
"""

from __future__ import annotations

import contextlib
import functools
import os
import sys
from collections.abc import Callable, Iterator


class Interrupted(Exception):  # noqa: N818 - not an error
    """The user pressed Ctrl-C; the message says what became of the work."""


def interruptible(command: Callable[..., None]) -> Callable[..., None]:
    """Let Ctrl-C end a command by `Interrupted`; the library that calls commands would end in silence."""

    @functools.wraps(command)
    def run(*words: object, **options: object) -> None:
        with interruption("interrupted."):
            command(*words, **options)

    return run


@contextlib.contextmanager
def interruption(text: str) -> Iterator[None]:
    """Say on Ctrl-C what became of the work within."""
    try:
        yield
    except KeyboardInterrupt:
        raise Interrupted(text) from None


def open_streams() -> None:
    """Make up for streams that were closed before the command began.

    A file that is opened later must not get the number of a standard stream, or a message of some library would go into
    it. Messages to a closed standard error are lost; printing to a closed standard output fails as to a full one.
    """
    for number, flags in ((0, os.O_RDONLY), (1, os.O_RDONLY), (2, os.O_WRONLY)):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, flags)  # takes the lowest number that is free, which is this one
    if sys.stdout is None:
        sys.stdout = open(1, "w", encoding="utf-8", errors="replace", closefd=False)  # noqa: SIM115
    if sys.stderr is None:
        sys.stderr = open(2, "w", encoding="utf-8", errors="replace", closefd=False)  # noqa: SIM115


def close_streams() -> None:
    """Give up what a stream could not take, so that Python does not try again when it ends."""
    for stream, number in ((sys.stdout, 1), (sys.stderr, 2)):
        try:
            stream.flush()
        except (OSError, ValueError):
            with contextlib.suppress(OSError):
                nowhere = os.open(os.devnull, os.O_WRONLY)
                os.dup2(nowhere, number)
                os.close(nowhere)
