"""Metrics: figures of the server in the text format of Prometheus."""

from __future__ import annotations

import bisect
import collections
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

_BUCKETS = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0)  # seconds of a request
_SECONDS, _REQUESTS = "patchvote_request_seconds", "patchvote_requests_total"
_HELP = {
    _REQUESTS: "Requests by route and status.",
    _SECONDS: "Seconds until a response was complete.",
    "patchvote_photos_total": "Photos that the network described.",
    "patchvote_photos_refused_total": "Photos that were not taken because the queue was full.",
    "patchvote_jobs_total": "Jobs by how they ended.",
}
Labels = tuple[tuple[str, str], ...]


class Metrics:
    """Counters, durations of requests, and gauges that are read when they are asked for.

    Examples
    --------
    >>> metrics = Metrics()
    >>> metrics.count("patchvote_photos_total", 2)
    >>> metrics.gauge("patchvote_photos_waiting", "Photos that wait.", lambda: 3)
    >>> print(metrics.text())
    # HELP patchvote_photos_total Photos that the network described.
    # TYPE patchvote_photos_total counter
    patchvote_photos_total 2
    # HELP patchvote_photos_waiting Photos that wait.
    # TYPE patchvote_photos_waiting gauge
    patchvote_photos_waiting 3
    <BLANKLINE>
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: dict[str, collections.Counter[Labels]] = collections.defaultdict(collections.Counter)
        self._buckets: dict[str, list[int]] = {}
        self._sums: dict[str, float] = collections.defaultdict(float)
        self._gauges: dict[str, tuple[str, Callable[[], float]]] = {}

    def count(self, name: str, by: int = 1, labels: Mapping[str, str] | None = None) -> None:
        """Count something."""
        with self._lock:
            self._counts[name][tuple(sorted((labels or {}).items()))] += by

    def gauge(self, name: str, description: str, read: Callable[[], float]) -> None:
        """Add a figure that is read when the metrics are asked for."""
        self._gauges[name] = description, read

    def request(self, route: str, status: int, seconds: float) -> None:
        """Record a request."""
        self.count(_REQUESTS, labels={"route": route, "status": str(status)})
        with self._lock:
            buckets = self._buckets.setdefault(route, [0] * (len(_BUCKETS) + 1))
            buckets[bisect.bisect_left(_BUCKETS, seconds)] += 1
            self._sums[route] += seconds

    def text(self) -> str:
        """Return all figures as text."""
        lines: list[str] = []
        with self._lock:
            for name, counts in sorted(self._counts.items()):
                lines += [f"# HELP {name} {_HELP.get(name, name)}", f"# TYPE {name} counter"]
                lines += [f"{name}{_labels(labels)} {value}" for labels, value in sorted(counts.items())]
            if self._buckets:
                lines += [f"# HELP {_SECONDS} {_HELP[_SECONDS]}", f"# TYPE {_SECONDS} histogram"]
            for route, buckets in sorted(self._buckets.items()):
                lines += _histogram(route, buckets, self._sums[route])
        for name, (description, read) in sorted(self._gauges.items()):
            lines += [f"# HELP {name} {description}", f"# TYPE {name} gauge", f"{name} {read():.12g}"]
        return "\n".join([*lines, ""])


def _histogram(route: str, buckets: list[int], total: float) -> list[str]:
    lines, below = [], 0
    for edge, count in zip((*map(str, _BUCKETS), "+Inf"), buckets, strict=True):
        below += count
        lines.append(f"{_SECONDS}_bucket{_labels((('le', edge), ('route', route)))} {below}")
    own = _labels((("route", route),))
    return [*lines, f"{_SECONDS}_sum{own} {total:.6f}", f"{_SECONDS}_count{own} {below}"]


def _labels(labels: Labels) -> str:
    """Return labels as text; values are names of routes and numbers, but are escaped nevertheless."""
    if not labels:
        return ""
    escaped = ((name, value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")) for name, value in labels)
    return "{" + ",".join(f'{name}="{value}"' for name, value in escaped) + "}"


class Measured:
    """Records every request under the template of its route, never under its address, which holds ids.

    Parameters
    ----------
    app : ASGI application
        Application whose requests are recorded.
    metrics : Metrics
        Where to record them.
    log : function, optional
        Called with a line per request.
    """

    def __init__(self, app: ASGIApp, metrics: Metrics, log: Callable[[str], None] | None = None) -> None:
        self._app, self._metrics, self._log = app, metrics, log

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, and record it when it is answered."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        start, status = time.perf_counter(), 500

        async def sending(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._app(scope, receive, sending)
        finally:
            seconds = time.perf_counter() - start
            route = _template(scope)
            self._metrics.request(route, status, seconds)
            if self._log is not None:
                self._log(f"{scope['method']} {route} {status} {1000 * seconds:.0f} ms")


def _template(scope: Scope) -> str:
    route: Any = scope.get("route")
    return str(getattr(route, "path", "other"))
