"""The predictor: a model with the network that describes photos for it. It answers, explains and chooses photos.

With an engine, lists of paths go out to its workers, and answers come back.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Callable, Generator, Iterator, Sequence
from pathlib import Path
from typing import Any

from ..bags.bags import Bags
from ..bags.extract import Described, Extractor
from ..errors import ModelError, PatchvoteError, PhotoError
from ..networks.base import NetworkSpec
from ..photos.find import Photo
from ..utils.engine import Engine, Lost, in_order
from ..utils.terminal import Progress, none_readable
from .about import short
from .answers import Answer, answer_of
from .evidence import Evidence, evidence_of
from .file import checksum_of
from .model import Model
from .scores import Scores

_PER_TASK = 32  # photos: some seconds of work, so that sending them costs little


@dataclasses.dataclass(frozen=True, eq=False)
class Predictor:
    """A model, its network, the folder of the cache, and how a worker reads it again: its file, and a function.

    The function returns an object whose `predictor` is this one, such as an `ImageClassifier`.
    """

    model: Model
    extractor: Extractor
    cache: str | Path | bool | None = None
    saved: tuple[Path, Callable[[], Any]] | None = None

    def described(self, photos: list[Photo]) -> Iterator[Described]:
        """Yield what the model needs of the bags of photos, in order: from the cache, or else from the network."""
        from ..bags.described import described

        return described(photos, self.extractor, self.model.scorer.needs(), cache=self.cache)

    def answer(self, item: Described, threshold: float | None = None) -> Answer:
        """Return the answer for a photo that was described; `threshold` as for `Model.limit`."""
        if item.bag is None:
            return Answer(item.photo.name, None, error=item.error)
        limit = None if self.model.familiarity is None else threshold  # refused before, unless the model was adapted
        answer = answer_of(self.model, item.photo.name, item.bag, limit)
        return dataclasses.replace(answer, known=short(item.digest) in self._learned)

    def answers(
        self,
        photos: list[Photo],
        threshold: float | None = None,
        engine: Engine | None = None,
        stage: str = "predict",
        progress: Progress | None = None,
    ) -> Iterator[Answer]:
        """Yield the answers for photos, in order, from this process or the workers of an engine."""
        if engine is None:
            answers = (self.answer(item, threshold) for item in self.described(photos))
        else:
            answers = self._from_workers(photos, threshold, engine, stage)
        for done, answer in enumerate(answers, 1):
            if progress is not None:
                progress(stage, done, len(photos))
            yield answer

    def _from_workers(
        self, photos: list[Photo], threshold: float | None, engine: Engine, stage: str
    ) -> Generator[Answer, None, None]:
        if self.saved is None:
            raise PatchvoteError("workers of an engine read the model from a file: save it, and load it from there.")
        if images := [photo.name for photo in photos if not isinstance(photo.source, Path)]:
            raise PatchvoteError(f"{images[0]} is an image in memory: workers of an engine read photos from files.")
        from ..bags.extract import lost_photo

        path, load = self.saved
        job = AnsweringJob(path, load, checksum_of(path), threshold, stage)
        for photo, answer in zip(photos, in_order(engine.run(job, photos)), strict=True):
            yield Answer(photo.name, None, error=lost_photo(photo.name, answer)) if isinstance(answer, Lost) else answer

    def readable(self, photos: list[Photo], threshold: float | None = None) -> Iterator[Answer]:
        """Yield the answers for photos, all of which must be readable."""
        for photo, answer in zip(photos, self.answers(photos, threshold), strict=True):
            if answer.error is not None:
                name = str(photo.source) if isinstance(photo.source, Path) else photo.name
                raise PhotoError(name, f"{answer.error.reason} `answers` continues after such photos.")
            yield answer

    @functools.cached_property
    def _learned(self) -> frozenset[str]:
        return frozenset(itertools.chain.from_iterable(self.model.about.photos.values()))

    def adapted(self, items: list[Described], insist: bool, threshold: float | None) -> tuple[Predictor, str | None]:
        """Adapt the model to photos that were described; or return it as it is, and why."""
        from ..bags.moments import MomentBags
        from .adapt import adapt_model

        read = [(item.bag, item.digest) for item in items if isinstance(item.bag, MomentBags)]
        if not read:
            raise PatchvoteError(f"{none_readable(len(items))} {items[0].error}")
        bags, digests = MomentBags.joined([bag for bag, _ in read]), [digest for _, digest in read]
        model, refusal = adapt_model(bags, digests, self.model, insist=insist, threshold=threshold)
        return (self if model is self.model else dataclasses.replace(self, model=model, saved=None)), refusal

    def explained(self, photos: list[Photo], label: str | None = None) -> Iterator[Evidence | PhotoError]:
        """Yield the evidence of photos, in order, or the reasons why there is none."""
        for item in self.extractor.stream(photos):
            if item.bag is None:
                yield item.error or PhotoError(item.photo.name, "could not be read.")
                continue
            try:
                yield dataclasses.replace(evidence_of(self.model, item.photo.name, item.bag, label), photo=item.photo)
            except PhotoError as error:
                yield error

    def mistakes(
        self, scores: Scores, photos: dict[str, Photo], explained: Callable[[str, Bags], Evidence] | None = None
    ) -> Iterator[Evidence]:
        """Yield the evidence of the worst mistakes, whose photos pass the network again; of what can still be read."""
        names = [scores.names[index] for index in scores.worst()]
        worst = [photos[name] for name in names if name in photos]  # others were learned before
        explain = explained or functools.partial(evidence_of, self.model)
        for item in self.extractor.stream(worst):
            if item.bag is not None:
                yield dataclasses.replace(explain(item.photo.name, item.bag), photo=item.photo)


@dataclasses.dataclass(frozen=True)
class AnsweringJob:
    """The job of a worker that answers photos with a model: its file, the file's checksum, and how to read it."""

    path: Path
    load: Callable[[], Any]
    checksum: str
    threshold: float | None
    name: str = "predict"
    per_task: int = _PER_TASK

    def start(self) -> Callable[[Sequence[Photo]], list[Answer]]:
        """Read the model; return the function that answers some photos."""
        predictor = self.load().predictor
        if checksum_of(self.path) != self.checksum:
            raise ModelError(f"{self.path} has changed since the command began, or is another file on a worker.")
        return lambda photos: list(predictor.answers(list(photos), self.threshold))


def check_network(model: Model, spec: NetworkSpec, path: str | Path) -> None:
    """Refuse a network with which the model of a file was not made."""
    if spec.fingerprint != model.fingerprint:
        advice = f"Load it with the network that it was made with: {model.recipe.network}"
        if Path(spec.name).name == Path(model.recipe.network).name:
            advice = "Its file, or the .toml beside it, has changed since: put back what it was, or fit again."
        raise ModelError(
            f"{path} was made with another network than {spec.name} (checksum of weights and settings "
            f"{model.fingerprint}, not {spec.fingerprint}): its answers would mean nothing. {advice}"
        )
    if spec.dim != model.features:
        raise ModelError(f"{path} is damaged: it has {model.features} features, its network {spec.dim}.")
