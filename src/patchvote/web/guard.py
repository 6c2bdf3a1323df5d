"""The guard: which requests are answered at all, and the headers that every response carries.

A page of a stranger, open in the same browser, can send requests to this machine. It is kept out three times: by the
`Host` (a name that a stranger pointed at 127.0.0.1 is not ours), by `Origin` and `Sec-Fetch-Site`, which browsers set
and pages cannot, and by the token, where one is needed. Responses allow no other origin to read them.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import re
from collections.abc import Mapping

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from .problems import Problem
from .settings import Settings, is_loopback

COOKIE = "patchvote_session"
_SAFE = ("GET", "HEAD", "OPTIONS")
_OPEN = ("/v1/session",)  # how a page presents its token
# A name or an IPv4 address, or an IPv6 address in brackets; then a port. Nothing else may stand before or behind.
_HOST = re.compile(r"(?:\[(?P<six>[0-9a-f:.]+)\]|(?P<name>[a-z0-9._-]+))(?::[0-9]{0,5})?", re.IGNORECASE)
_OWN_PAGES = ("same-origin", "none")  # Sec-Fetch-Site of our page, and of an address that a user typed
_HEADERS: Mapping[str, str] = {
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


class Guard:
    """Refuses requests of strangers, and adds the headers of security to every response.

    Parameters
    ----------
    app : ASGI application
        Application behind the guard.
    settings : Settings
        Settings of the server.
    """

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        self._app, self._settings = app, settings
        self._session = session_of(settings.token)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or pass it on."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":  # there are no other protocols here
            return

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers[name] = value
                if "cache-control" not in headers:
                    headers["Cache-Control"] = "no-store"
            await send(message)

        try:
            self._check(scope)
        except Problem as problem:
            await problem.response()(scope, receive, guarded)
            return
        await self._app(scope, receive, guarded)

    def _check(self, scope: Scope) -> None:
        headers = Headers(scope=scope)
        host = headers.get("host", "")
        if len(headers.getlist("host")) != 1 or not allowed_host(host, self._settings):
            raise Problem(421, "host", "this server does not go by that name. Start it with --allow-host NAME.")
        _check_origin(scope["method"], scope["path"], headers, host)
        if self._settings.token and _is_protected(scope["path"]) and not self._is_known(headers):
            raise Problem(401, "token", "the token is missing or wrong: send it as Authorization: Bearer TOKEN.")

    def _is_known(self, headers: Headers) -> bool:
        """Whether a request carries the token or the cookie; both are compared in constant time."""
        kind, _, token = headers.get("authorization", "").partition(" ")
        by_token = kind.lower() == "bearer" and same(token.strip(), self._settings.token)
        return by_token | same(_cookie(headers.get("cookie", "")), self._session)


def session_of(token: str) -> str:
    """Return the value of the cookie that stands for a token: whoever reads it does not know the token."""
    return hmac.new(token.encode(), b"patchvote session", hashlib.sha256).hexdigest()


def same(one: str, other: str) -> bool:
    """Whether two secrets are equal, in a time that does not depend on where they differ."""
    return hmac.compare_digest(one.encode("utf-8", "surrogateescape"), other.encode("utf-8", "surrogateescape"))


def allowed_host(host: str, settings: Settings) -> bool:
    """Whether the `Host` of a request names this server.

    Addresses cannot be pointed elsewhere by a stranger's name server, so they are allowed where the server is reached
    from other machines; names are allowed only if they were listed.

    Examples
    --------
    >>> from pathlib import Path
    >>> settings = Settings(Path("data"))
    >>> [allowed_host(host, settings) for host in ("127.0.0.1:8000", "localhost", "[::1]:8000", "evil.example:8000")]
    [True, True, True, False]
    """
    parts = _HOST.fullmatch(host)
    name = "" if parts is None else (parts["six"] or parts["name"]).lower().rstrip(".")
    if is_loopback(name) or name in (settings.host.lower(), *(known.lower() for known in settings.hosts)):
        return bool(name)
    if settings.is_local:
        return False
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _check_origin(method: str, path: str, headers: Headers, host: str) -> None:
    """Refuse what a page of another origin sends; programs send neither of these headers."""
    origin, site = headers.get("origin"), headers.get("sec-fetch-site")
    foreign = origin is not None and origin.lower() not in (f"http://{host.lower()}", f"https://{host.lower()}")
    elsewhere = site is not None and site not in _OWN_PAGES
    # Following a link to the page itself is harmless; everything else is for our own page alone.
    if (foreign or elsewhere) and (method not in _SAFE or path.startswith("/v1") or path == "/metrics"):
        raise Problem(403, "origin", "requests from pages of other origins are not answered.")


def _is_protected(path: str) -> bool:
    return path not in _OPEN and (path.startswith("/v1") or path == "/metrics")


def _cookie(header: str) -> str:
    """Return the value of our cookie.

    Not by `http.cookies`: some versions of Python take minutes for a long hostile header, and all forget every cookie
    if another program on this host has set one that they cannot read.
    """
    pairs = (pair.strip().partition("=") for pair in header.split(";"))
    return next((value.strip('"') for name, _, value in pairs if name == COOKIE), "")
