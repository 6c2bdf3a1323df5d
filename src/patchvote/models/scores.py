"""Scores of answers: accuracy with its interval, confusion, reliability of the probabilities.

Everything is computed from expected classes and answers; nothing here depends on photos or voters.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
import numpy.typing as npt

from .strangers import Strangers

WORST = 12  # mistakes that a report shows: they fit on a few screens
_Z = 1.96  # standard deviations of a normal distribution within which 95 % of it lie


def interval(right: int, count: int) -> tuple[float, float]:
    """Return the 95 % confidence interval of a share, by Wilson's score.

    Unlike the normal approximation, it is valid for few images and for shares near 0 and 1.

    Examples
    --------
    >>> [round(edge, 3) for edge in interval(9, 10)]
    [0.596, 0.982]
    >>> interval(0, 0)
    (0.0, 1.0)
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
    """Images with similar confidence: their mean confidence (`sure`) and their accuracy (`right`)."""

    images: int
    sure: float
    right: float


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
    def sure(self) -> npt.NDArray[np.float64]:
        """Confidence of each answer: its largest probability."""
        return np.asarray(self.probability.max(axis=1))

    @property
    def accuracy(self) -> float:
        """Share of the images that are classified correctly, without rejection."""
        return float(np.mean(self.predicted == self.expected)) if len(self) else math.nan

    @property
    def interval(self) -> tuple[float, float]:
        """95 % confidence interval of the accuracy on images of this kind."""
        return interval(int(np.sum(self.predicted == self.expected)), len(self))

    @property
    def rejected(self) -> npt.NDArray[np.bool_]:
        """Which images are answered with "none of these"."""
        return self.decisive < self.threshold

    @property
    def decisive(self) -> npt.NDArray[np.float64]:
        """What decides whether an image is rejected: its familiarity or, if that is not known, its confidence."""
        return self.sure if self.familiarity is None else self.familiarity

    @property
    def rejected_right(self) -> int:
        """Number of rejected images whose likeliest class is the correct one."""
        return int(np.sum(self.rejected & (self.predicted == self.expected)))

    @property
    def accuracy_of_named(self) -> float:
        """Share of the images that are not rejected that are classified correctly; NaN where all are rejected."""
        named = ~self.rejected
        return float(np.mean(self.predicted[named] == self.expected[named])) if named.any() else math.nan

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
        group = np.minimum((self.sure * bins).astype(int), bins - 1)
        correct = self.predicted == self.expected
        return [
            Reliability(int(np.sum(group == i)), float(self.sure[group == i].mean()), float(correct[group == i].mean()))
            for i in range(bins)
            if (group == i).any()
        ]

    @property
    def calibration_error(self) -> float:
        """Expected calibration error: mean difference between confidence and accuracy of the groups."""
        return sum(group.images * abs(group.sure - group.right) for group in self.reliability()) / max(len(self), 1)

    def plot(self) -> Any:
        """Return a figure of matplotlib (the extra `plots`) with the confusion matrix."""
        from .notebook import confusion_figure

        return confusion_figure(self)

    def _repr_html_(self) -> str:
        from .notebook import scores_html

        return scores_html(self)

    def worst(self, count: int = WORST) -> npt.NDArray[np.int64]:
        """Return the indices of the misclassified images, in descending order of confidence."""
        wrong = np.flatnonzero(self.predicted != self.expected)
        return np.asarray(wrong[np.argsort(-self.sure[wrong], kind="stable")][:count])

    def named_curve(self) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
        """Return the share of images that is rejected, rising, and the accuracy on the others.

        Examples
        --------
        >>> scores = Scores(("sea", "land"), ("a", "b"), np.array([0, 1]), np.array([[0.9, 0.1], [0.6, 0.4]]))
        >>> [values.tolist() for values in scores.named_curve()]
        [[0.0, 0.5], [0.5, 1.0]]
        """
        levels = np.unique(self.decisive)
        order = np.argsort(self.decisive, kind="stable")
        correct = (self.predicted == self.expected)[order]
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
