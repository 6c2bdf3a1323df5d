"""Answering: what a classifier does once it has a model. It answers, explains, suggests, adapts and measures.

Every call records what happened to its photos: those that could not be read, those that were learned before.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import numpy.typing as npt

from ..bags.extract import Described, Extractor
from ..errors import PatchvoteError, PhotoError, not_fitted
from ..photos.find import Found, PassedOver, Photo, Source, find_photos, labelled
from ..utils.engine import Engine
from ..utils.parameters import Parameters
from ..utils.terminal import Progress, as_progress, none_readable
from ..voters.votes import NONE
from . import arguments
from .answers import Answer
from .evidence import Evidence
from .model import Model
from .predictor import Predictor
from .scores import Scores, scores_of, strangers_of

if TYPE_CHECKING:
    from ..bags.cache import Kept
    from ..bags.described import Filled

Labels = Sequence[str] | None  # one class per photo of a list; folders and manifests tell them
Shown = Progress | bool | None  # called with a stage, how much of it is done, and its total; True shows them


class Answering(Parameters):
    """Answers with a model, and records what happened in the last call; `ImageClassifier` has the attributes."""

    def __init__(self, extractor: Extractor, cache: str | Path | bool | None) -> None:
        self.extractor, self.cache = extractor, cache
        self._predictor: Predictor | None = None
        self._photos: dict[str, Photo] = {}
        self._mistakes: Callable[[], Iterator[Evidence]] = lambda: iter(())  # made when a report is written
        self.scores: Scores | None = None
        self.before: Scores | None = None
        self.skipped: list[PhotoError] = []
        self.passed_over = PassedOver()
        self.known = self.newly_rejected = self.newly_named = 0
        self.filled: Filled | None = None
        self.refusal: str | None = None
        self.damaged: list[str] = []

    @property
    def predictor(self) -> Predictor:
        """The model with its network, which answers."""
        if self._predictor is None:
            raise not_fitted("this classifier has learned nothing yet: call fit, or load a model.")
        return self._predictor

    @property
    def model(self) -> Model:
        """Model that was learned."""
        return self.predictor.model

    @model.setter
    def model(self, model: Model) -> None:
        self._predictor = Predictor(model, self.extractor, self.cache)

    @property
    def classes(self) -> tuple[str, ...]:
        """Classes that the model distinguishes, sorted."""
        return self.model.classes

    @property
    def classes_(self) -> npt.NDArray[np.str_]:
        """Classes that the model distinguishes, sorted, as scikit-learn names them."""
        if self._predictor is None:
            raise AttributeError("classes_: this classifier has learned nothing yet.")
        return np.array(self.classes)

    def __sklearn_is_fitted__(self) -> bool:
        return self._predictor is not None

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
        self.newly_rejected, self.newly_named = 0, 0
        found, shown = self._begin(find_photos(photos)), progress if adapt else None
        for before, answer in self._answered(found, threshold, adapt, insist, "predict", shown, engine):
            self.newly_rejected += answer.rejected and not before.rejected
            self.newly_named += before.rejected and not answer.rejected
            yield answer

    def _answered(
        self, photos: Found, threshold: float | None, adapt: bool, insist: bool, stage: str, progress: Any, engine: Any
    ) -> Iterator[tuple[Answer, Answer]]:
        """Yield two answers per photo: before the model is adapted to the photos, and after; the same if it is not."""
        if not adapt:
            for answer in self.predictor.answers(photos, threshold, engine, stage, progress):
                self._record(answer)
                yield answer, answer
            return
        before = self.predictor
        for item in self._adapt_to(photos, insist, progress, engine, threshold):
            answer = self.predictor.answer(item, threshold)
            self.known += answer.known
            yield before.answer(item, threshold) if self.refusal is None else answer, answer

    def predict(self, photos: Source) -> npt.NDArray[np.str_]:
        """Return the likeliest class of each photo, however unlikely; `predict_or_none` also rejects.

        A photo that cannot be read raises a `PhotoError`; `answers` continues after such photos.
        """
        return np.asarray(np.array(self.classes)[self.predict_proba(photos).argmax(axis=1)])

    def predict_or_none(self, photos: Source, none: Any = NONE, *, threshold: float | None = None) -> npt.NDArray[Any]:
        """Return the class of each photo, or `none` where it looks like none of them; `threshold` as for `answers`."""
        self.model.limit(threshold)
        answers = self.predictor.readable(find_photos(photos), threshold)
        return np.array([none if answer.rejected else answer.likeliest for answer in answers], object)

    def predict_proba(self, photos: Source) -> npt.NDArray[np.float64]:
        """Return the probability of each class of `classes` for each photo; raises as `predict` does."""
        answers = self.predictor.readable(find_photos(photos))
        return np.stack([np.asarray(answer.probabilities) for answer in answers])

    def suggest(self, photos: Source, count: int = 20, *, progress: Progress | None = None) -> list[Answer]:
        """Return the answers for the unlabelled photos that would teach the model most, the most uncertain first.

        They are uncertain and unlike one another. Photos that the model has learned from are left out (`known` counts
        them), as are those that cannot be read (`skipped`); of copies, one is enough.
        """
        from .suggest import suggested

        return suggested(self.predictor, self._begin(find_photos(photos)), count, self._record, progress)

    def explain(self, photo: Source, label: str | None = None) -> Evidence:
        """Return the evidence of one photo: where its votes come from.

        Where the voter stores training photos, matches are found for the class `label`, the likeliest by default.
        """
        found = find_photos(photo)
        if len(found) != 1:
            raise PatchvoteError(f"evidence of one photo is returned, got {len(found)}: explain_each takes many.")
        (explained,) = self.predictor.explained(found, label)
        if isinstance(explained, PhotoError):
            raise explained
        return explained

    def explain_each(self, photos: Source, label: str | None = None) -> Iterator[Evidence]:
        """Yield the evidence of photos, in order; those that cannot be read are left out, and listed in `skipped`."""
        for explained in self.predictor.explained(self._begin(find_photos(photos)), label):
            if isinstance(explained, PhotoError):
                self.skipped.append(explained)
            else:
                yield explained

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
        arguments.check_adapts(self.model)
        items = list(self._described(photos, self.model.scorer.needs(), progress, engine))
        self._predictor, self.refusal = self.predictor.adapted(items, insist, threshold)
        self.scores, self._mistakes = None, lambda: iter(())
        return items

    def _described(self, photos: list[Photo], kept: Kept, progress: Any, engine: Engine | None) -> Iterator[Described]:
        """Yield what is kept of the bags of photos, from the cache or the network, and record what was done."""
        from ..bags.described import Filled, damage, described

        tell, filled = as_progress(progress), Filled(len(photos))
        more: dict[str, Any] = {"cache": self.cache, "engine": engine, "filled": filled}
        if tell is not None:
            more["progress"] = lambda filled: tell("extract", filled.done, filled.photos)
        self.filled, self.skipped = filled, []
        try:
            for item in described(photos, self.extractor, kept, **more):
                yield dataclasses.replace(item, whole=None)  # a megabyte per photo, of which only moments are kept
        finally:
            self.skipped = list(filled.skipped)
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
        found, strangers = labelled(photos, labels, 1), Found() if unknown is None else find_photos(unknown)
        arguments.check_known(self.classes, found, strangers)
        self._begin(found).passed_over += strangers.passed_over.without_folders()
        labels_by_name = {photo.name: str(photo.label) for photo in found}
        answers = list(self._answered(found, threshold, adapt, insist, "evaluate", progress, engine))
        scores = scores_of(self.model, (after for _, after in answers), labels_by_name, threshold)
        if scores is None:
            raise PatchvoteError(f"{none_readable(len(found))} {self.skipped[0]}")
        before = scores_of(model, (before for before, _ in answers), labels_by_name, threshold) if adapt else None
        self._photos = {photo.name: photo for photo in found}
        self._mistakes = functools.partial(self.predictor.mistakes, scores, self._photos)
        if strangers:
            unknown_ones = list(self.predictor.answers(strangers, threshold, engine, "unknown", progress))
            self.skipped += [answer.error for answer in unknown_ones if answer.error is not None]
            rejected = strangers_of(self.model, unknown_ones, strangers, threshold)
            scores = dataclasses.replace(scores, strangers=rejected)
        self.scores, self.before = scores, before
        return scores

    def score(self, photos: Source, labels: Labels = None) -> float:
        """Return the accuracy on labelled photos, as `evaluate` measures it; `scores` stays as it is."""
        kept = self.scores, self._mistakes, self._photos, self.before
        try:
            return self.evaluate(photos, labels).accuracy
        finally:
            self.scores, self._mistakes, self._photos, self.before = kept

    def report(
        self, path: str | Path, *, title: str, measured: str, examples: Sequence[Source] = (), origin: str = ""
    ) -> None:
        """Write the results of the last `fit` or `evaluate` to one HTML file.

        It has a title, and says on which photos the answers were measured. Of `examples`, the parts that vote for their
        classes are shown. A later report of the same `origin`, a digest, may replace the file.
        """
        from .report.page import write_report

        shown = [self.explain(photo) for photo in examples]
        write_report(path, self.model, self.scores, self._mistakes(), shown, title=title, kind=measured, origin=origin)
