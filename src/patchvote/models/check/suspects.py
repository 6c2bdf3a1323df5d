"""Photos that are probably mislabelled, and photos unlike all others, from what the other photos say of them.

A label is suspect where the photos that were learned without this one give another class a much larger probability. How
much larger it has to be depends on the two classes: where photos of one often look like the other, as coasts look like
open country, a contradiction is nothing special. So the odds of the two probabilities are divided by how often other
photos of the label look like that class,

    doubt = P(other) / P(label) / (rate(label, other) + 0.05) .

The rule, its constant and the limit were chosen on Amazon and Scene-15 with planted labels, and measured on other draws
and sets (docs/check.md).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from ...utils.terminal import counted
from ..report.card import some
from ..scores import Scores

_SURE = (
    150.0  # doubt from which on a label is told; of planted labels, that finds 7 to 9 in 10, and 8 to 9 in 10 are right
)
_RARE = 0.05  # added to rates, which are never known to be 0
_SPREADS = 2.0  # interquartile ranges above the upper quartile, on a log scale, from which on a photo is an outlier
_FEWEST = 20  # photos from which quartiles mean something
_SHOWN = 3  # photos that a sentence names

Floats = npt.NDArray[np.float64]
Numbers = npt.NDArray[np.int64]


def doubtful_labels(probability: Floats, labels: Numbers) -> tuple[Numbers, Numbers]:
    """Return the photos whose labels are contradicted, the surest first, and the class that each looks like.

    Parameters
    ----------
    probability : array of shape (photos, classes)
        Held-out probabilities; rows of NaN are passed over.
    labels : array of int
        Class numbers of the photos.

    Examples
    --------
    >>> probability = np.array([[0.99, 0.01], [0.98, 0.02], [0.01, 0.99], [0.03, 0.97]])
    >>> photos, classes = doubtful_labels(probability, np.array([0, 1, 1, 1]))
    >>> photos.tolist(), classes.tolist()
    ([1], [0])
    """
    doubts, others = label_doubts(probability, labels)
    order = np.argsort(-doubts, kind="stable")
    photos = order[doubts[order] > _SURE]
    return photos, others[photos]


def label_doubts(probability: Floats, labels: Numbers) -> tuple[Floats, Numbers]:
    """Return how doubtful the label of each photo is, and the likeliest other class; parameters as above.

    Photos that were not held out have no doubt (0).
    """
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


def outliers(unlike: Floats) -> Numbers:
    """Return the photos unlike all others, the least alike first.

    Parameters
    ----------
    unlike : array of shape (photos,)
        How unlike the others each photo is (`HeldOut`); NaN is passed over.

    Examples
    --------
    >>> outliers(np.r_[np.linspace(1, 2, 30), 50, np.nan]).tolist()
    [30]
    """
    known = np.flatnonzero(unlike > 0)
    if len(known) < _FEWEST:
        return np.zeros(0, np.int64)
    logs = np.log(unlike[known])
    low, high = np.quantile(logs, [0.25, 0.75])
    far = known[logs > high + _SPREADS * (high - low)]
    return np.asarray(far[np.argsort(-unlike[far], kind="stable")])


def label_sentences(scores: Scores | None) -> list[str]:
    """Return a sentence on the held-out photos of a training that look mislabelled, if there are any."""
    if scores is None or not len(scores):
        return []
    photos, classes = doubtful_labels(scores.probability, scores.expected)
    if not len(photos):
        return []
    named = [f"{scores.names[photo]} ({scores.classes[label]}?)" for photo, label in zip(photos, classes, strict=True)]
    return [
        f"{counted(len(photos), 'of the held-out photos looks', 'of the held-out photos look')} mislabelled "
        f"to this model: {some(named, _SHOWN)}. `patchvote check` looks at all photos, and asks a voter of its own, so "
        "that it may list others."
    ]


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
