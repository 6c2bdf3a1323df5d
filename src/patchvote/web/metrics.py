"""Metrics: figures of one server, for Prometheus."""

from __future__ import annotations

from collections.abc import Callable

import prometheus_client
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

_BUCKETS = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0)  # seconds of a request

prometheus_client.disable_created_metrics()  # type: ignore[no-untyped-call]


class Metrics:
    """Counters, durations of requests, and gauges that are read when they are asked for."""

    def __init__(self) -> None:
        self._registry = own = CollectorRegistry()
        self.requests = Counter(
            "patchvote_requests", "Requests by route and status.", ["route", "status"], registry=own
        )
        self.seconds = Histogram(
            "patchvote_request_seconds",
            "Seconds until a response was complete.",
            ["route"],
            registry=own,
            buckets=_BUCKETS,
        )
        self.photos = Counter("patchvote_photos", "Photos that the network described.", registry=own)
        self.refused = Counter(
            "patchvote_photos_refused", "Photos that were not taken because the queue was full.", registry=own
        )
        self.jobs = Counter("patchvote_jobs", "Jobs by how they ended.", ["status"], registry=own)

    def gauge(self, name: str, description: str, read: Callable[[], float]) -> None:
        """Add a figure that is read when the metrics are asked for."""
        Gauge(name, description, registry=self._registry).set_function(read)

    def text(self) -> bytes:
        """Return all figures in the text format of Prometheus."""
        return generate_latest(self._registry)
