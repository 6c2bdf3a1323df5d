"""`python -m patchvote` runs the command `patchvote`."""

from __future__ import annotations

import gc
import os
import signal
import sys
from types import FrameType
from typing import NoReturn

from .utils.terminal import ANYTIME, BEFORE, PRESSED

# Allocations between two searches for cyclic garbage. Imports allocate much and leave no garbage: with Python's 700,
# the searches take a twentieth of the start of a command. An array counts as one allocation, whatever its size.
_GARBAGE_THRESHOLD = 100_000


def _leave(number: int, frame: FrameType | None) -> NoReturn:
    """Exit at once: nothing has begun, and an exception during an import may turn into another one."""
    os.write(2, f"{BEFORE}\n".encode())
    os._exit(130)


def _interrupt(number: int, frame: FrameType | None) -> NoReturn:
    """Interrupt the command, and record it: commands also import libraries, where the exception may be replaced."""
    PRESSED.is_set = True
    raise KeyboardInterrupt


def main() -> NoReturn:
    """Run the command line, and handle Ctrl-C from start to end."""
    try:
        try:
            if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # not if Ctrl-C is ignored
                signal.signal(signal.SIGINT, _leave)
            gc.set_threshold(_GARBAGE_THRESHOLD)
            from .cli import main as run  # takes a moment

            if signal.getsignal(signal.SIGINT) is _leave:
                signal.signal(signal.SIGINT, _interrupt)
            run()
        finally:
            signal.signal(signal.SIGINT, signal.SIG_IGN)  # the command is done; threads may still be ending
            # If Ctrl-C interrupted code that was compiled from text, as that of dataclasses is, Python remembers it and
            # kills itself by the signal at exit, although it was handled. Running any other text resets that.
            exec("pass")  # noqa: S102
    except SystemExit as ended:
        if PRESSED and "torch" in sys.modules and "ray" not in sys.modules:  # Ray has to end its workers
            # All is said and written, and nobody who pressed Ctrl-C wants to wait until torch is taken apart.
            os._exit(ended.code if isinstance(ended.code, int) else 1)
        raise
    except (KeyboardInterrupt, Exception) as error:  # also just before Ctrl-C is ignored
        if not (PRESSED or isinstance(error, KeyboardInterrupt)):
            raise
        sys.stderr.write(f"{ANYTIME}\n")
        sys.exit(130)


if __name__ == "__main__":
    main()
