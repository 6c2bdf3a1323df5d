"""`python -m patchvote` is the command `patchvote`."""

from __future__ import annotations

import signal
import sys
from typing import NoReturn


def main() -> NoReturn:
    """Run the command line, and obey Ctrl-C from the first moment to the last."""
    try:
        try:
            from .cli import main as run  # takes a moment

            run()
        finally:
            signal.signal(signal.SIGINT, signal.SIG_IGN)  # all is said and done; threads may still be ending
    except KeyboardInterrupt:  # also in the moment before it was ignored
        sys.stderr.write("interrupted.\n")
        sys.exit(130)


if __name__ == "__main__":
    main()
