"""Open streams of events, of which there may be only so many."""

from __future__ import annotations

from collections.abc import AsyncIterator

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
        return self._counted(events)

    async def _counted(self, events: AsyncIterator[str]) -> AsyncIterator[str]:
        self.count += 1
        try:
            async for event in events:
                yield event
        finally:
            self.count -= 1
