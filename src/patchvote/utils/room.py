"""Memory that all threads share: who needs some says how much before, and waits until there is room."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator


class Room:
    """A number of bytes that is handed out and given back.

    Ask once for all that is needed, and not again before it was given back: then those who have some never wait, and
    nobody waits for ever.

    Parameters
    ----------
    size : int
        Bytes in all.

    Examples
    --------
    >>> room = Room(100)
    >>> with room.take(60):
    ...     room.free
    40
    """

    def __init__(self, size: int) -> None:
        self.size = self.free = size
        self._turn = threading.Lock()
        self._changed = threading.Condition()

    @contextlib.contextmanager
    def take(self, count: int) -> Iterator[None]:
        """Wait until `count` bytes are free, and hold them until the end of the block.

        Raises
        ------
        MemoryError
            There are not so many in all.
        """
        if count > self.size:
            raise MemoryError(f"{count:,} bytes are more than the {self.size:,} that there are")
        with self._turn, self._changed:  # one waits at a time: a large request is not overtaken by small ones for ever
            self._changed.wait_for(lambda: self.free >= count)
            self.free -= count
        try:
            yield
        finally:
            with self._changed:
                self.free += count
                self._changed.notify()
