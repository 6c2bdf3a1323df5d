"""Familiarity: how much a photo looks like photos of the classes that a model knows.

A stranger, a photo of none of the classes, gives itself away by two signs, whatever the voter:

- **Doubt.** No class is likely: the log odds against the likeliest class are high.
- **Distance.** Its vector (`bags.moments.photo_vectors`) is far from the mean vector of every class. The mean of n
  photos is itself uncertain, so squared distances to it are divided by 1 + 1/n.

Both are measured on photos of the classes that were left out, and standardised: a typical left-out photo has 0. The
unit of doubt is the standard deviation, at least 1; that of distance is half of the way from the own class to the
nearest other one, and at least the standard deviation, which alone would make photos of any other camera strange. The
**strangeness** of a photo is the soft maximum of the two, so that neither sign can hide the other.

Its **familiarity** is the share of left-out photos that are at least as strange (the p-value of conformal prediction;
Vovk, Gammerman and Shafer 2005), interpolated between them so that it has no steps. Beyond the strangest left-out photo
it falls exponentially. Rejecting photos with a familiarity below 0.05 costs 1 in 20 photos of the classes.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from ..bags.bags import Bags
from ..bags.moments import photo_vectors
from ..utils.schema import number, record

Floats = npt.NDArray[np.float64]
Numbers = npt.NDArray[np.int64]

REJECTION = 0.05  # share of the photos of known classes that may be rejected, by default
LEAST_ODDS = 1e-6  # smallest odds that are told apart: exported graphs compute in float32
# Unit of distance, as a share of the way from the own class to the nearest other one. A smaller unit rejects more
# strangers of similar classes, and more photos of known classes from another camera (docs/rejection.md).
_UNIT = 0.5
_LEAST_UNIT, _MAX_NUMBER = 1e-12, 1e15  # bounds of the numbers in a file: nothing overflows between them
_MOST_HELD_OUT = 10_000  # left-out photos that a model keeps: with more, shares would not be seen to differ
_FLOATS = ("float16", "float32", "float64")
# Arrays of a model that has a familiarity: names of the axes, and the accepted dtypes.
ARRAYS: dict[str, tuple[str, tuple[str, ...]]] = {
    "means": ("class feature", _FLOATS),
    "counts": ("class", ("int64",)),
    "scales": ("2 2", _FLOATS),
    "held_out": ("photo", _FLOATS),
}
SETTINGS = record({"rejection": number(0, 1)})  # in the header of its file


@dataclasses.dataclass(frozen=True, eq=False)
class Familiarity:
    """What is needed to compare photos with those of known classes."""

    means: npt.NDArray[Any]  # mean vector of the photos of each class
    counts: Numbers  # of the photos of each class
    scales: npt.NDArray[Any]  # centre and unit of doubt, and those of distance, (2, 2)
    held_out: npt.NDArray[Any]  # strangeness of the left-out photos, ascending
    rejection: float = REJECTION  # share of the photos of known classes that may be rejected

    @classmethod
    def learned(
        cls,
        vectors: npt.NDArray[Any],
        numbers: Numbers,
        groups: Numbers,
        images: Numbers,
        probability: npt.NDArray[Any],
        rejection: float = REJECTION,
    ) -> tuple[Self, Floats] | tuple[None, None]:
        """Learn from the vectors, class numbers and groups of photos, and the probabilities of those left out.

        A photo is not compared with those of its own group. Also returns the familiarity of the left-out photos,
        compared with one another; None for both if no photo was left out.
        """
        if not len(images):
            return None, None
        sums, counts = _sums(vectors, numbers, int(numbers.max()) + 1)
        squared = _squared_without_group(vectors, numbers, groups, images, sums, counts)
        distance = np.sqrt(squared.min(axis=1))
        squared[np.arange(len(images)), numbers[images]] = np.inf
        other, doubt = np.sqrt(squared.min(axis=1)), doubt_of(probability)
        doubt_unit = max(float(doubt.std()), 1.0)
        unit = max(_UNIT * float(other.mean() - distance.mean()), float(distance.std()))
        scales = np.array([[doubt.mean(), doubt_unit], [distance.mean(), unit if unit >= _LEAST_UNIT else 1.0]])
        strangeness = _strangeness(doubt, distance, scales)
        ranked, count = np.sort(strangeness), len(strangeness)
        shares = 1 - np.searchsorted(ranked, strangeness, side="left") / count
        if count > _MOST_HELD_OUT:
            ranked = ranked[np.linspace(0, count - 1, _MOST_HELD_OUT).round().astype(int)]
        return cls((sums / counts[:, None]).astype(np.float32), counts, scales, ranked, rejection), shares

    def with_photos(self, vectors: npt.NDArray[Any], numbers: Numbers, places: Numbers, classes: int) -> Self:
        """Return the familiarity of a model that has learned more photos; the scales stay.

        `places` are the numbers of the old classes among all classes, `numbers` those of the new photos.
        """
        sums, counts = _sums(vectors, numbers, classes)
        sums[places] += self.means.astype(np.float64) * self.counts[:, None]
        counts[places] += self.counts
        return dataclasses.replace(self, means=(sums / counts[:, None]).astype(np.float32), counts=counts)

    def of_bags(self, probability: npt.NDArray[Any], bags: Bags) -> Floats:
        """Return the familiarity of photos, from the probabilities of the classes and their bags."""
        return self.of(probability, photo_vectors(bags))

    def strangeness(self, probability: npt.NDArray[Any], vectors: npt.NDArray[Any]) -> Floats:
        """Return the strangeness of photos, from the probabilities of the classes and their vectors."""
        squared = _squared(vectors.astype(np.float64), self.means.astype(np.float64), self.counts)
        return _strangeness(doubt_of(probability), np.sqrt(squared.min(axis=1)), self.scales.astype(np.float64))

    def of(self, probability: npt.NDArray[Any], vectors: npt.NDArray[Any]) -> Floats:
        """Return the familiarity of photos, from the probabilities of the classes and their vectors."""
        return self.share(self.strangeness(probability, vectors))

    def share(self, strangeness: npt.NDArray[Any]) -> Floats:
        """Return the share of known photos that are at least as strange; it falls as strangeness rises.

        A new photo of a known class is equally likely to come before, between or after n held-out ones. So the share at
        the strangest is 1 / (n + 1), at the second strangest 2 / (n + 1), and so on.
        """
        count = len(self.held_out)
        shares = np.interp(strangeness, self.held_out, np.arange(count, 0, -1) / (count + 1))
        return np.asarray(shares * np.exp(-np.maximum(strangeness - self.held_out[-1], 0)))

    @property
    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """Arrays that a file of a model holds."""
        return {name: getattr(self, name) for name in ARRAYS}

    @property
    def settings(self) -> dict[str, float]:
        """Numbers that the header of such a file holds."""
        return {"rejection": self.rejection}

    def fault(self, classes: int, features: int) -> str | None:
        """Return what is wrong with the arrays for a model of so many classes and features, or None."""
        if (fault := SETTINGS(self.settings)) is not None:
            return f"familiarity{fault}."
        for name, (axes, types) in ARRAYS.items():
            array = getattr(self, name)
            if array.ndim != len(axes.split()) or array.dtype.name not in types:
                return f"the array {name!r} of its familiarity has {array.ndim} axes of {array.dtype}."
            if not np.isfinite(array).all() or (np.abs(array) > _MAX_NUMBER).any():
                return f"the array {name!r} of its familiarity has numbers that are not finite, or too large."
        if self.means.shape != (classes, features) or self.counts.shape != (classes,) or self.counts.min() < 1:
            return "the class means of its familiarity do not fit its classes and features."
        if self.scales.shape != (2, 2) or not (self.scales[:, 1] >= _LEAST_UNIT).all():
            return "the units of its familiarity are not positive."
        if not len(self.held_out) or (np.diff(self.held_out) < 0).any():
            return "the left-out photos of its familiarity are missing, or not in order."
        return None


def doubt_of(probability: npt.NDArray[Any]) -> Floats:
    """Return the log odds against the likeliest class of each photo."""
    ranked = np.sort(probability.astype(np.float64), axis=1)
    others = ranked[:, :-1].sum(axis=1)  # more exact than 1 less the largest
    return np.asarray(np.log(np.maximum(others, LEAST_ODDS) / np.maximum(ranked[:, -1], LEAST_ODDS)))


def _strangeness(doubt: Floats, distance: Floats, scales: Floats) -> Floats:
    """Return the soft maximum of doubt and distance, each less its centre and divided by its unit."""
    (doubt_centre, doubt_unit), (distance_centre, distance_unit) = scales
    standardised = (doubt - doubt_centre) / doubt_unit, (distance - distance_centre) / distance_unit
    return np.asarray(np.logaddexp(*standardised))


def _squared(vectors: Floats, means: Floats, counts: Numbers) -> Floats:
    """Return the squared distance of each vector to each class mean ``(photos, classes)``, over 1 + 1/n."""
    squares = np.square(vectors).sum(axis=1)[:, None] + np.square(means).sum(axis=1) - 2 * vectors @ means.T
    return np.asarray(np.maximum(squares, 0) / (1 + 1 / counts))


def _squared_without_group(
    vectors: npt.NDArray[Any], numbers: Numbers, groups: Numbers, images: Numbers, sums: Floats, counts: Numbers
) -> Floats:
    """Return the squared distance of photos to each class mean, of which the photo's own group is no part."""
    squared = _squared(vectors[images].astype(np.float64), sums / counts[:, None], counts)
    members: dict[int, list[int]] = {}
    for photo, group in enumerate(groups.tolist()):
        members.setdefault(group, []).append(photo)
    for row, photo in enumerate(images.tolist()):
        own = np.array(members[int(groups[photo])])
        for label in np.unique(numbers[own]).tolist():
            same = own[numbers[own] == label]
            left = int(counts[label]) - len(same)
            if left == 0:
                squared[row, label] = np.inf  # the class has no other photo
                continue
            mean = (sums[label] - vectors[same].sum(axis=0, dtype=np.float64)) / left
            squared[row, label] = np.square(vectors[photo] - mean).sum() / (1 + 1 / left)
    return squared


def _sums(vectors: npt.NDArray[Any], numbers: Numbers, classes: int) -> tuple[Floats, Numbers]:
    """Return the sums of the vectors of photos by class, and their numbers."""
    sums = np.stack([vectors[numbers == number].sum(axis=0, dtype=np.float64) for number in range(classes)])
    return sums, np.bincount(numbers, minlength=classes)
