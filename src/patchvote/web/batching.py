"""Micro-batches: photos of all requests go through the network together, in one stream that ends when none waits.

While photos arrive faster than they are described, the stream does not end, and the network runs full batches as it
does for a folder of photos. A photo that comes alone is described at once. The queue is bounded: whoever finds it full
is told when to come again.
"""

from __future__ import annotations

import collections
import math
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future

from ..bags.extract import Described, Extractor
from ..photos.find import Photo
from .metrics import Metrics
from .problems import Problem

_MEMORY = 0.9  # of the rate of photos: what a new photo leaves of the old value
_LONGEST_RETRY = 60  # seconds


class Batcher:
    """Describes the photos of many requests with one extractor.

    Parameters
    ----------
    extractor : Extractor
        Extractor that makes bags.
    limit : int
        Photos that may wait.
    metrics : Metrics
        Where photos are counted.
    """

    def __init__(self, extractor: Extractor, limit: int, metrics: Metrics) -> None:
        self.extractor, self._limit, self._metrics = extractor, limit, metrics
        self._waiting: collections.deque[tuple[Photo, Future[Described]]] = collections.deque()
        self._running: collections.deque[Future[Described]] = collections.deque()
        self._changed = threading.Condition()
        self._closed = False
        self._seconds_per_photo = 0.1
        self._thread = threading.Thread(target=self._work, name="patchvote-batches", daemon=True)
        self._thread.start()

    def submit(self, photos: Sequence[Photo]) -> list[Future[Described]]:
        """Queue photos, all or none; a future that is cancelled before its turn costs nothing.

        Raises
        ------
        Problem
            The queue is full.
        """
        with self._changed:
            waiting = len(self._waiting)
            # Whoever finds nobody waiting is taken with any number of photos: the limit of files bounds it.
            if self._closed or (waiting and waiting + len(photos) > self._limit):
                self._metrics.count("patchvote_photos_refused_total", len(photos))
                raise Problem(429, "busy", "too many photos are waiting. Try again later.", self._retry_after(waiting))
            futures: list[Future[Described]] = [Future() for _ in photos]
            self._waiting.extend(zip(photos, futures, strict=True))
            self._changed.notify()
        return futures

    @property
    def waiting(self) -> int:
        """Number of photos that wait."""
        return len(self._waiting)

    @property
    def is_closed(self) -> bool:
        """Whether no photos are taken any more."""
        return self._closed

    def close(self) -> None:
        """End the thread once the photos that are running are described; those that wait are cancelled."""
        with self._changed:
            self._closed = True
            for _, future in self._waiting:
                future.cancel()
            self._waiting.clear()
            self._changed.notify()

    def _retry_after(self, waiting: int) -> int:
        return max(1, min(_LONGEST_RETRY, math.ceil(waiting * self._seconds_per_photo)))

    def _work(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting or self._closed)
                if self._closed:
                    return
            try:
                self._describe_all()
            except BaseException as error:  # of the network: the photos of this stream have no answer
                while self._running:
                    self._running.popleft().set_exception(error)

    def _describe_all(self) -> None:
        """Describe photos until none waits."""
        last = time.monotonic()
        for described in self.extractor.stream(self._arrivals()):
            now = time.monotonic()
            self._seconds_per_photo = _MEMORY * self._seconds_per_photo + (1 - _MEMORY) * (now - last)
            last = now
            self._metrics.count("patchvote_photos_total")
            self._running.popleft().set_result(described)

    def _arrivals(self) -> Iterator[Photo]:
        """Yield the photos that wait, and end when there are none: the stream then finishes those that it has."""
        while True:
            with self._changed:
                if not self._waiting:
                    return
                photo, future = self._waiting.popleft()
            if future.set_running_or_notify_cancel():
                self._running.append(future)
                yield photo
