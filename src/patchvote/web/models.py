"""Models that are served: those that the server was started with, and those of workspaces, read when they are asked.

Models with the same recipe and network share one network, and so photos of all requests go through it together: while
photos arrive faster than they are described, the network runs full batches as it does for a folder of photos.
"""

from __future__ import annotations

import asyncio
import collections
import dataclasses
import math
import threading
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge

from ..bags.boxes import Dense
from ..bags.described import reduced
from ..bags.extract import Described, Extractor
from ..classifier import ImageClassifier
from ..errors import ModelError, PatchvoteError
from ..models.answers import Answer, answer_of
from ..models.file import read_model
from ..models.model import Model
from ..photos.decode import Decode
from ..photos.find import Photo
from ..utils.files import stamp
from .problems import Problem
from .settings import Settings
from .workspaces import Workspace, Workspaces

_MODEL_BYTES = 1 << 30  # of the files of the models that are kept in memory
_NETWORKS = 4  # that are kept in memory; each takes some tens of megabytes
_SECONDS_PER_PHOTO = 0.1  # on a small machine: who is refused is told to come again when the queue may be empty
_MAX_RETRY = 60  # seconds


class Batcher:
    """Describes the photos of many requests with one extractor, in a thread of its own; the queue is bounded."""

    def __init__(self, extractor: Extractor, limit: int, described: Counter, refused: Counter) -> None:
        self.extractor, self._limit, self._described, self._refused = extractor, limit, described, refused
        self._waiting: collections.deque[tuple[Photo, Future[Described]]] = collections.deque()
        self._running: collections.deque[Future[Described]] = collections.deque()
        self._changed = threading.Condition()
        self.is_closed = False
        threading.Thread(target=self._work, name="patchvote-batches", daemon=True).start()

    def submit(self, photos: Sequence[Photo]) -> list[Future[Described]]:
        """Queue photos, all or none; a future that is cancelled before its turn costs nothing."""
        futures: list[Future[Described]] = [Future() for _ in photos]
        with self._changed:
            # Whoever finds nobody waiting is taken with any number of photos: the limit of files bounds it.
            if self.is_closed or (self._waiting and self.waiting + len(photos) > self._limit):
                self._refused.inc(len(photos))
                seconds = max(1, min(_MAX_RETRY, math.ceil(self.waiting * _SECONDS_PER_PHOTO)))
                raise Problem(429, "busy", "too many photos are waiting. Try again later.", seconds)
            self._waiting.extend(zip(photos, futures, strict=True))
            self._changed.notify()
        return futures

    @property
    def waiting(self) -> int:
        """Number of photos that wait."""
        return len(self._waiting)

    def close(self) -> None:
        """End the thread once the photos that are running are described; those that wait are cancelled."""
        with self._changed:
            self.is_closed = True
            for _, future in self._waiting:
                future.cancel()
            self._waiting.clear()
            self._changed.notify()

    def _work(self) -> None:
        while not self.is_closed:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting or self.is_closed)
            try:
                for described in self.extractor.stream(self._arrivals()):
                    self._described.inc()
                    self._running.popleft().set_result(described)
            except BaseException as error:  # of the network: the photos of this stream have no answer
                while self._running:
                    self._running.popleft().set_exception(error)

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


@dataclasses.dataclass(frozen=True, eq=False)
class Served:
    """A model that can be asked: its name, its file as it was read, and the batches that describe photos."""

    name: str
    path: Path
    seen: tuple[int, ...] | None  # stamp of the file when it was read
    model: Model
    batcher: Batcher
    workspace: Workspace | None = None

    @property
    def size(self) -> int:
        """Bytes of the file."""
        return 0 if self.seen is None else self.seen[2]

    def file(self) -> Path:
        """Return the file, unless it is no longer that of the model."""
        if (now := stamp(self.path)) is None:
            raise Problem(404, "not_found", "the file of this model is gone; the model still answers.")
        if now != self.seen:
            raise Problem(409, "conflict", "the file of this model was changed after the server read it: restart it.")
        return self.path


class Models:
    """Finds models by name, and keeps those that were asked last in memory."""

    def __init__(self, settings: Settings, workspaces: Workspaces, registry: CollectorRegistry, decode: Decode) -> None:
        self._settings, self._workspaces, self._decode = settings, workspaces, decode
        words = "Photos that the network described.", "Photos that were not taken because the queue was full."
        self._described = Counter("patchvote_photos", words[0], registry=registry)
        self._refused = Counter("patchvote_photos_refused", words[1], registry=registry)
        waiting = Gauge("patchvote_photos_waiting", "Photos that wait for the network.", registry=registry)
        waiting.set_function(lambda: sum(batcher.waiting for batcher in self._batchers()))
        self._lock = threading.RLock()
        self._opened: dict[Path, Served] = {}  # those of workspaces; the one that was asked last is the last
        self.own: dict[str, Served] = {}  # those that the server was started with
        for path in settings.models:
            name = path.stem or "model"
            if name in self.own:
                raise PatchvoteError(f"two models are called {name!r}: rename one of their files.")
            seen = stamp(path)
            try:
                classifier = self._load(path)
            except ModelError:
                if settings.network is None:
                    raise
                classifier = self._load(path, network=settings.network)
            self.own[name] = Served(name, path, seen, classifier.model, self._batcher_of(classifier))

    def _batchers(self) -> set[Batcher]:
        with self._lock:
            return {served.batcher for served in (*self.own.values(), *self._opened.values())}

    def get(self, name: str | None) -> Served:
        """Return a model by its name: that of a file that the server was started with, or the id of a workspace."""
        if name is None and len(self.own) == 1:
            (name,) = self.own
        if name is None:
            raise Problem(422, "invalid", "name a model: ?model=NAME, or the id of a workspace that has learned.")
        if name in self.own:
            return self.own[name]
        return self.of_workspace(self._workspaces.get(name))

    def of_workspace(self, workspace: Workspace) -> Served:
        """Return the present model of a workspace."""
        with workspace.lock, self._lock:  # no other model takes its place while it is read
            path = None if workspace.is_removed else workspace.model_of(workspace.state.run)
            if path is None:
                raise Problem(404, "not_found", "this workspace has no model yet: let it learn, or open a model file.")
            served = self._opened.pop(path, None)
            if served is None:
                seen, classifier = stamp(path), self.loaded(path)
                served = Served(workspace.id, path, seen, classifier.model, self._batcher_of(classifier), workspace)
            self._opened[path] = served
            self._make_room()
            return served

    def _make_room(self) -> None:
        """Forget the models that were asked longest ago, and the networks that no other model needs."""
        while len(self._opened) > 1 and (
            sum(served.size for served in self._opened.values()) > _MODEL_BYTES or len(self._batchers()) > _NETWORKS
        ):
            oldest = self._opened.pop(next(iter(self._opened)))
            if oldest.batcher not in self._batchers():
                oldest.batcher.close()

    def like(self, path: Path) -> Served | None:
        """Return one of the server's own models that has the same network as the model in a file, if there is one.

        A copy of a model in a workspace has no network beside it, and names of networks are not taken from files.
        """
        return _alike(read_model(path), self.own.values())

    def loaded(self, path: Path) -> ImageClassifier:
        """Read a model of a workspace, with the network of a model of the server's own where it has none."""
        own, most = self.like(path), self._settings.limits.network_pixels
        backbone = None if own is None else own.batcher.extractor.backbone  # its file may have gone meanwhile
        classifier = self._load(path, backbone=backbone)
        sampling, size = classifier.recipe.sampling, classifier.extractor.backbone.spec.size
        sides = sampling.sides if isinstance(sampling, Dense) else [sampling.input or size] * sampling.count
        if (pixels := sum(side * side for side in sides)) > most:
            raise ModelError(
                f"the model lets its network look at {pixels / 1e6:,.0f} million pixels per photo; this server allows "
                f"{most / 1e6:,.0f} million."
            )
        return classifier

    def _load(self, path: Path, **network: Any) -> ImageClassifier:
        classifier = ImageClassifier.load(path, jobs=self._settings.jobs, device=self._settings.device, **network)
        classifier.extractor.decode = self._decode
        return classifier

    def _batcher_of(self, classifier: ImageClassifier) -> Batcher:
        """Return the batches of the network of a classifier."""
        if (alike := _alike(classifier.model, (*self.own.values(), *self._opened.values()))) is not None:
            return alike.batcher
        limit = self._settings.limits.waiting_photos
        return Batcher(classifier.extractor, limit, self._described, self._refused)

    def close(self) -> None:
        """End the threads of all batches."""
        for batcher in self._batchers():
            batcher.close()


def _alike(model: Model, among: Iterable[Served]) -> Served | None:
    """Return a served model with the recipe and network of another, wherever the file of the network was."""
    kind = _kind(model)
    return next((served for served in among if _kind(served.model) == kind), None)


def _kind(model: Model) -> tuple[Any, ...]:
    return model.recipe.sampling, model.recipe.activation, model.fingerprint


async def described(batcher: Batcher, photos: Sequence[Photo], seconds: float) -> list[Described]:
    """Let photos be described together with those of other requests."""
    futures = batcher.submit(photos)
    try:
        async with asyncio.timeout(seconds):
            return await asyncio.gather(*map(asyncio.wrap_future, futures))
    except TimeoutError:
        raise Problem(503, "timeout", "the answer took too long. Try again, with fewer photos.", 5) from None
    except asyncio.CancelledError:
        if not batcher.is_closed:  # the client has gone
            raise
        raise Problem(429, "busy", "the network made room for another. Try again.", 1) from None
    finally:
        for future in futures:
            future.cancel()


async def answered(
    served: Served, photos: Sequence[Photo], seconds: float, threshold: float | None = None
) -> list[Answer]:
    """Return the answers of a model for photos, in order."""
    served.model.limit(threshold)  # refuse a wrong one before any work is done
    items = await described(served.batcher, photos, seconds)
    kept = served.model.scorer.needs()

    def answer(item: Described) -> Answer:
        item = reduced(item, kept)  # so answers are those of `predict`, to the last digit
        if item.bag is None:
            return Answer(item.photo.name, error=item.error)
        return answer_of(served.model, item.photo.name, item.bag, threshold)

    return await asyncio.to_thread(lambda: [answer(item) for item in items])
