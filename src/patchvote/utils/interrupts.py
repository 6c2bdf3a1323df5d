"""Whether the user pressed Ctrl-C, and what is told if nothing more is known.

The exception of Ctrl-C may be replaced on its way: a library that is being imported can turn it into an error of its
own. So the handler of the signal records it here, and an error after it counts as the interruption.
"""

from __future__ import annotations

# Nothing has begun before the command is there. Files are renamed when they are complete, so the second holds whenever
# Ctrl-C comes; long parts of a command say more.
BEFORE = "interrupted; nothing was done."
ANYTIME = "interrupted. Files that were written are complete; all others are as they were."


class Pressed:
    """The record of Ctrl-C in this process."""

    def __init__(self) -> None:
        self.is_set = False

    def __bool__(self) -> bool:
        return self.is_set


PRESSED = Pressed()
