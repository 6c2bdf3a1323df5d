"""The protocol of connections: that of uvicorn, which also closes connections whose requests do not begin in time.

A client that sends the head of a request byte by byte would otherwise hold a connection for as long as it likes.
"""

from __future__ import annotations

import asyncio
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol


def protocol(seconds: float) -> type[H11Protocol]:
    """Return the class of connections on which the head of each request has to arrive within some seconds."""

    class Timely(H11Protocol):
        _timer: asyncio.TimerHandle | None = None

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            self._watch()

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            self._watch()

        def on_response_complete(self) -> None:
            super().on_response_complete()
            self._watch()

        def connection_lost(self, exc: Exception | None) -> None:
            self._forget()
            super().connection_lost(exc)

        def _watch(self) -> None:
            """Start the time when a head is awaited, and stop it when one is complete."""
            if self.conn.their_state is not h11.IDLE:
                self._forget()
            elif self._timer is None:
                self._timer = self.loop.call_later(seconds, self._expire)

        def _forget(self) -> None:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None

        def _expire(self) -> None:
            self._timer = None
            if self.conn.their_state is h11.IDLE and not self.transport.is_closing():
                self.transport.close()

    return Timely
