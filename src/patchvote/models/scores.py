"""How good answers are: accuracy with its interval, confusion, reliability of the probabilities.

Everything is computed from what was asked and what was answered; nothing here knows photos or voters.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
import numpy.typing as npt

WORST = 12  # mistakes that are shown


def interval(right: int, count: int, z: float = 1.96) -> tuple[float, float]:
    """Return the interval in which a share lies with 95 % confidence, by Wilson's score.

    Unlike the mean plus and minus two deviations, it holds for few images and for shares near 0 and 1.

    Examples
    --------
    >>> [round(edge, 3) for edge in interval(9, 10)]
    [0.596, 0.982]
    >>> interval(0, 0)
    (0.0, 1.0)
    """
    if count == 0:
        return 0.0, 1.0
    share, weight = right / count, z * z / count
    centre = (share + weight / 2) / (1 + weight)
    half = z / (1 + weight) * math.sqrt(share * (1 - share) / count + weight / (4 * count))
    return max(0.0, centre - half), min(1.0, centre + half)


@dataclasses.dataclass(frozen=True)
class ClassScores:
    """How one class fares: of its images, the share found; of the images named so, the share that is right."""

    label: str
    images: int
    found: float
    right: float


@dataclasses.dataclass(frozen=True)
class Reliability:
    """Images whose largest probability was about the same: how sure the answers were, and how many were right."""

    images: int
    sure: float
    right: float


@dataclasses.dataclass(frozen=True, eq=False)
class Scores:
    """Answers beside what they should have been.

    Parameters
    ----------
    classes : tuple of str
        The classes, in the order of the columns of `probability`.
    names : tuple of str
        The images.
    expected : array of int
        Number of the right class of each image.
    probability : array of shape (images, classes)
        What was answered.
    threshold : float
        Answers whose largest probability is below it are "none of these".

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

    def __len__(self) -> int:
        return len(self.names)

    @property
    def predicted(self) -> npt.NDArray[np.int64]:
        """Number of the likeliest class of each image."""
        return np.asarray(self.probability.argmax(axis=1))

    @property
    def sure(self) -> npt.NDArray[np.float64]:
        """Largest probability of each image."""
        return np.asarray(self.probability.max(axis=1))

    @property
    def accuracy(self) -> float:
        """Share of the images that are named rightly; "none of these" is left aside."""
        return float(np.mean(self.predicted == self.expected)) if len(self) else math.nan

    @property
    def interval(self) -> tuple[float, float]:
        """Where the accuracy on images of this kind lies, with 95 % confidence."""
        return interval(int(np.sum(self.predicted == self.expected)), len(self))

    @property
    def rejected(self) -> npt.NDArray[np.bool_]:
        """Which images are answered with "none of these"."""
        return self.sure < self.threshold

    @property
    def accuracy_of_named(self) -> float:
        """Share named rightly of the images that are not rejected; NaN where all are."""
        named = ~self.rejected
        return float(np.mean(self.predicted[named] == self.expected[named])) if named.any() else math.nan

    @property
    def confusion(self) -> npt.NDArray[np.int64]:
        """Images of each class (rows) that were named so (columns)."""
        table = np.zeros((len(self.classes), len(self.classes)), np.int64)
        np.add.at(table, (self.expected, self.predicted), 1)
        return table

    def by_class(self) -> list[ClassScores]:
        """Tell how each class fares; a share of nothing is NaN."""
        table = self.confusion
        asked, named, both = table.sum(axis=1), table.sum(axis=0), table.diagonal()
        return [
            ClassScores(
                label,
                int(asked[i]),
                float(both[i] / asked[i]) if asked[i] else math.nan,
                float(both[i] / named[i]) if named[i] else math.nan,
            )
            for i, label in enumerate(self.classes)
        ]

    def reliability(self, bins: int = 10) -> list[Reliability]:
        """Group the images by how sure the answers are; groups without images are left out."""
        group = np.minimum((self.sure * bins).astype(int), bins - 1)
        right = self.predicted == self.expected
        return [
            Reliability(int(np.sum(group == i)), float(self.sure[group == i].mean()), float(right[group == i].mean()))
            for i in range(bins)
            if (group == i).any()
        ]

    @property
    def calibration_error(self) -> float:
        """By how much the answers are surer, or less sure, than they are right, on average over the groups."""
        return sum(group.images * abs(group.sure - group.right) for group in self.reliability()) / max(len(self), 1)

    def worst(self, count: int = WORST) -> npt.NDArray[np.int64]:
        """Return the numbers of the images that are named wrongly, the surest first."""
        wrong = np.flatnonzero(self.predicted != self.expected)
        return np.asarray(wrong[np.argsort(-self.sure[wrong], kind="stable")][:count])

    def summary(self) -> dict[str, Any]:
        """Return the scores as plain numbers, for JSON."""
        return {
            "images": len(self),
            "accuracy": _plain(self.accuracy),
            "interval": list(self.interval),
            "rejected": int(self.rejected.sum()),
            "calibration_error": _plain(self.calibration_error),
            "classes": {
                own.label: {"images": own.images, "found": _plain(own.found), "right": _plain(own.right)}
                for own in self.by_class()
            },
        }


def _plain(value: float) -> float | None:
    return None if math.isnan(value) else float(value)  # not rounded: what is printed is rounded once
