"""The guard: which requests are answered at all, how large and how slow they may be, and what every response carries.

A page of a stranger, open in the same browser, can send requests to this machine. It is kept out three times: by the
`Host` (a name that a stranger pointed at 127.0.0.1 is not ours), by `Origin` and `Sec-Fetch-Site`, which browsers set
and pages cannot, and by the token, where one is needed. Responses allow no other origin to read them.
"""

from __future__ import annotations

import asyncio
import hmac
import ipaddress
import re
import secrets
import time
from collections.abc import Callable
from typing import Any, NoReturn

import h11
from prometheus_client import CollectorRegistry, Counter, Histogram
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from .problems import Problem, unforeseen
from .settings import Limits, Settings, is_loopback

COOKIE = "patchvote_session"
_WRONG_SECONDS = 1.0  # until a guess of the token is answered
_MOST_SESSIONS = 1000
_SAFE = ("GET", "HEAD", "OPTIONS")
# A name or an IPv4 address, or an IPv6 address in brackets; then a port. Nothing else may stand before or behind.
_HOST = re.compile(r"(?:\[(?P<six>[0-9a-f:.]+)\]|(?P<name>[a-z0-9._-]+))(?::[0-9]{0,5})?", re.IGNORECASE)
_OWN_PAGES = ("same-origin", "none")  # Sec-Fetch-Site of our page, and of an address that a user typed
_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob: data:; "
    "media-src 'self' blob:; connect-src 'self'; font-src 'self'; manifest-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(self), microphone=(), geolocation=(), payment=(), usb=()",
}
_BODY_RETRY = 2  # seconds after which to send a body again that found no room
_MIN_READING = 50_000  # bytes of a response per second that a client has to read at least
_BUCKETS = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0)  # seconds of a request


class Guard:
    """Refuses requests of strangers, reads bodies within the limits, and records every request.

    Requests are recorded under the template of their route, never under their address, which holds ids. Bytes of a
    body count until the request is answered, because what was read stays in memory until then.
    """

    def __init__(
        self,
        app: ASGIApp,
        settings: Settings,
        sessions: Sessions,
        registry: CollectorRegistry,
        log: Callable[[str], None] | None = None,
    ) -> None:
        self._app, self._settings, self._sessions, self._log = app, settings, sessions, log
        words = "Requests by route and status.", "Seconds until a response was complete."
        self._requests = Counter("patchvote_requests", words[0], ["route", "status"], registry=registry)
        self._seconds = Histogram("patchvote_request_seconds", words[1], ["route"], registry=registry, buckets=_BUCKETS)
        self._taken = 0  # bytes of the bodies of all requests; changed by the event loop alone

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or pass it on."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        start, status, complete = time.perf_counter(), 0, False
        body = _Body(self, scope, receive, self._settings.limits)

        async def sending(message: Message) -> None:
            nonlocal status, complete
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = MutableHeaders(scope=message)
                headers.update(_HEADERS)
                headers.setdefault("Cache-Control", "no-store")
            complete = message["type"] == "http.response.body" and not message.get("more_body", False)
            await send(message)

        try:
            await self._check(scope)
            body.check(int(Headers(scope=scope).get("content-length", "0")))  # as announced; h11 has checked it
            await self._app(scope, body.receive, sending)
        except Exception as error:
            # None goes on to uvicorn, whose log would show the message of the error and paths. Where a response is
            # complete, the error is logged already; where one has begun, the connection is closed.
            if not complete:
                problem = error if isinstance(error, Problem) else unforeseen(error)
                if not status:
                    await problem.response()(scope, receive, sending)
        finally:
            self._taken -= body.count
            self._record(scope, status or 500, time.perf_counter() - start)

    def take(self, count: int) -> None:
        """Count bytes of a body; refuse them where all bodies together would take too much memory."""
        if self._taken + count > self._settings.limits.bytes_in_flight:
            raise Problem(429, "busy", "too much is being sent at once. Try again in a moment.", _BODY_RETRY)
        self._taken += count

    async def _check(self, scope: Scope) -> None:
        headers, token = Headers(scope=scope), self._settings.token
        host = headers.get("host", "")
        if len(headers.getlist("host")) != 1 or not allowed_host(host, self._settings):
            raise Problem(421, "host", "this server does not go by that name. Start it with --allow-host NAME.")
        is_private = scope["path"].startswith("/v1") or scope["path"] == "/metrics"
        # Following a link to the page itself is harmless; everything else is for our own page alone.
        if _is_foreign(headers, host) and (is_private or scope["method"] not in _SAFE):
            raise Problem(403, "origin", "requests from pages of other origins are not answered.")
        if token and is_private and scope["path"] != "/v1/session" and not self._sessions.has(headers):
            kind, _, given = headers.get("authorization", "").partition(" ")
            if not given:
                raise Problem(401, "token", "the token is missing: send it as Authorization: Bearer TOKEN.")
            if kind.lower() != "bearer" or not same(given.strip(), token):
                await refuse_guess()

    def _record(self, scope: Scope, status: int, seconds: float) -> None:
        route = str(getattr(scope.get("route"), "path", "other"))
        self._requests.labels(route, status).inc()
        self._seconds.labels(route).observe(seconds)
        if self._log is not None:
            self._log(f"{scope['method']} {route} {status} {1000 * seconds:.0f} ms")


class _Body:
    """The body of one request, while it arrives: too large 413, too slow 408, too many at once 429."""

    def __init__(self, guard: Guard, scope: Scope, receive: Receive, limits: Limits) -> None:
        self._guard, self._receive, self._seconds = guard, receive, limits.body_seconds
        self._most = _max_body(scope["method"], scope["path"], limits)
        self._until: float | None = None
        self._ended = False
        self.count = 0

    def check(self, size: int) -> None:
        """Refuse a body of this size, also one that is announced, before a byte of it is read."""
        if size > self._most:
            most = self._most / 1e6
            message = f"the request is larger than {most:,.0f} MB. Send fewer or smaller files."
            raise Problem(413, "too_large", message)

    async def receive(self) -> Message:
        """Receive the next part of the body."""
        if self._ended:  # what comes now says that the client has gone, and may come at any time
            return await self._receive()
        self._until = self._until or asyncio.get_running_loop().time() + self._seconds
        try:
            async with asyncio.timeout_at(self._until):
                message = await self._receive()
        except TimeoutError:
            raise Problem(408, "slow", f"the request did not arrive within {self._seconds:.0f} seconds.") from None
        size = len(message.get("body", b""))
        self.check(self.count + size)
        self._guard.take(size)
        self.count += size
        self._ended = message["type"] != "http.request" or not message.get("more_body", False)
        return message


def _max_body(method: str, path: str, limits: Limits) -> int:
    """Return how large the body of a request may be: most hold a few words, whose JSON is larger in memory."""
    if method in ("POST", "PUT") and (path == "/v1/models" or path.endswith("/model")):
        return limits.model_bytes
    if method == "POST" and (path in ("/v1/predict", "/v1/explain") or path.endswith("/photos")):
        return limits.body_bytes
    return min(limits.words_bytes, limits.body_bytes)


async def refuse_guess() -> NoReturn:
    """Refuse a wrong token, slowly."""
    await asyncio.sleep(_WRONG_SECONDS)
    raise Problem(401, "token", "the token is wrong: send the server's as Authorization: Bearer TOKEN.")


class Sessions:
    """Cookies that stand for the token: random, and known until they are ended or the server is."""

    def __init__(self) -> None:
        self._begun: dict[str, None] = {}  # the oldest first

    def begin(self) -> str:
        """Return the cookie of a new session."""
        cookie = secrets.token_urlsafe()
        self._begun[cookie] = None
        for oldest in list(self._begun)[:-_MOST_SESSIONS]:
            del self._begun[oldest]
        return cookie

    def has(self, headers: Headers) -> bool:
        """Return whether a request belongs to a session."""
        return _cookie(headers.get("cookie", "")) in self._begun

    def end(self, headers: Headers) -> None:
        """End the session of a request."""
        self._begun.pop(_cookie(headers.get("cookie", "")), None)


def same(one: str, other: str) -> bool:
    """Return whether two secrets are equal, in a time that does not depend on where they differ."""
    return hmac.compare_digest(one.encode("utf-8", "surrogateescape"), other.encode("utf-8", "surrogateescape"))


def allowed_host(host: str, settings: Settings) -> bool:
    """Return whether the `Host` of a request names this server.

    Addresses cannot be pointed elsewhere by a stranger's name server, so they are allowed where the server is reached
    from other machines; names are allowed only if they were listed.
    """
    parts = _HOST.fullmatch(host)
    name = "" if parts is None else (parts["six"] or parts["name"]).lower().rstrip(".")
    if is_loopback(name) or name in (settings.host.lower(), *(known.lower() for known in settings.hosts)):
        return bool(name)
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return not is_loopback(settings.host)


def _is_foreign(headers: Headers, host: str) -> bool:
    """Return whether a page of another origin sent a request; programs send neither of these headers."""
    origin, site = headers.get("origin"), headers.get("sec-fetch-site", "none")
    own = (None, f"http://{host.lower()}", f"https://{host.lower()}")
    return (origin and origin.lower()) not in own or site not in _OWN_PAGES


def _cookie(header: str) -> str:
    """Return the value of our cookie.

    Not by `http.cookies`: some versions of Python take minutes for a long hostile header, and all forget every cookie
    if another program on this host has set one that they cannot read.
    """
    pairs = (pair.strip().partition("=") for pair in header.split(";"))
    return next((value.strip('"') for name, _, value in pairs if name == COOKIE), "")


class _TimedConnection(H11Protocol):
    """uvicorn's connection, with limits of time.

    A client that sends the head of a request byte by byte, goes on with a body that nobody reads because the request is
    answered already, or does not read its response, would otherwise hold a connection and memory as long as it likes.
    """

    limits: Limits
    _request_timer: asyncio.TimerHandle | None = None  # of what the client has to send
    _response_timer: asyncio.TimerHandle | None = None  # of what it has to read

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
        _cancel(self._request_timer)
        _cancel(self._response_timer)
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        """Start the time in which the client has to read what waits for it."""
        super().pause_writing()
        unread = sum(one.transport.get_write_buffer_size() for one in self.connections)
        seconds = self.limits.response_seconds + self.transport.get_write_buffer_size() / _MIN_READING
        _cancel(self._response_timer)
        too_much = unread > self.limits.unread_bytes
        self._response_timer = self.loop.call_later(0.0 if too_much else seconds, self.transport.abort)

    def resume_writing(self) -> None:
        _cancel(self._response_timer)
        super().resume_writing()

    def _watch(self) -> None:
        """Start the time when something is awaited, and stop it when it is complete."""
        if not self._awaits():
            _cancel(self._request_timer)
            self._request_timer = None
        elif self._request_timer is None:
            self._request_timer = self.loop.call_later(self.limits.header_seconds, self._expire)

    def _awaits(self) -> bool:
        """Return whether a head is awaited, or the rest of a body whose request is answered."""
        if self.conn.their_state is h11.SEND_BODY:
            return self.cycle is not None and self.cycle.response_complete
        return self.conn.their_state is h11.IDLE

    def _expire(self) -> None:
        self._request_timer = None
        if self._awaits() and not self.transport.is_closing():
            self.transport.close()


def protocol(limits: Limits) -> type[H11Protocol]:
    """Return the class of connections that keeps to these limits."""
    return type("TimedConnection", (_TimedConnection,), {"limits": limits})


def _cancel(timer: asyncio.TimerHandle | None) -> None:
    if timer is not None:
        timer.cancel()
