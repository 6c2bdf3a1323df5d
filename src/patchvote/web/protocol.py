"""The protocol of connections: that of uvicorn, which also closes connections that are held without need.

A client that sends the head of a request byte by byte, goes on with a body that nobody reads because the request is
answered already, or does not read its response, would otherwise hold a connection and memory for as long as it likes.
"""

from __future__ import annotations

import asyncio
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from .settings import Limits

_SLOWEST = 50_000  # bytes of a response per second that a client has to read at least


def protocol(limits: Limits) -> type[H11Protocol]:
    """Return the class of connections on which requests have to arrive, and responses to be read, in time."""

    class Timely(H11Protocol):
        _timer: asyncio.TimerHandle | None = None  # of what the client has to send
        _unread: asyncio.TimerHandle | None = None  # of what it has to read

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
            self._stop_timer()
            self._stop_unread()
            super().connection_lost(exc)

        def pause_writing(self) -> None:
            """Start the time in which the client has to read what waits for it."""
            super().pause_writing()
            waiting = [_unsent(other) for other in self.connections]
            seconds = limits.response_seconds + _unsent(self) / _SLOWEST
            if sum(waiting) > limits.unread_bytes:
                seconds = 0.0
            self._stop_unread()
            self._unread = self.loop.call_later(seconds, self.transport.abort)

        def resume_writing(self) -> None:
            self._stop_unread()
            super().resume_writing()

        def _watch(self) -> None:
            """Start the time when something is awaited, and stop it when it is complete."""
            if not self._awaits():
                self._stop_timer()
            elif self._timer is None:
                self._timer = self.loop.call_later(limits.header_seconds, self._expire)

        def _awaits(self) -> bool:
            """Whether a head is awaited, or the rest of a body whose request is answered."""
            if self.conn.their_state is h11.SEND_BODY:
                return self.cycle is not None and self.cycle.response_complete
            return self.conn.their_state is h11.IDLE

        def _stop_timer(self) -> None:
            if self._timer is not None:
                self._timer.cancel()
            self._timer = None

        def _stop_unread(self) -> None:
            if self._unread is not None:
                self._unread.cancel()
            self._unread = None

        def _expire(self) -> None:
            self._timer = None
            if self._awaits() and not self.transport.is_closing():
                self.transport.close()

    return Timely


def _unsent(connection: Any) -> int:
    """Return the bytes of responses that a connection holds in memory."""
    return int(connection.transport.get_write_buffer_size())
