"""What the other photos of a collection say of each photo, and the wrong labels and outliers that follow from it.

A label is suspect where the photos that were learned without this one give another class a much larger probability. How
much larger it has to be depends on the two classes: where photos of one often look like the other, as coasts look like
open country, a contradiction is nothing special. So the odds of the two probabilities are divided by how often other
photos of the label look like that class,

    doubt = P(other) / P(label) / (rate(label, other) + 0.05) .

How unlike the others a photo is follows from the same equations (`voters.ridge`): with h its leverage, the weight of
its own label in its own answer,

    unlike = h / (1 - h) ,

which is large where the photo points into a direction in which the others do not vary.

The rules, their constants and limits were chosen on Amazon and Scene-15 with planted labels and strangers, and measured
on other draws and sets (docs/check.md).
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import numpy.typing as npt

from ...bags.moments import MomentBags
from ...utils.terminal import counted, some
from ...voters.moment_ridge import MomentRidge
from ...voters.votes import softmax
from ..scores import Scores

# Regularisation of the leverage; from a third to three times of it, precision changes by a point at most.
_ALPHA = 0.003
# Doubt from which on a label is told; of planted labels, that finds 7 to 9 in 10, and 8 to 9 in 10 are right.
_SURE = 150.0
_RARE = 0.05  # added to rates, which are never known to be 0
_SPREADS = 2.0  # interquartile ranges above the upper quartile, on a log scale, from which on a photo is an outlier
_FEWEST_OF_MANY = 20  # photos from which quartiles mean something
_SMALL = 100  # photos below which a collection is small; the rule was measured with 16 to 80
_FEWEST = 12  # photos from which on quartiles mean something, if three signs agree
_NEAREST = 3  # photos to which the distance is measured; of 1, 2, 3 and 5 the best
_UNDECIDED = 2.0  # weight of the negative log of the largest probability
_LIMIT = 2.4  # from which on a photo is told
_DECIDED = 0.5  # least median of P. With 8 photos per class and more it was 0.65 or more (docs/check.md)
_LEAST_SPREAD = 0.02  # interquartile range on the log scale; with less, all photos are the same, and none is an outlier
_SHOWN = 3  # photos that a sentence names

Floats = npt.NDArray[np.float64]
Numbers = npt.NDArray[np.int64]


@dataclasses.dataclass(frozen=True, eq=False)
class HeldOut:
    """What the others say of each photo; NaN where it cannot be left out, since its class has no other."""

    probability: Floats  # (photos, classes)
    unlike: Floats  # how unlike the others each photo is

    @property
    def asked(self) -> npt.NDArray[np.bool_]:
        """Which photos could be left out."""
        return ~np.isnan(self.unlike)


def hold_out_each(bags: MomentBags, labels: npt.NDArray[Any], groups: Numbers) -> HeldOut:
    """Ask all others about every photo, of two classes at least; the copies of a group are left out together."""
    classes = np.unique(labels)
    if len(classes) < 2:
        return HeldOut(np.full((len(labels), 1), np.nan), np.full(len(labels), np.nan))
    voter = MomentRidge(class_weight="balanced").fit(bags, labels, groups=groups)
    unlike = voter.solved_.ridge.unlike(_ALPHA, groups)
    unlike[np.isnan(voter.left_out_[:, 0])] = np.nan
    return HeldOut(softmax(voter.left_out_ / voter.temperature_), unlike)


# --- labels -----------------------------------------------------------------------------------------------------------


def doubtful_labels(probability: Floats, labels: Numbers) -> tuple[Numbers, Numbers]:
    """Return the photos whose labels are contradicted, the surest first, and the class that each looks like.

    Rows of NaN of the held-out probabilities are passed over.
    """
    doubts, others = label_doubts(probability, labels)
    order = np.argsort(-doubts, kind="stable")
    photos = order[doubts[order] > _SURE]
    return photos, others[photos]


def label_doubts(probability: Floats, labels: Numbers) -> tuple[Floats, Numbers]:
    """Return how doubtful the label of each photo is (0 if it was not held out), and the likeliest other class."""
    rows, known = np.arange(len(labels)), ~np.isnan(probability[:, 0])
    filled = np.where(known[:, None], probability, 0.0)
    others = filled.copy()
    others[rows, labels] = -1.0
    best = others.argmax(axis=1)
    own, other = filled[rows, labels], filled[rows, best]
    # How often the other photos of the same label look like that class: their mean probability.
    sums = np.zeros((probability.shape[1], probability.shape[1]))
    np.add.at(sums, labels, filled)
    counts = np.bincount(labels[known], minlength=probability.shape[1])
    rates = (sums[labels, best] - other) / np.maximum(counts[labels] - 1, 1)
    doubts = other / np.maximum(own, 1e-300) / (np.maximum(rates, 0.0) + _RARE)
    return np.where(known & (best != labels), doubts, 0.0), np.asarray(best, np.int64)


def plain_labels(scores: Scores | None) -> list[dict[str, Any]]:
    """Return the held-out photos of a training that look mislabelled, as plain values."""
    if scores is None or not len(scores):
        return []
    photos, classes = doubtful_labels(scores.probability, scores.expected)
    return [
        {
            "file_name": scores.names[photo],
            "label": scores.classes[scores.expected[photo]],
            "looks_like": scores.classes[label],
            "probability": round(float(scores.probability[photo, label]), 4),
        }
        for photo, label in zip(photos, classes, strict=True)
    ]


def label_sentences(scores: Scores | None) -> list[str]:
    """Return a sentence on the held-out photos of a training that look mislabelled, if there are any."""
    found = [f"{one['file_name']} ({one['looks_like']}?)" for one in plain_labels(scores)]
    if not found:
        return []
    return [
        f"{counted(len(found), 'of the held-out photos looks', 'of the held-out photos look')} mislabelled "
        f"to this model: {some(found, _SHOWN)}. `patchvote check` looks at all photos, and asks a voter of its own, so "
        "that it may list others."
    ]


# --- outliers ---------------------------------------------------------------------------------------------------------


def outliers_of(held_out: HeldOut, vectors: npt.NDArray[Any], groups: Numbers) -> Numbers:
    """Return the photos unlike all others of a collection of any size, the least alike first.

    In a small collection every photo points into directions in which the others do not vary, so two signs are added to
    `unlike`: the distance of the photos' vectors, and whether the others are undecided about the photo, the largest
    probability P being small. With z the interquartile ranges above the upper quartile, on a log scale, a photo is an
    outlier where

        min(z(unlike), z(distance)) - 2 log P > 2.4    and    min(z(unlike), z(distance)) > 0 .
    """
    known = np.flatnonzero(held_out.unlike > 0)
    if len(known) >= _SMALL:
        return outliers(held_out.unlike)
    if why_no_outliers(held_out):
        return np.zeros(0, np.int64)
    distance = _nearest_distances(vectors, groups)[known]
    both = np.minimum(_ranges_above(np.log(held_out.unlike[known])), _ranges_above(np.log(distance)))
    strange = both - _UNDECIDED * np.log(held_out.probability[known].max(axis=1))
    found = np.flatnonzero((strange > _LIMIT) & (both > 0))
    return np.asarray(known[found[np.argsort(-strange[found], kind="stable")]])


def outliers(unlike: Floats) -> Numbers:
    """Return the photos of a large collection that are unlike all others, the least alike first; NaN is passed over."""
    known = np.flatnonzero(unlike > 0)
    if len(known) < _FEWEST_OF_MANY:
        return np.zeros(0, np.int64)
    logs = np.log(unlike[known])
    low, high = np.quantile(logs, [0.25, 0.75])
    far = known[logs > high + _SPREADS * (high - low)]
    return np.asarray(far[np.argsort(-unlike[far], kind="stable")])


def why_no_outliers(held_out: HeldOut) -> str:
    """Return why outliers cannot be told, as a part of a sentence; empty if they can."""
    known = np.flatnonzero(held_out.unlike > 0)
    if len(known) < _FEWEST:
        return f"that needs {_FEWEST} photos that can be compared"
    if len(known) < _SMALL and np.median(held_out.probability[known].max(axis=1)) < _DECIDED:
        return "the other photos are undecided about most photos, as classes have too few photos or differ too little"
    return ""


def _nearest_distances(vectors: npt.NDArray[Any], groups: Numbers) -> Floats:
    """Return the mean distance (1 - cosine) of each photo to the nearest others, its copies left out."""
    distances = 1 - vectors @ vectors.T
    distances[groups[:, None] == groups[None, :]] = np.nan  # also the photo itself
    nearest = np.sort(distances, axis=1)[:, :_NEAREST]  # NaN comes last
    known = ~np.isnan(nearest)
    mean = np.where(known, nearest, 0.0).sum(axis=1) / np.maximum(known.sum(axis=1), 1)
    return np.asarray(np.maximum(mean, np.finfo(float).tiny))


def _ranges_above(values: Floats) -> Floats:
    """Return how many interquartile ranges each value is above the upper quartile."""
    low, high = np.quantile(values, [0.25, 0.75])
    return np.asarray((values - high) / max(high - low, _LEAST_SPREAD))
