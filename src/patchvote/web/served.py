"""Models that are served: those that the server was started with, and those of workspaces, read when they are asked.

Models with the same recipe and network share one network, and so their photos share its batches.
"""

from __future__ import annotations

import asyncio
import collections
import dataclasses
import functools
import threading
from collections.abc import Sequence
from pathlib import Path

from ..bags.boxes import Dense
from ..bags.cache import reduced
from ..bags.extract import Described
from ..bags.recipe import Recipe
from ..classifier import ImageClassifier
from ..errors import ModelError, PatchvoteError
from ..models.answers import Answer, answer_of
from ..models.file import read_model
from ..models.model import Model
from ..photos.find import Photo
from ..utils.schema import brief
from ..utils.terminal import nearest
from .batching import Batcher
from .metrics import Metrics
from .problems import Problem, missing
from .settings import Settings
from .workspaces import Workspace, Workspaces

_MODELS = 32  # that are kept in memory
_MODEL_BYTES = 1 << 30  # of the files of these
_NETWORKS = 4  # that are kept in memory; each takes some tens of megabytes


@dataclasses.dataclass(frozen=True, eq=False)
class Served:
    """A model that can be asked: its name, its file and the bytes of that, and the batches that describe photos."""

    name: str
    path: Path
    size: int
    model: Model
    batcher: Batcher
    workspace: Workspace | None = None


class Models:
    """Finds models by name, and keeps those that were asked last in memory.

    Parameters
    ----------
    settings : Settings
        Settings of the server.
    workspaces : Workspaces
        Workspaces of the server.
    metrics : Metrics
        Where photos are counted.

    Raises
    ------
    PatchvoteError
        A model that the server is to start with cannot be read, or two have the same name.
    """

    def __init__(self, settings: Settings, workspaces: Workspaces, metrics: Metrics) -> None:
        self._settings, self._workspaces, self._metrics = settings, workspaces, metrics
        self._lock = threading.RLock()
        self._served: collections.OrderedDict[Path, Served] = collections.OrderedDict()
        self._batchers: collections.OrderedDict[str, Batcher] = collections.OrderedDict()
        self._own: dict[str, Served] = {}
        for path in settings.models:
            name = path.stem or "model"
            if name in self._own:
                raise PatchvoteError(f"two models are called {name!r}: rename one of their files.")
            classifier = self._loaded_own(path)
            size = path.stat().st_size
            self._own[name] = Served(name, path, size, classifier.model, self._batcher_of(classifier))

    def _loaded_own(self, path: Path) -> ImageClassifier:
        """Load a model that the server starts with; the network of the settings is for those that lack theirs."""
        settings = self._settings
        load = functools.partial(ImageClassifier.load, path, jobs=settings.jobs, device=settings.device)
        try:
            return load()
        except ModelError:
            if settings.network is None:
                raise
            return load(network=settings.network)

    @property
    def own(self) -> list[Served]:
        """Models that the server was started with."""
        return list(self._own.values())

    def has_own(self, name: str) -> bool:
        """Whether the server was started with a model of this name."""
        return name in self._own

    @property
    def waiting(self) -> int:
        """Number of photos that wait for a network."""
        with self._lock:
            return sum(batcher.waiting for batcher in self._batchers.values())

    def get(self, name: str | None) -> Served:
        """Return a model by its name: that of a file that the server was started with, or the id of a workspace.

        Raises
        ------
        Problem
            There is no such model, or no name was given and there is more than one.
        """
        if name is None:
            if len(self._own) == 1:
                return self.own[0]
            raise Problem(422, "invalid", "name a model: ?model=NAME, or the id of a workspace that has learned.")
        if name in self._own:
            return self._own[name]
        try:
            workspace = self._workspaces.get(name)
        except Problem as error:
            if error.status != 404:
                raise
            hint = nearest(name, self._own) if self._own else ""
            raise Problem(404, "not_found", f"there is no model {brief(name)}.{hint}") from None
        return self.of_workspace(workspace)

    def of_workspace(self, workspace: Workspace) -> Served:
        """Return the present model of a workspace.

        Raises
        ------
        Problem
            It has none yet.
        """
        while True:
            path = workspace.model_file
            if path is None:
                raise Problem(404, "not_found", "this workspace has no model yet: let it learn, or open a model file.")
            try:
                return self._at(path, workspace)
            except (OSError, ModelError):
                if workspace.model_file == path:
                    raise
                # Another model has replaced it meanwhile, and its file is gone.

    def _at(self, path: Path, workspace: Workspace) -> Served:
        with self._lock:
            known = self._served.get(path)
            if known is not None and not known.batcher.is_closed:
                self._served.move_to_end(path)
                return known
            classifier = self.loaded(path)
            batcher = self._batcher_of(classifier)
            served = Served(workspace.id, path, path.stat().st_size, classifier.model, batcher, workspace)
            self._served[path] = served
            self._forget_old()
            return served

    def check_upload(self, path: Path) -> Model:
        """Read a model file of a stranger, and return the model.

        Raises
        ------
        ModelError
            The file is not a model, names a network that this server does not have, or would take too long per photo.
        """
        return self.loaded(path).model

    def network_of(self, path: Path) -> str | None:
        """Return the name of the network that a model has in common with one of the server's own, or None."""
        own = self._like(path)
        return None if own is None else str(own.batcher.extractor.recipe.network)

    def _like(self, path: Path) -> Served | None:
        """Return one of the server's own models that has the same network as the model in a file, or None.

        A copy of a model in a workspace has no network beside it, and names of networks are not taken from files.
        """
        model = read_model(path)
        kind = model.recipe, model.fingerprint
        return next((own for own in self._own.values() if (own.model.recipe, own.model.fingerprint) == kind), None)

    def close(self) -> None:
        """End the threads of all batches."""
        with self._lock:
            for batcher in self._batchers.values():
                batcher.close()

    def loaded(self, path: Path) -> ImageClassifier:
        """Read a model of a workspace, with the network of a model of the server's own where it has none."""
        own = self._like(path)
        backbone = None if own is None else own.batcher.extractor.backbone  # its file may have gone meanwhile
        settings = self._settings
        classifier = ImageClassifier.load(path, backbone=backbone, jobs=settings.jobs, device=settings.device)
        pixels = pixels_of(classifier.recipe, classifier.extractor.backbone.spec.size)
        if pixels > self._settings.limits.network_pixels:
            raise ModelError(
                f"the model lets its network look at {pixels / 1e6:,.0f} million pixels per photo; this server allows "
                f"{self._settings.limits.network_pixels / 1e6:,.0f} million."
            )
        return classifier

    def _batcher_of(self, classifier: ImageClassifier) -> Batcher:
        """Return the batches of the network of a classifier, which may be there already."""
        with self._lock:
            key = f"{classifier.recipe.to_json()} {classifier.extractor.backbone.spec.fingerprint}"
            if key not in self._batchers:
                limit = self._settings.limits.waiting_photos
                self._batchers[key] = Batcher(classifier.extractor, limit, self._metrics)
            self._batchers.move_to_end(key)
            used = {id(served.batcher) for served in self._own.values()}
            old = [name for name, batcher in self._batchers.items() if id(batcher) not in used and name != key]
            for name in old[: max(0, len(self._batchers) - _NETWORKS)]:
                self._batchers.pop(name).close()
            return self._batchers[key]

    def _forget_old(self) -> None:
        """Forget the models that were asked longest ago, until the others fit in memory."""
        sizes = {path: served.size for path, served in self._served.items()}
        while len(sizes) > 1 and (len(sizes) > _MODELS or sum(sizes.values()) > _MODEL_BYTES):
            path = next(iter(sizes))
            del sizes[path], self._served[path]


def pixels_of(recipe: Recipe, size: int) -> int:
    """Return the pixels that a network looks at per photo, if it takes tiles of `size` pixels.

    Examples
    --------
    >>> pixels_of(Recipe(), 224)
    250880
    """
    sampling = recipe.sampling
    if isinstance(sampling, Dense):
        return sum(side * side for side in sampling.sides)
    return int(sampling.count * (sampling.input or size) ** 2)


async def described(batcher: Batcher, photos: Sequence[Photo], seconds: float) -> list[Described]:
    """Let photos be described together with those of other requests.

    Raises
    ------
    Problem
        The queue is full, or the answer takes too long.
    """
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

    def answers() -> list[Answer]:
        return [
            Answer(item.photo.name, None, error=item.error)
            if item.bag is None
            else answer_of(served.model, item.photo.name, item.bag, threshold)
            for item in (reduced(one, kept) for one in items)  # so answers are those of `predict`, to the last digit
        ]

    return await asyncio.to_thread(answers)


async def asked(models: Models, name: str | None) -> Served:
    """Return a model as `named` does, in a thread only if a file may have to be read."""
    if name is None or models.has_own(name):
        return models.get(name)
    return await asyncio.to_thread(named, models, name)


def named(models: Models, name: str | None) -> Served:
    """Return a model; a model whose file has gone meanwhile does not exist."""
    try:
        return models.get(name)
    except FileNotFoundError:
        raise missing("model") from None
