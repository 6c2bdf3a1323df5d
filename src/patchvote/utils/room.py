"""A limit on memory that all threads share: a thread requests its bytes first, and waits until they are free."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator


class Room:
    """A number of bytes that threads take and give back.

    Take everything that is needed at once, and take nothing more before it is given back: then no thread waits while it
    holds bytes, and there is no deadlock.

    Parameters
    ----------
    size : int
        Number of bytes in total.

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
        """Wait until `count` bytes are free, and hold them while the block runs.

        Raises
        ------
        MemoryError
            The total is smaller than `count`.
        """
        if count > self.size:
            raise MemoryError(f"{count:,} bytes are more than the total of {self.size:,}")
        with self._turn, self._changed:  # only one thread waits for bytes: small requests cannot starve a large one
            self._changed.wait_for(lambda: self.free >= count)
            self.free -= count
        try:
            yield
        finally:
            with self._changed:
                self.free += count
                self._changed.notify()
