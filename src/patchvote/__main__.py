"""`python -m patchvote` runs the command `patchvote`."""

from __future__ import annotations

import gc
import signal
import sys
from typing import NoReturn

from .utils.terminal import INTERRUPTION

# Allocations between two searches for cyclic garbage. Imports allocate much and leave no garbage: with Python's 700,
# the searches take a twentieth of the start of a command. An array counts as one allocation, whatever its size.
_GARBAGE_THRESHOLD = 100_000


def main() -> NoReturn:
    """Run the command line, and handle Ctrl-C while it is imported as well."""
    gc.set_threshold(_GARBAGE_THRESHOLD)
    try:
        from .cli import main as run  # takes a moment

        run()
    except KeyboardInterrupt:
        sys.stderr.write(f"{INTERRUPTION}\n")
        sys.exit(130)
    finally:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # the command is done; threads may still be ending


if __name__ == "__main__":
    main()
