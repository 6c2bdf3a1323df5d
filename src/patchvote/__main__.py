"""`python -m patchvote` is the command `patchvote`."""

from __future__ import annotations

import os
import signal
import sys
from types import FrameType
from typing import NoReturn

_pressed = False  # whether Ctrl-C was pressed once the command had begun


def _leave(number: int, frame: FrameType | None) -> NoReturn:
    """End at once: nothing has begun yet, and an exception in the middle of an import may turn into another one."""
    os.write(2, b"interrupted.\n")
    os._exit(130)


def _interrupt(number: int, frame: FrameType | None) -> NoReturn:
    """Interrupt the command; commands import libraries, too, and so it is noted that Ctrl-C was pressed."""
    global _pressed
    _pressed = True
    raise KeyboardInterrupt


def main() -> NoReturn:
    """Run the command line, and obey Ctrl-C from the first moment to the last."""
    try:
        try:
            if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # not where Ctrl-C is to be ignored
                signal.signal(signal.SIGINT, _leave)
            from .cli import main as run  # takes a moment

            if signal.getsignal(signal.SIGINT) is _leave:
                signal.signal(signal.SIGINT, _interrupt)
            run()
        finally:
            signal.signal(signal.SIGINT, signal.SIG_IGN)  # all is said and done; threads may still be ending
            # Python remembers a Ctrl-C that left code run from text, as that of dataclasses is, and would in the end
            # kill itself by the signal though it was dealt with. Running any other text makes it forget.
            exec("pass")  # noqa: S102
    except (KeyboardInterrupt, Exception) as error:  # also in the moment before it was ignored
        if not (_pressed or isinstance(error, KeyboardInterrupt)):
            raise
        sys.stderr.write("interrupted.\n")
        sys.exit(130)


if __name__ == "__main__":
    main()
