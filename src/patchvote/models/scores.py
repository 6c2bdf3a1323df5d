"""Scores of answers: accuracy with its interval, confusion, reliability of the probabilities, and rejected strangers.

Everything is computed from expected classes and answers; nothing here depends on photos or voters.
"""

from __future__ import annotations

import collections
import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ..errors import PatchvoteError
from ..photos.find import Photo
from ..utils.terminal import none_readable

if TYPE_CHECKING:
    from .answers import Answer
    from .model import Model

Floats = npt.NDArray[np.float64]
WORST = 12  # mistakes that a report shows: they fit on a few screens
_Z = 1.96  # standard deviations of a normal distribution within which 95 % of it lie


def interval(right: int, count: int) -> tuple[float, float]:
    """Return the 95 % confidence interval of a share, by Wilson's score.

    Unlike the normal approximation, it is valid for few images and for shares near 0 and 1.
    """
    if count == 0:
        return 0.0, 1.0
    share, weight = right / count, _Z * _Z / count
    centre = (share + weight / 2) / (1 + weight)
    half = _Z / (1 + weight) * math.sqrt(share * (1 - share) / count + weight / (4 * count))
    return max(0.0, centre - half), min(1.0, centre + half)


@dataclasses.dataclass(frozen=True)
class ClassScores:
    """Scores of one class: `found` is its recall, `right` its precision."""

    label: str
    images: int
    found: float
    right: float


@dataclasses.dataclass(frozen=True)
class Reliability:
    """Images with similar confidence: their number, mean confidence and accuracy."""

    images: int
    confidence: float
    accuracy: float


@dataclasses.dataclass(frozen=True, eq=False)
class Strangers:
    """Answers for photos of classes that the model does not know, which it should reject."""

    labels: tuple[str, ...]  # true classes, where they were given; otherwise empty
    predicted: tuple[str, ...]  # likeliest classes, among those that the model knows
    familiarity: Floats  # largest probabilities, if the model has no familiarity
    threshold: float  # smallest familiarity (or probability) of an answer; below it, the answer is "none of these"

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def rejected(self) -> npt.NDArray[np.bool_]:
        """Which photos are answered with "none of these"."""
        return self.familiarity < self.threshold

    def auroc(self, known: npt.NDArray[Any]) -> float:
        """Return how often a photo of a `known` class is more familiar than a stranger; ties count half.

        This is the area under the curve of `curve`: 1 if both are told apart at some threshold, 0.5 by guessing.
        """
        ranked = np.sort(known)
        below, up_to = (np.searchsorted(ranked, self.familiarity, side=side).mean() for side in ("left", "right"))
        return float(1 - (below + up_to) / 2 / len(known))

    def curve(self, known: npt.NDArray[Any]) -> tuple[Floats, Floats]:
        """Return the shares of known photos and of strangers that are rejected, for every threshold, both rising."""
        levels = np.append(np.unique(np.concatenate([known, self.familiarity])), np.inf)
        found = (np.searchsorted(np.sort(scores), levels, side="left") for scores in (known, self.familiarity))
        of_known, of_strangers = (np.asarray(count / max(int(count[-1]), 1)) for count in found)
        return of_known, of_strangers

    def by_class(self) -> list[tuple[str, int, int, str]]:
        """Return each unknown class: number of photos, number rejected, and the class that the others are named most.

        Classes of which the fewest are rejected come first.
        """
        accepted: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)
        for label, predicted, rejected in zip(self.labels, self.predicted, self.rejected.tolist(), strict=True):
            if not rejected:
                accepted[label][predicted] += 1
        rows = []
        for label, count in sorted(collections.Counter(self.labels).items()):
            named = accepted[label]
            rows.append((label, count, count - named.total(), named.most_common(1)[0][0] if named else ""))
        return sorted(rows, key=lambda row: row[2] / row[1])

    def summary(self, known: npt.NDArray[Any]) -> dict[str, Any]:
        """Return the figures as plain numbers, for JSON; `known` as for `auroc`."""
        return {
            "images": len(self),
            "rejected": int(self.rejected.sum()),
            "auroc": self.auroc(known),
            "classes": {
                label: {"images": count, "rejected": rejected, "named": most}
                for label, count, rejected, most in self.by_class()
            },
        }


@dataclasses.dataclass(frozen=True, eq=False)
class Scores:
    """Answers and expected classes.

    Parameters
    ----------
    classes : tuple of str
        Classes, in the order of the columns of `probability`.
    names : tuple of str
        Names of the images.
    expected : array of int
        Index of the correct class of each image.
    probability : array of shape (images, classes)
        Probability of each class for each image.
    threshold : float
        Smallest familiarity of an answer, or smallest confidence if familiarity is not known; below it, the answer is
        "none of these".
    familiarity : array of shape (images,), optional
        Familiarity of each image (see `voters.familiarity`).
    strangers : Strangers, optional
        Answers for images of classes that the model does not know.
    held_out : bool
        Whether the images are training images that were held out by `fit`; otherwise they were given to `evaluate`.

    Examples
    --------
    >>> scores = Scores(("sea", "land"), ("a", "b"), np.array([0, 1]), np.array([[0.9, 0.1], [0.6, 0.4]]))
    >>> scores.accuracy, scores.confusion.tolist()
    (0.5, [[1, 0], [1, 0]])
    """

    classes: tuple[str, ...]
    names: tuple[str, ...]
    expected: npt.NDArray[np.int64]
    probability: npt.NDArray[np.float64]
    threshold: float = 0.0
    familiarity: npt.NDArray[np.float64] | None = None
    strangers: Strangers | None = None
    held_out: bool = False

    def __len__(self) -> int:
        return len(self.names)

    @property
    def predicted(self) -> npt.NDArray[np.int64]:
        """Index of the likeliest class of each image."""
        return np.asarray(self.probability.argmax(axis=1))

    @property
    def confidence(self) -> npt.NDArray[np.float64]:
        """Confidence of each answer: its largest probability."""
        return np.asarray(self.probability.max(axis=1))

    @property
    def is_right(self) -> npt.NDArray[np.bool_]:
        """Which images are classified correctly, without rejection."""
        return np.asarray(self.predicted == self.expected)

    @property
    def accuracy(self) -> float:
        """Share of the images that are classified correctly, without rejection."""
        return float(self.is_right.mean()) if len(self) else math.nan

    @property
    def interval(self) -> tuple[float, float]:
        """95 % confidence interval of the accuracy on images of this kind."""
        return interval(int(self.is_right.sum()), len(self))

    @property
    def rejected(self) -> npt.NDArray[np.bool_]:
        """Which images are answered with "none of these"."""
        return self.decisive < self.threshold

    @property
    def decisive(self) -> npt.NDArray[np.float64]:
        """What decides whether an image is rejected: its familiarity or, if that is not known, its confidence."""
        return self.confidence if self.familiarity is None else self.familiarity

    @property
    def rejected_right(self) -> int:
        """Number of rejected images whose likeliest class is the correct one."""
        return int(np.sum(self.rejected & self.is_right))

    @property
    def accuracy_of_named(self) -> float:
        """Share of the images that are not rejected that are classified correctly; NaN where all are rejected."""
        named = ~self.rejected
        return float(self.is_right[named].mean()) if named.any() else math.nan

    @property
    def confusion(self) -> npt.NDArray[np.int64]:
        """Number of images by expected class (rows) and predicted class (columns)."""
        table = np.zeros((len(self.classes), len(self.classes)), np.int64)
        np.add.at(table, (self.expected, self.predicted), 1)
        return table

    def by_class(self) -> list[ClassScores]:
        """Return the scores of each class; shares of no images are NaN."""
        table = self.confusion
        expected, predicted, correct = table.sum(axis=1), table.sum(axis=0), table.diagonal()
        return [
            ClassScores(
                label,
                int(expected[i]),
                float(correct[i] / expected[i]) if expected[i] else math.nan,
                float(correct[i] / predicted[i]) if predicted[i] else math.nan,
            )
            for i, label in enumerate(self.classes)
        ]

    def reliability(self, bins: int = 10) -> list[Reliability]:
        """Group the images by confidence; groups without images are left out."""
        group = np.minimum((self.confidence * bins).astype(int), bins - 1)
        correct = self.is_right
        members = [group == i for i in range(bins)]
        return [
            Reliability(int(chosen.sum()), float(self.confidence[chosen].mean()), float(correct[chosen].mean()))
            for chosen in members
            if chosen.any()
        ]

    @property
    def calibration_error(self) -> float:
        """Expected calibration error: mean difference between confidence and accuracy of the groups."""
        return sum(group.images * abs(group.confidence - group.accuracy) for group in self.reliability()) / max(
            len(self), 1
        )

    def worst(self, count: int = WORST) -> npt.NDArray[np.int64]:
        """Return the indices of the misclassified images, in descending order of confidence."""
        wrong = np.flatnonzero(~self.is_right)
        return np.asarray(wrong[np.argsort(-self.confidence[wrong], kind="stable")][:count])

    def named_curve(self) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
        """Return the share of images that is rejected, rising, and the accuracy on the others."""
        levels = np.unique(self.decisive)
        order = np.argsort(self.decisive, kind="stable")
        correct = self.is_right[order]
        rejected = np.searchsorted(self.decisive[order], levels, side="left")
        remaining = np.cumsum(correct[::-1])[::-1][rejected]
        return np.asarray(rejected / len(self)), np.asarray(remaining / (len(self) - rejected))

    def summary(self) -> dict[str, Any]:
        """Return the scores as plain numbers, for JSON."""
        return {
            "images": len(self),
            "accuracy": _plain(self.accuracy),
            "interval": list(self.interval),
            "rejected": int(self.rejected.sum()),
            "rejected_right": self.rejected_right,
            "calibration_error": _plain(self.calibration_error),
            "classes": {
                one.label: {"images": one.images, "found": _plain(one.found), "right": _plain(one.right)}
                for one in self.by_class()
            },
        }


def _plain(value: float) -> float | None:
    return None if math.isnan(value) else float(value)  # not rounded: printed values are rounded only once


def scores_of(
    model: Model, answers: Sequence[Answer], photos: Mapping[str, Photo], threshold: float | None = None
) -> Scores:
    """Compare answers with the classes of their photos, by name."""
    read, number = _readable(answers), {label: index for index, label in enumerate(model.classes)}
    expected = np.array([number[str(photos[answer.name].label)] for answer in read])
    probability = np.stack([np.asarray(answer.probabilities) for answer in read])
    familiar = None if model.familiarity is None else np.array([answer.familiarity for answer in read], np.float64)
    names = tuple(answer.name for answer in read)
    return Scores(model.classes, names, expected, probability, model.limit(threshold), familiar)


def strangers_of(
    model: Model, answers: Sequence[Answer], photos: Sequence[Photo], threshold: float | None
) -> Strangers:
    """Return the answers for photos of unknown classes."""
    read, labels = _readable(answers), {photo.name: photo.label or "" for photo in photos}
    decisive = [one.likeliest_probability if one.familiarity is None else one.familiarity for one in read]
    true, predicted = tuple(labels[answer.name] for answer in read), tuple(str(answer.likeliest) for answer in read)
    return Strangers(true, predicted, np.array(decisive, np.float64), model.limit(threshold))


def _readable(answers: Sequence[Answer]) -> list[Answer]:
    if read := [answer for answer in answers if answer.error is None]:
        return read
    raise PatchvoteError(f"{none_readable(len(answers))} {answers[-1].error}")
