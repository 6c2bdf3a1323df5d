"""Open streams of events, of which there may be only so many."""

from __future__ import annotations

import weakref
from collections.abc import AsyncIterator, Callable

from .problems import Problem


class Streams:
    """Counts open streams.

    Parameters
    ----------
    most : int
        Streams that may be open at once.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self.count = 0

    def open(self, events: AsyncIterator[str]) -> AsyncIterator[str]:
        """Return events that count as an open stream until they end or their reader goes away.

        Raises
        ------
        Problem
            Too many streams are open.
        """
        if self.count >= self._most:
            raise Problem(429, "busy", "too many streams are open. Ask for the state of the job instead.", 5)
        self.count += 1  # now, and not when the first event is read: many may ask at once
        leave: list[Callable[[], object]] = []
        stream = self._counted(events, leave)
        # A reader that goes away before the first event never starts the stream, whose end would otherwise count.
        ended = weakref.finalize(stream, self._leave)
        ended.atexit = False
        leave.append(ended)
        return stream

    async def _counted(self, events: AsyncIterator[str], leave: list[Callable[[], object]]) -> AsyncIterator[str]:
        try:
            async for event in events:
                yield event
        finally:
            leave[0]()  # only the first call counts

    def _leave(self) -> None:
        self.count -= 1
