"""Bodies of requests: how large they may be, how long they may take, and how much memory all take together."""

from __future__ import annotations

import asyncio

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from .problems import Problem, unforeseen
from .settings import Limits

_RETRY = 2  # seconds after which to send a body again that found no room
_MODEL_PATHS = ("/v1/models",)  # and those that end in /model: they take model files
_PHOTO_PATHS = ("/v1/predict", "/v1/explain")  # and those that end in /photos: they take photos


class Bodies:
    """Reads bodies within limits: too large 413, too slow 408, too many at once 429.

    Bytes count until the request is answered, because what was read stays in memory until then.

    Parameters
    ----------
    app : ASGI application
        Application that reads the bodies.
    limits : Limits
        Limits of the server.
    """

    def __init__(self, app: ASGIApp, limits: Limits) -> None:
        self._app, self._limits = app, limits
        self._taken = 0  # bytes of all requests; changed by the event loop alone

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, with a body that is read within the limits."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        body = _Body(self, scope, receive)
        started = complete = False

        async def sending(message: Message) -> None:
            nonlocal started, complete
            started = True
            complete = message["type"] == "http.response.body" and not message.get("more_body", False)
            await send(message)

        try:
            body.check_announced()
            await self._app(scope, body.receive, sending)
        except Exception as error:
            # None goes on to uvicorn, whose log would show the message of the error and paths. Where a response is
            # complete, the error is logged already; where one has begun, the connection is closed.
            if not complete:
                problem = error if isinstance(error, Problem) else unforeseen(error)
            if not started:
                await problem.response()(scope, receive, send)
        finally:
            self._taken -= body.count

    def take(self, count: int) -> None:
        """Count bytes of a body.

        Raises
        ------
        Problem
            All bodies together would take too much memory.
        """
        if self._taken + count > self._limits.bytes_in_flight:
            raise Problem(429, "busy", "too much is being sent at once. Try again in a moment.", _RETRY)
        self._taken += count


class _Body:
    """The body of one request, while it arrives."""

    def __init__(self, bodies: Bodies, scope: Scope, receive: Receive) -> None:
        limits = bodies._limits
        self._bodies, self._receive = bodies, receive
        self._most = _most_of(scope["method"], scope["path"], limits)
        self._seconds = limits.body_seconds
        self._announced = Headers(scope=scope).get("content-length", "")
        self._until: float | None = None
        self._ended = False
        self.count = 0

    def check_announced(self) -> None:
        """Refuse a body whose length is announced and too large, before a byte of it is read."""
        if self._announced.isdecimal() and int(self._announced[:20]) > self._most:
            raise self._too_large()

    def _too_large(self) -> Problem:
        most = self._most / 1e6
        return Problem(413, "too_large", f"the request is larger than {most:,.0f} MB. Send fewer or smaller files.")

    async def receive(self) -> Message:
        """Receive the next part of the body."""
        if self._ended:  # what comes now says that the client has gone, and may come at any time
            return await self._receive()
        loop = asyncio.get_running_loop()
        self._until = self._until or loop.time() + self._seconds
        try:
            async with asyncio.timeout_at(self._until):
                message = await self._receive()
        except TimeoutError:
            raise Problem(408, "slow", f"the request did not arrive within {self._seconds:.0f} seconds.") from None
        size = len(message.get("body", b""))
        if self.count + size > self._most:
            raise self._too_large()
        self._bodies.take(size)
        self.count += size
        self._ended = message["type"] != "http.request" or not message.get("more_body", False)
        return message


def _most_of(method: str, path: str, limits: Limits) -> int:
    """Return how large the body of a request may be: most hold a few words, whose JSON is larger in memory."""
    if method in ("POST", "PUT") and (path in _MODEL_PATHS or path.endswith("/model")):
        return limits.model_bytes
    if method == "POST" and (path in _PHOTO_PATHS or path.endswith("/photos")):
        return limits.body_bytes
    return min(limits.words_bytes, limits.body_bytes)
