"""Namer: names photos with a trained model, explains the answers and measures them."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Container, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ..bags.bags import Bags
from ..bags.extract import Described, Extractor
from ..errors import ModelError, PatchvoteError, PhotoError, not_fitted
from ..photos.decode import SHOWN, load_image
from ..photos.find import Found, PassedOver, Photo, Source, find_photos, labelled
from ..utils.engine import Engine, in_order
from ..utils.terminal import Progress, as_progress, nearest, none_readable
from ..voters.votes import NONE
from .answering import Answered, AnsweringJob, answered
from .answers import Answer, answer_from, answer_of, evidence_of
from .evidence import Evidence
from .file import checksum_of
from .known import known_photos, short
from .measure import measure, scores_of, strangers_of
from .model import Model
from .saved import Saved
from .scores import Scores


class Namer:
    """Names photos with a model, and shows the evidence.

    Parameters
    ----------
    extractor : Extractor
        Extractor that turns photos into bags.

    Attributes
    ----------
    model : Model
        Model that was learned.
    scores : Scores or None
        Answers and expected classes of the last `evaluate`.
    skipped : list of PhotoError
        Photos that could not be read, in the last call.
    passed_over : PassedOver
        Files in the folder of the last call that are not readable photos.
    known : int
        Number of photos of the last `evaluate`, `suggest` or `add` that the model had learned from.
    """

    def __init__(self, extractor: Extractor) -> None:
        self._extractor = extractor
        self._model: Model | None = None
        self._saved = Saved()
        self.scores: Scores | None = None
        # Evidence of mistakes with the highest confidence, made when a report is written.
        self._mistakes: Callable[[], Iterator[Evidence]] = lambda: iter(())
        self._photos: dict[str, Photo] = {}
        self.skipped: list[PhotoError] = []
        self.passed_over = PassedOver()
        self.known = 0
        # The model that was read, its file, and the function that reads it again in another process.
        self._again: tuple[Model, Path, Callable[[], Namer]] | None = None

    @property
    def model(self) -> Model:
        """Model that was learned."""
        if self._model is None:
            raise not_fitted("this classifier has learned nothing yet: call fit, or load a model.")
        return self._model

    @property
    def classes(self) -> tuple[str, ...]:
        """Classes that the model distinguishes, sorted."""
        return self.model.classes

    # --- answering --------------------------------------------------------------------------------------------------

    @property
    def extractor(self) -> Extractor:
        """Extractor that turns photos into bags."""
        return self._extractor

    def described(self, photos: list[Photo]) -> Iterator[Described]:
        """Yield what the model needs of the bags of photos, in order."""
        return self._extractor.stream(photos)

    def answers(
        self, photos: Source, *, threshold: float | None = None, engine: Engine | None = None
    ) -> Iterator[Answer]:
        """Name photos one by one, in order; the answer for a photo that cannot be read holds the reason.

        Parameters
        ----------
        photos : Source
            Photos to predict.
        threshold : float, optional
            Share of the photos of known classes that may be rejected as "none of these"; by default that of the model,
            0.05. A photo is rejected if its familiarity is below.
        engine : Engine, optional
            Engine whose workers read the model from its file and name the photos; by default this process does.
        """
        self.model.limit(threshold)  # refuse a wrong one before any work is done
        found = find_photos(photos)
        self.passed_over, self.skipped = found.passed_over, []
        for answer in self._answers(found, threshold, engine, "predict"):
            if answer.error is not None:
                self.skipped.append(answer.error)
            yield answer

    def _answers(
        self, photos: list[Photo], threshold: float | None, engine: Engine | None, stage: str
    ) -> Iterator[Answer]:
        if engine is None:
            for item in self.described(photos):
                yield self._answer(item.photo.name, item.bag, item.error, threshold)
            return
        for photo, one in zip(photos, in_order(answered(engine, self._job(stage), photos)), strict=True):
            if one.probability is None:
                yield Answer(photo.name, None, error=one.error)
            else:
                yield answer_from(self.model, photo.name, one.probability, one.familiarity, threshold)

    def _job(self, name: str) -> AnsweringJob:
        """Return the job of workers that answer with this model, which they read from its file."""
        if self._again is None or self._again[0] is not self.model:
            raise PatchvoteError("workers of an engine read the model from a file: save it, and load it from there.")
        path, load = self._again[1:]
        return AnsweringJob(path, load, checksum_of(path), name)

    def _answer(self, name: str, bag: Bags | None, error: PhotoError | None, threshold: float | None = None) -> Answer:
        return Answer(name, None, error=error) if bag is None else answer_of(self.model, name, bag, threshold)

    def predict(self, photos: Source) -> npt.NDArray[np.str_]:
        """Return the likeliest class of each photo, however unlikely; `predict_or_none` also rejects.

        Raises
        ------
        PhotoError
            A photo cannot be read; `answers` continues after such photos.
        """
        return np.asarray(np.array(self.classes)[self.predict_proba(photos).argmax(axis=1)])

    def predict_or_none(self, photos: Source, none: Any = NONE, *, threshold: float | None = None) -> npt.NDArray[Any]:
        """Return the class of each photo, or `none` where the photo looks like none of the classes.

        Parameters
        ----------
        photos : Source
            Photos to predict.
        none : object
            Answer for photos that are rejected.
        threshold : float, optional
            As for `answers`.

        Raises
        ------
        PhotoError
            A photo cannot be read; `answers` continues after such photos.
        """
        self.model.limit(threshold)
        answers = [answer_of(self.model, name, bag, threshold) for name, bag in self._all_bags(photos)]
        return np.array([none if answer.rejected else answer.likeliest for answer in answers], object)

    def predict_proba(self, photos: Source) -> npt.NDArray[np.float64]:
        """Return the probability of each class of `classes` for each photo; raises as `predict` does."""
        return np.stack([self.model.probability(bag) for _, bag in self._all_bags(photos)])

    def _all_bags(self, photos: Source) -> Iterator[tuple[str, Bags]]:
        """Yield names and bags of photos, all of which must be readable."""
        for item in self.described(find_photos(photos)):
            if item.bag is None:
                reason = item.error.reason if item.error else "could not be read."
                name = str(item.photo.source) if isinstance(item.photo.source, Path) else item.photo.name
                raise PhotoError(name, f"{reason} `answers` continues after such photos.")
            yield item.photo.name, item.bag

    def suggest(self, photos: Source, count: int = 20, *, progress: Progress | None = None) -> list[Answer]:
        """Return the answers for the unlabelled photos that would teach the model most, the most uncertain first.

        They are uncertain and unlike one another (`next_labels`). Photos that the model has learned from are left out
        (`known` counts them), as are those that cannot be read (`skipped`); of copies, one is enough.

        Parameters
        ----------
        photos : Source
            Unlabelled photos.
        count : int, default 20
            Number of photos to return; fewer where there are fewer.
        progress : function, optional
            Called with the name of the current part, the number of finished photos, and their total.
        """
        from ..bags.copies import copy_groups
        from ..bags.moments import photo_vectors
        from .next_labels import next_labels

        found = find_photos(photos)
        self.passed_over, self.skipped, self.known = found.passed_over, [], 0
        known, answers, rows, vectors, digests = known_photos(self.model.about), [], [], [], []
        for done, item in enumerate(self.described(found)):
            if progress is not None:
                progress("predict", done + 1, len(found))
            if item.bag is None:
                self.skipped.append(item.error or PhotoError(item.photo.name, "could not be read."))
            elif short(item.digest) in known:
                self.known += 1
            else:
                probability = self.model.probability(item.bag)
                familiarity = self.model.familiarity_of(item.bag, probability)
                rows.append(probability)
                answers.append(answer_from(self.model, item.photo.name, probability, familiarity))
                vectors.append(photo_vectors(item.bag)[0])
                digests.append(item.digest)
        if not rows:
            return []
        groups = copy_groups(np.stack(vectors), digests)
        chosen = next_labels(np.stack(rows), np.stack(vectors), count, groups)
        return [answers[i] for i in chosen]

    def explain(self, photo: Source, label: str | None = None) -> Evidence:
        """Return the evidence of one photo: where its votes come from.

        Parameters
        ----------
        photo : Source
            Photo to explain.
        label : str, optional
            Class to find matches for, where the voter stores training photos; the likeliest by default.
        """
        found = find_photos(photo)
        if len(found) != 1:
            raise PatchvoteError(f"evidence of one photo is returned, got {len(found)}: explain_each takes many.")
        (explained,) = self._explained(found, label)
        if isinstance(explained, PhotoError):
            raise explained
        return explained

    def explain_each(self, photos: Source, label: str | None = None) -> Iterator[Evidence]:
        """Yield the evidence of photos, in order; those that cannot be read are left out, and listed in `skipped`."""
        found = find_photos(photos)
        self.passed_over, self.skipped = found.passed_over, []
        for explained in self._explained(found, label):
            if isinstance(explained, PhotoError):
                self.skipped.append(explained)
            else:
                yield explained

    def _explained(self, photos: list[Photo], label: str | None) -> Iterator[Evidence | PhotoError]:
        for item in self._extractor.stream(photos):
            if item.bag is None:
                yield item.error or PhotoError(item.photo.name, "could not be read.")
                continue
            try:
                yield dataclasses.replace(evidence_of(self.model, item.photo.name, item.bag, label), photo=item.photo)
            except PhotoError as error:
                yield error

    def _repr_html_(self) -> str:
        from .notebook import model_html

        return model_html(self._model, self.scores)

    # --- measuring --------------------------------------------------------------------------------------------------

    def evaluate(
        self,
        photos: Source,
        labels: Sequence[str] | None = None,
        *,
        unknown: Source | None = None,
        threshold: float | None = None,
        progress: Progress | bool | None = None,
        engine: Engine | None = None,
    ) -> Scores:
        """Compare answers for labelled photos with their labels; photos that cannot be read are listed in `skipped`.

        Parameters
        ----------
        photos : Source
            Labelled photos.
        labels : sequence of str, optional
            Class of each photo; required for a list, otherwise taken from folders or the manifest.
        unknown : Source, optional
            Photos of classes that the model does not know, to measure how many are rejected: `strangers` of the result.
        threshold : float, optional
            As for `answers`.
        progress : function or bool, optional
            Called with the name of the current part, the number of finished photos, and their total; True shows them.
        engine : Engine, optional
            Engine whose workers answer, with the model from its file; by default this process does.

        Raises
        ------
        PatchvoteError
            A photo has a class that the model does not know, or one of `unknown` a class that it knows.
        """
        found, strangers = self._labelled(photos, labels), self._unknown(unknown, threshold)
        progress = as_progress(progress)
        expected = {photo.name: str(photo.label) for photo in found}
        if engine is not None:
            scores = self._from_workers(engine, found, expected, threshold, progress)
        else:
            bags = self._readable(found, known_photos(self.model.about), progress)
            scores = measure(self.model, bags, expected, threshold)
        scores = self._measured(scores, found)
        return self._with_strangers(scores, strangers, threshold, progress, engine)

    def _unknown(self, unknown: Source | None, threshold: float | None) -> list[Photo]:
        """Find photos of classes that the model does not know; refuse a wrong threshold before any work is done."""
        self.model.limit(threshold)
        found = [] if unknown is None else find_photos(unknown)
        known = sorted({photo.label for photo in found if photo.label is not None} & set(self.classes))
        if known:
            raise PatchvoteError(
                f"the model knows {_quoted(known)}: photos of unknown classes must show none of its classes."
            )
        if isinstance(found, Found):
            self.passed_over += found.passed_over.without_folders()
        return found

    def _with_strangers(
        self,
        scores: Scores,
        photos: list[Photo],
        threshold: float | None,
        progress: Progress | None,
        engine: Engine | None = None,
    ) -> Scores:
        """Add the answers for photos of unknown classes to the scores, if there are any."""
        if not photos:
            return scores

        def answers() -> Iterator[Answer]:
            for done, answer in enumerate(self._answers(photos, threshold, engine, "unknown")):
                if progress is not None:
                    progress("unknown", done + 1, len(photos))
                if answer.error is not None:
                    self.skipped.append(answer.error)
                yield answer

        strangers = strangers_of(self.model, answers(), {photo.name: photo.label for photo in photos}, threshold)
        if strangers is None:
            raise PatchvoteError(f"{none_readable(len(photos))} {self.skipped[-1]}")
        self.scores = dataclasses.replace(scores, strangers=strangers)
        return self.scores

    def _from_workers(
        self,
        engine: Engine,
        photos: list[Photo],
        labels: dict[str, str],
        threshold: float | None,
        progress: Progress | None,
    ) -> Scores | None:
        """Measure the answers of workers."""
        answers: dict[int, Answered] = {}
        for number, one in answered(engine, self._job("evaluate"), photos):
            answers[number] = one
            if progress is not None:
                progress("evaluate", len(answers), len(photos))
        self.skipped = [one.error for _, one in sorted(answers.items()) if one.error is not None]
        self.known = sum(one.known for one in answers.values())
        read = {photos[number].name: one for number, one in sorted(answers.items()) if one.probability is not None}
        if not read:
            return None
        rows = [one.probability for one in read.values() if one.probability is not None]
        familiarity = [one.familiarity for one in read.values()]
        return scores_of(self.model, list(read), rows, familiarity, labels, threshold)

    def _labelled(self, photos: Source, labels: Sequence[str] | None) -> list[Photo]:
        """Find photos of classes that the model knows, and reset what is recorded of the last call."""
        found = labelled(photos, labels, 1)
        unknown = sorted({str(photo.label) for photo in found} - set(self.classes))
        if unknown:
            raise PatchvoteError(
                f"the model does not know {_quoted(unknown)}.{nearest(unknown[0], self.classes)} "
                "`patchvote add` teaches it new classes; `patchvote evaluate --unknown DIR` measures how many photos "
                "of other classes, in a folder of their own, are rejected."
            )
        self.passed_over, self.skipped, self.known = found.passed_over, [], 0
        return found

    def _measured(self, scores: Scores | None, photos: list[Photo]) -> Scores:
        if scores is None:
            raise PatchvoteError(f"{none_readable(len(photos))} {self.skipped[0]}")
        self._photos = {photo.name: photo for photo in photos}
        self.scores, model = scores, self.model
        self._mistakes = lambda: self._evidence_of(scores, lambda name, bag: evidence_of(model, name, bag))
        return scores

    def _evidence_of(self, scores: Scores, explained: Callable[[str, Bags], Evidence]) -> Iterator[Evidence]:
        """Yield the evidence of the worst mistakes, whose photos pass the network again; of what can still be read."""
        names = [scores.names[index] for index in scores.worst()]
        worst = [self._photos[name] for name in names if name in self._photos]  # others were learned before
        for item in self._extractor.stream(worst):
            if item.bag is not None:
                yield explained(item.photo.name, item.bag)

    def _readable(
        self, photos: list[Photo], known: Container[str], progress: Progress | None
    ) -> Iterator[tuple[str, Bags]]:
        """Yield names and bags of photos for `measure`; record those that cannot be read, and count known ones."""
        for done, item in enumerate(self.described(photos)):
            if progress is not None:
                progress("evaluate", done + 1, len(photos))
            if item.bag is None:
                self.skipped.append(item.error or PhotoError(item.photo.name, "could not be read."))
            else:
                self.known += short(item.digest) in known
                yield item.photo.name, item.bag

    def report(
        self, path: str | Path, *, title: str, measured: str, examples: Sequence[Source] = (), origin: str = ""
    ) -> None:
        """Write the results of the last `fit` or `evaluate` to one HTML file.

        Parameters
        ----------
        path : path
            File to write.
        title : str
            Title of the report.
        measured : str
            Description of the photos on which the answers were measured.
        examples : sequence of Source
            Photos to show beside the parts that vote for their classes.
        origin : str
            Digest of what the report is of; `patchvote evaluate` replaces its own report of the same.
        """
        from .report.page import mistakes_of, write_report

        explained = [self.explain(photo) for photo in examples]
        drawn = [(one, load_image(one.photo, SHOWN)) for one in explained if one.photo is not None]
        shown = []
        for evidence in self._mistakes():
            with contextlib.suppress(PhotoError):  # the photo may have been removed
                shown.append((evidence, load_image(self._photos[evidence.name], SHOWN)))
        mistakes = mistakes_of(self.scores, shown)
        write_report(path, self.model, self.scores, mistakes, title=title, kind=measured, shown=drawn, origin=origin)

    # --- storing ----------------------------------------------------------------------------------------------------

    def save(self, path: str | Path, *, memory: bool = True) -> None:
        """Write the model to one file, atomically.

        Parameters
        ----------
        path : path
            File to write.
        memory : bool, default True
            Whether to write what `add`, `forget` and adapting need: with the default voter, 30 kB per photo.

        Raises
        ------
        ModelChangedError
            The model was read from this file or written to it, and another process has changed the file since.
        """
        self._saved = self._saved.write(self.model if memory else self.model.without_memory(), path)

    def is_from(self, path: str | Path) -> bool:
        """Whether the model was read from this file, or last written to it."""
        return self._saved.is_at(path)

    def _open(self, model: Model, saved: Saved, path: str | Path) -> None:
        """Use a model that was read from a file, if it was made with this network."""
        spec = self._extractor.backbone.spec
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
        self._model, self._saved = model, saved


def _quoted(classes: list[str], most: int = 5) -> str:
    more = f" and {len(classes) - most:,} more" if len(classes) > most else ""
    return f"the class{'es' * (len(classes) > 1)} {', '.join(map(repr, classes[:most]))}{more}"
