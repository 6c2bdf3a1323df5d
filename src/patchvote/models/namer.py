"""Namer: names photos with a trained model, explains the answers and measures them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Container, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ..bags.bags import Bags
from ..bags.extract import Extractor
from ..errors import ModelError, PatchvoteError, PhotoError
from ..photos.decode import SHOWN, load_image
from ..photos.find import Photo, Source, find_photos, labelled
from ..photos.passed_over import PassedOver
from ..utils.counting import none_readable
from ..utils.engine import Engine, in_order
from ..utils.suggest import nearest
from ..utils.timing import Progress
from ..voters.votes import NONE
from .answering import Answered, AnsweringJob, answered
from .answers import Answer, answer_from, answer_of, evidence_of
from .evidence import Evidence
from .file import checksum_of
from .known import known_photos, short
from .measure import measure, scores_of, worst_mistakes
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
        Answers and expected classes, after `evaluate`.
    skipped : list of PhotoError
        Photos that could not be read, in the last call.
    passed_over : PassedOver
        Files in the folder of the last call that are not readable photos.
    known : int
        Number of photos of the last `evaluate` that the model had learned from.
    """

    def __init__(self, extractor: Extractor) -> None:
        self._extractor = extractor
        self._model: Model | None = None
        self._saved = Saved()
        self.scores: Scores | None = None
        self._mistakes: tuple[Evidence, ...] = ()
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
            raise PatchvoteError("this classifier has learned nothing yet: call fit, or load a model.")
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

    def answers(self, photos: Source, *, engine: Engine | None = None) -> Iterator[Answer]:
        """Name photos one by one, in order; the answer for a photo that cannot be read holds the reason.

        With an engine, its workers read the model from its file and name the photos.
        """
        found = find_photos(photos)
        self.passed_over = found.passed_over
        if engine is not None:
            for photo, one in zip(found, in_order(answered(engine, self._job("predict"), found)), strict=True):
                if one.probability is None:
                    yield Answer(photo.name, None, error=one.error)
                else:
                    yield answer_from(self.model, photo.name, one.probability)
            return
        for item in self._extractor.stream(found):
            yield self._answer(item.photo.name, item.bag, item.error)

    def _job(self, name: str) -> AnsweringJob:
        """Return the job of workers that answer with this model, which they read from its file."""
        if self._again is None or self._again[0] is not self.model:
            raise PatchvoteError("workers of an engine read the model from a file: save it, and load it from there.")
        path, load = self._again[1:]
        return AnsweringJob(path, load, checksum_of(path), name)

    def _answer(self, name: str, bag: Bags | None, error: PhotoError | None) -> Answer:
        return Answer(name, None, error=error) if bag is None else answer_of(self.model, name, bag)

    def predict(self, photos: Source) -> npt.NDArray[np.str_]:
        """Return the likeliest class of each photo, however unlikely; `predict_or_none` also rejects.

        Raises
        ------
        PhotoError
            A photo cannot be read; `answers` continues after such photos.
        """
        return np.asarray(np.array(self.classes)[self.predict_proba(photos).argmax(axis=1)])

    def predict_or_none(self, photos: Source, none: Any = NONE) -> npt.NDArray[Any]:
        """Return the class of each photo, or `none` where no class is likely enough; raises as `predict` does."""
        probability = self.predict_proba(photos)
        labels = np.array(self.classes, object)[probability.argmax(axis=1)]
        labels[probability.max(axis=1) < self.model.threshold] = none
        return np.asarray(labels)

    def predict_proba(self, photos: Source) -> npt.NDArray[np.float64]:
        """Return the probability of each class of `classes` for each photo; raises as `predict` does."""
        rows = []
        for item in self._extractor.stream(find_photos(photos)):
            if item.bag is None:
                raise item.error or PhotoError(item.photo.name, "could not be read.")
            rows.append(self.model.probability(item.bag))
        return np.stack(rows)

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
            raise PatchvoteError(f"evidence is drawn for one photo at a time, got {len(found)}.")
        (item,) = self._extractor.stream(found)
        if item.bag is None:
            raise item.error or PhotoError(item.photo.name, "could not be read.")
        return evidence_of(self.model, item.photo.name, item.bag, label)

    # --- measuring --------------------------------------------------------------------------------------------------

    def evaluate(
        self,
        photos: Source,
        labels: Sequence[str] | None = None,
        *,
        progress: Progress | None = None,
        engine: Engine | None = None,
    ) -> Scores:
        """Compare answers for labelled photos with their labels; photos that cannot be read are listed in `skipped`.

        Parameters
        ----------
        photos : Source
            Labelled photos.
        labels : sequence of str, optional
            Class of each photo; required for a list, otherwise taken from folders or the manifest.
        progress : function, optional
            Called with the name of the current part, the number of finished photos, and their total.
        engine : Engine, optional
            Engine whose workers answer, with the model from its file; by default this process does.

        Raises
        ------
        PatchvoteError
            A photo has a class that the model does not know.
        """
        found = self._labelled(photos, labels)
        expected = {photo.name: str(photo.label) for photo in found}
        if engine is not None:
            return self._measured(*self._from_workers(engine, found, expected, progress), found)
        bags = self._readable(found, known_photos(self.model.about), progress)
        return self._measured(*measure(self.model, bags, expected), found)

    def _from_workers(
        self, engine: Engine, photos: list[Photo], labels: dict[str, str], progress: Progress | None
    ) -> tuple[Scores | None, tuple[Evidence, ...]]:
        """Measure the answers of workers. Only the bags of the worst mistakes are needed here, and made again."""
        answers: dict[int, Answered] = {}
        for number, one in answered(engine, self._job("evaluate"), photos):
            answers[number] = one
            if progress is not None:
                progress("evaluate", len(answers), len(photos))
        self.skipped = [one.error for _, one in sorted(answers.items()) if one.error is not None]
        self.known = sum(one.known for one in answers.values())
        rows = [(photos[number].name, one.probability) for number, one in sorted(answers.items())]
        read = [(name, probability) for name, probability in rows if probability is not None]
        if not read:
            return None, ()
        scores = scores_of(self.model, [name for name, _ in read], [row for _, row in read], labels)
        by_name = {photo.name: photo for photo in photos}
        worst = [by_name[name] for name in worst_mistakes(scores)]
        bags = ((item.photo.name, item.bag) for item in self._extractor.stream(worst))
        return scores, tuple(evidence_of(self.model, name, bag) for name, bag in bags if bag is not None)

    def _labelled(self, photos: Source, labels: Sequence[str] | None) -> list[Photo]:
        """Find photos of classes that the model knows, and reset what is recorded of the last call."""
        found = labelled(photos, labels, 1)
        unknown = sorted({str(photo.label) for photo in found} - set(self.classes))
        if unknown:
            raise PatchvoteError(
                f"the model does not know {_quoted(unknown)}.{nearest(unknown[0], self.classes)} "
                "`patchvote add` teaches it new classes."
            )
        self.passed_over, self.skipped, self.known = found.passed_over, [], 0
        return found

    def _measured(self, scores: Scores | None, mistakes: tuple[Evidence, ...], photos: list[Photo]) -> Scores:
        if scores is None:
            raise PatchvoteError(f"{none_readable(len(photos))} {self.skipped[0]}")
        self._photos = {photo.name: photo for photo in photos}
        self.scores, self._mistakes = scores, mistakes
        return scores

    def _readable(
        self, photos: list[Photo], known: Container[str], progress: Progress | None
    ) -> Iterator[tuple[str, Bags]]:
        """Yield names and bags of photos; record those that cannot be read, and count known ones."""
        for done, item in enumerate(self._extractor.stream(photos)):
            if progress is not None:
                progress("evaluate", done + 1, len(photos))
            if item.bag is None:
                self.skipped.append(item.error or PhotoError(item.photo.name, "could not be read."))
            else:
                self.known += short(item.digest) in known
                yield item.photo.name, item.bag

    def report(self, path: str | Path, *, title: str, measured: str) -> None:
        """Write the results of the last `fit` or `evaluate` to one HTML file.

        Parameters
        ----------
        path : path
            File to write.
        title : str
            Title of the report.
        measured : str
            Description of the photos on which the answers were measured.
        """
        from .report.page import mistakes_of, write_report

        shown = []
        for evidence in self._mistakes:
            with contextlib.suppress(PhotoError):  # the photo may have been removed
                shown.append((evidence, load_image(self._photos[evidence.name], SHOWN)))
        write_report(path, self.model, self.scores, mistakes_of(self.scores, shown), title=title, kind=measured)

    # --- storing ----------------------------------------------------------------------------------------------------

    def save(self, path: str | Path) -> None:
        """Write the model to one file, atomically.

        Raises
        ------
        ModelChangedError
            The model was read from this file or written to it, and another process has changed the file since.
        """
        self._saved = self._saved.write(self.model, path)

    def is_from(self, path: str | Path) -> bool:
        """Whether the model was read from this file, or last written to it."""
        return self._saved.is_at(path)

    def _open(self, model: Model, saved: Saved, path: str | Path) -> None:
        """Use a model that was read from a file, if it was made with this network."""
        spec = self._extractor.backbone.spec
        if spec.fingerprint != model.fingerprint:
            raise ModelError(
                f"{path} was made with a network of fingerprint {model.fingerprint}, but {spec.name} has "
                f"{spec.fingerprint}: its votes would mean nothing. Load it with the network that it was made with."
            )
        if spec.dim != model.features:
            raise ModelError(f"{path} is damaged: it has {model.features} features, its network {spec.dim}.")
        self._model, self._saved = model, saved


def _quoted(classes: list[str], most: int = 5) -> str:
    more = f" and {len(classes) - most:,} more" if len(classes) > most else ""
    return f"the class{'es' * (len(classes) > 1)} {', '.join(map(repr, classes[:most]))}{more}"
