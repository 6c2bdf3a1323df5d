"""Answering: a model with the network that describes photos for it. It answers, explains, suggests, adapts, measures.

Every call records what happened to its photos: those that could not be read, those that were learned before. With an
engine, lists of paths go out to its workers, and answers come back.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import numpy.typing as npt

from ..bags.bags import Bags
from ..bags.described import Filled, damage, described
from ..bags.extract import Described, Extractor, lost_photo
from ..errors import ModelError, PatchvoteError, PhotoError
from ..photos.find import Found, PassedOver, Photo, Source, find_photos, labelled
from ..utils.engine import Engine, Lost, in_order
from ..utils.parameters import Parameters
from ..utils.terminal import Progress, as_progress
from ..voters.votes import NONE
from . import arguments
from .answers import Answer, answer_for
from .evidence import Evidence, evidence_of
from .file import checksum_of
from .model import Model
from .scores import Scores, scores_of, strangers_of

if TYPE_CHECKING:
    from ..bags.cache import Kept

Labels = Sequence[str] | None  # one class per photo of a list; folders and manifests tell them
Shown = Progress | bool | None  # called with a stage, how much of it is done, and its total; True shows them
_PER_TASK = 32  # photos: some seconds of work, so that sending them costs little


class Answering(Parameters):
    """Answers with a model, and records what happened in the last call; `ImageClassifier` has the attributes."""

    def __init__(self, extractor: Extractor, cache: str | Path | bool | None) -> None:
        self.extractor, self.cache = extractor, cache
        self._model: Model | None = None
        self._file: tuple[Path, Callable[[], Any]] | None = None  # of the model, and how a worker loads it
        self._photos: dict[str, Photo] = {}  # of the last scores
        self._explain: Callable[[str, Bags], Evidence] | None = None  # their mistakes
        self.scores: Scores | None = None
        self.before: Scores | None = None
        self.skipped: list[PhotoError] = []
        self.passed_over = PassedOver()
        self.known = self.newly_rejected = self.newly_named = 0
        self.filled: Filled | None = None
        self.refusal: str | None = None
        self.damaged: list[str] = []

    @property
    def model(self) -> Model:
        """Model that was learned."""
        if self._model is None:
            raise PatchvoteError("this classifier has learned nothing yet: call fit, or load a model.")
        return self._model

    @model.setter
    def model(self, model: Model) -> None:
        self._model, self._file = model, None

    @property
    def classes(self) -> tuple[str, ...]:
        """Classes that the model distinguishes, sorted."""
        return self.model.classes

    @property
    def classes_(self) -> npt.NDArray[np.str_]:
        """Classes that the model distinguishes, sorted, as scikit-learn names them."""
        if self._model is None:
            raise AttributeError("classes_: this classifier has learned nothing yet.")
        return np.array(self.classes)

    def __sklearn_is_fitted__(self) -> bool:
        return self._model is not None

    # --- answering --------------------------------------------------------------------------------------------------

    def answers(
        self,
        photos: Source,
        *,
        threshold: float | None = None,
        adapt: bool = False,
        insist: bool = False,
        progress: Shown = None,
        engine: Engine | None = None,
    ) -> Iterator[Answer]:
        """Yield one answer per photo, in order; a photo that cannot be read gets an answer with the reason.

        Parameters
        ----------
        photos : Source
            Photos to predict.
        threshold : float, optional
            Share of the photos of known classes that may be rejected as "none of these"; by default that of the model,
            0.05. A photo is rejected if its familiarity is below.
        adapt, insist : bool, default False
            Adapt the model to all of the photos first (see `adapt`), if they are from another camera, place or style
            than those it learned from. If that looks unsafe, the unchanged model answers.
        progress, engine
            As for `fit`: progress of adapting, and an engine whose workers answer with the model from its file.
        """
        self.model.limit(threshold)  # refuse a wrong one before any work is done
        found, shown = self._begin(find_photos(photos)), progress if adapt else None
        self.newly_rejected = self.newly_named = 0
        for before, answer in self._answered(found, threshold, adapt, insist, "predict", shown, engine):
            self.newly_rejected += answer.rejected and not before.rejected
            self.newly_named += before.rejected and not answer.rejected
            yield answer

    def _answered(
        self, photos: Found, threshold: float | None, adapt: bool, insist: bool, stage: str, progress: Any, engine: Any
    ) -> Iterator[tuple[Answer, Answer]]:
        """Yield two answers per photo: before the model is adapted to the photos, and after; the same if it is not."""
        before = self.model
        if adapt:
            for item in self._adapt_to(photos, insist, progress, engine, threshold):
                answer = answer_for(self.model, item, threshold)
                self.known += answer.known
                yield answer if self.refusal else answer_for(before, item, threshold), answer
            return
        answers = (
            answers_of(photos, before, self.extractor, self.cache, threshold)
            if engine is None
            else _from_workers(photos, self._file, threshold, engine, stage)
        )
        for done, answer in enumerate(answers, 1):
            if progress is not None:
                progress(stage, done, len(photos))
            self._record(answer)
            yield answer, answer

    def predict(self, photos: Source) -> npt.NDArray[np.str_]:
        """Return the likeliest class of each photo, however unlikely; `predict_or_none` also rejects.

        A photo that cannot be read raises a `PhotoError`; `answers` continues after such photos.
        """
        return np.asarray(np.array(self.classes)[self.predict_proba(photos).argmax(axis=1)])

    def predict_or_none(self, photos: Source, none: Any = NONE, *, threshold: float | None = None) -> npt.NDArray[Any]:
        """Return the class of each photo, or `none` where it looks like none of them; `threshold` as for `answers`."""
        answers = self._readable(photos, threshold)
        return np.array([none if answer.rejected else answer.likeliest for answer in answers], object)

    def predict_proba(self, photos: Source) -> npt.NDArray[np.float64]:
        """Return the probability of each class of `classes` for each photo; raises as `predict` does."""
        return np.stack([np.asarray(answer.probabilities) for answer in self._readable(photos)])

    def _readable(self, photos: Source, threshold: float | None = None) -> Iterator[Answer]:
        for answer in self.answers(photos, threshold=threshold):
            if answer.error is not None:
                raise PhotoError(answer.name, f"{answer.error.reason} `answers` continues after such photos.")
            yield answer

    def suggest(self, photos: Source, count: int = 20, *, progress: Progress | None = None) -> list[Answer]:
        """Return the answers for the unlabelled photos that would teach the model most, the most uncertain first.

        They are uncertain and unlike one another. Photos that the model has learned from are left out (`known` counts
        them), as are those that cannot be read (`skipped`); of copies, one is enough.
        """
        from .suggest import suggested

        found = self._begin(find_photos(photos))
        items = described(found, self.extractor, self.model.scorer.needs(), cache=self.cache)
        return suggested(items, len(found), self.model, count, self._record, progress)

    def explain(self, photo: Source, label: str | None = None) -> Evidence:
        """Return the evidence of one photo: where its votes come from.

        Where the voter stores training photos, matches are found for the class `label`, the likeliest by default.
        """
        found = find_photos(photo)
        if len(found) != 1:
            raise PatchvoteError(f"evidence of one photo is returned, got {len(found)}: explain_each takes many.")
        explained: Evidence | PhotoError
        (explained,) = self._explained(found, functools.partial(evidence_of, self.model, label=label))
        if isinstance(explained, PhotoError):
            raise explained
        return explained

    def explain_each(self, photos: Source, label: str | None = None) -> Iterator[Evidence]:
        """Yield the evidence of photos, in order; those that cannot be read are left out, and listed in `skipped`."""
        found = self._begin(find_photos(photos))
        for explained in self._explained(found, functools.partial(evidence_of, self.model, label=label)):
            if isinstance(explained, PhotoError):
                self.skipped.append(explained)
            else:
                yield explained

    def _explained(self, photos: list[Photo], explain: Callable[[str, Bags], Evidence]) -> Iterator[Any]:
        """Yield the evidence of photos, in order, or the `PhotoError` that says why there is none."""
        for item in self.extractor.stream(photos):
            try:
                yield (
                    item.error
                    if item.bag is None
                    else dataclasses.replace(explain(item.photo.name, item.bag), photo=item.photo)
                )
            except PhotoError as error:
                yield error

    def _begin(self, found: Found) -> Found:
        self.passed_over, self.skipped, self.known, self.refusal = found.passed_over, [], 0, None
        return found

    def _record(self, answer: Answer) -> None:
        self.known += answer.known
        if answer.error is not None:
            self.skipped.append(answer.error)

    # --- adapting ---------------------------------------------------------------------------------------------------

    def adapt(
        self, photos: Source, *, insist: bool = False, progress: Shown = None, engine: Engine | None = None
    ) -> Self:
        """Adapt the model to photos like these, whose classes need not be known (see `Adapted`).

        Photos that the model rejects before stay rejected. If adapting looks unsafe (few photos have confident
        answers, or these collapse onto few classes), the model is unchanged, `refusal` says why, and an
        `AdaptationWarning` is issued. An adapted model cannot learn or forget: change the model before, and adapt it
        again.

        With `insist`, the model is adapted even if that looks unsafe, and rejects nothing: use it if all photos show
        the model's classes. `progress` and `engine` as for `fit`; adapting itself runs in this process.
        """
        found = find_photos(photos)
        self.passed_over = found.passed_over.without_folders()
        self._adapt_to(found, insist, progress, engine)
        return self

    def _adapt_to(
        self, photos: Found, insist: bool, progress: Any, engine: Engine | None, threshold: float | None = None
    ) -> list[Described]:
        """Adapt to photos, or set `refusal`; return what was read of them."""
        from .adapt import adapt_model, check_adapts

        check_adapts(self.model)
        items = list(self._described(photos, self.model.scorer.needs(), progress, engine))
        adapted, self.refusal = adapt_model(items, self.model, insist=insist, threshold=threshold)
        if adapted is not None:
            self.model = adapted
        self.scores = None
        return items

    def _described(self, photos: list[Photo], kept: Kept, progress: Any, engine: Engine | None) -> Iterator[Described]:
        """Yield what is kept of the bags of photos, from the cache or the network, and record what was done."""
        tell, self.filled = as_progress(progress), Filled(len(photos))
        self.skipped, filled = self.filled.skipped, self.filled
        try:
            for item in described(photos, self.extractor, kept, cache=self.cache, engine=engine, filled=filled):
                if tell is not None:
                    tell("extract", filled.done, filled.photos)
                yield dataclasses.replace(item, whole=None)  # a megabyte per photo, of which only moments are kept
        finally:
            self.damaged += damage(filled.damaged)

    # --- measuring --------------------------------------------------------------------------------------------------

    def evaluate(
        self,
        photos: Source,
        labels: Labels = None,
        *,
        unknown: Source | None = None,
        threshold: float | None = None,
        adapt: bool = False,
        insist: bool = False,
        progress: Shown = None,
        engine: Engine | None = None,
    ) -> Scores:
        """Compare the answers for labelled photos with their labels; unreadable photos are left out and in `skipped`.

        Of photos of classes that the model does not know (`unknown`), the `strangers` of the result say how many are
        rejected. Labels are given as for `fit`, the other arguments as for `answers`; `before` has the scores before
        adapting, which does not use the labels.
        """
        model, progress = self.model, as_progress(progress)
        model.limit(threshold)
        found, others = labelled(photos, labels, 1), Found() if unknown is None else find_photos(unknown)
        arguments.check_known(self.classes, found, others)
        self._begin(found).passed_over += others.passed_over.without_folders()
        pairs = list(self._answered(found, threshold, adapt, insist, "evaluate", progress, engine))
        self._photos = {photo.name: photo for photo in found}
        strangers = None
        if others:
            unnamed = [
                answer for _, answer in self._answered(others, threshold, False, False, "unknown", progress, engine)
            ]
            strangers = strangers_of(self.model, unnamed, others, threshold)
        self.before = scores_of(model, [one for one, _ in pairs], self._photos, threshold) if adapt else None
        scores = scores_of(self.model, [one for _, one in pairs], self._photos, threshold)
        self.scores = dataclasses.replace(scores, strangers=strangers)
        self._explain = functools.partial(evidence_of, self.model)
        return self.scores

    def score(self, photos: Source, labels: Labels = None) -> float:
        """Return the accuracy on labelled photos, of which each has to be readable; `scores` stays as it is."""
        found = labelled(photos, labels, 1)
        return float(np.mean(self.predict(found) == [photo.label for photo in found]))

    def mistakes(self) -> Iterator[Evidence]:
        """Yield the evidence of the worst mistakes of `scores`, whose photos pass the network again."""
        if self.scores is not None and self._explain is not None:
            names = [self.scores.names[index] for index in self.scores.worst()]
            worst = [self._photos[name] for name in names if name in self._photos]  # others were learned before
            yield from (one for one in self._explained(worst, self._explain) if isinstance(one, Evidence))

    def report(self, path: str | Path, *, title: str, measured: str) -> None:
        """Write the results of the last `fit` or `evaluate` to one HTML file.

        It has a title, and says on which photos the answers were measured.
        """
        from .report.page import write_report

        write_report(path, self.model, self.scores, self.mistakes(), title=title, kind=measured)


# --- workers of an engine ---------------------------------------------------------------------------------------------


def answers_of(
    photos: Sequence[Photo], model: Model, extractor: Extractor, cache: Any, threshold: float | None
) -> Iterator[Answer]:
    """Yield the answers for photos, in order."""
    for item in described(photos, extractor, model.scorer.needs(), cache=cache):
        yield answer_for(model, item, threshold)


def _from_workers(
    photos: Sequence[Photo],
    file: tuple[Path, Callable[[], Any]] | None,
    threshold: float | None,
    engine: Engine,
    stage: str,
) -> Iterator[Answer]:
    if file is None:
        raise PatchvoteError("workers of an engine read the model from a file: save it, and load it from there.")
    if images := [photo.name for photo in photos if not isinstance(photo.source, Path)]:
        raise PatchvoteError(f"{images[0]} is an image in memory: workers of an engine read photos from files.")
    path, load = file
    job = AnsweringJob(path, load, checksum_of(path), threshold, stage)
    for photo, answer in zip(photos, in_order(engine.run(job, photos)), strict=True):
        yield Answer(photo.name, error=lost_photo(photo.name, answer)) if isinstance(answer, Lost) else answer


@dataclasses.dataclass(frozen=True)
class AnsweringJob:
    """The job of a worker that answers photos with a model: its file, the file's checksum, and how to read it."""

    path: Path
    load: Callable[[], Answering]
    checksum: str
    threshold: float | None
    name: str = "predict"
    per_task: int = _PER_TASK

    def start(self) -> Callable[[Sequence[Photo]], list[Answer]]:
        """Read the model; return the function that answers some photos."""
        loaded = self.load()
        if checksum_of(self.path) != self.checksum:
            raise ModelError(f"{self.path} has changed since the command began, or is another file on a worker.")
        return lambda photos: list(answers_of(photos, loaded.model, loaded.extractor, loaded.cache, self.threshold))
