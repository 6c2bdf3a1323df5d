"""Which unlabelled photos would teach a model most: uncertain ones that are unlike one another.

The most uncertain photos of a folder are often alike: a model that does not know one backpack does not know its
neighbours either. So a few times as many as are wanted are taken, by the margin between their two likeliest classes,
and clustered by what they show (spherical k-means, weighted by uncertainty); the photo in the middle of each cluster is
suggested. A photo in the middle is typical of others, which the farthest photos are not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from ..bags.copies import groups_of_layouts
from ..bags.extract import Described
from ..bags.moments import layouts, photo_vectors
from ..utils.terminal import Progress
from .answers import Answer, answer_for
from .model import Model

# Uncertain photos from which one is chosen. Chosen on Amazon and Webcam, with ten labels at a time (docs/check.md).
_CANDIDATES = 5
_ROUNDS = 10  # of k-means; three gave the same photos

Floats = npt.NDArray[np.float64]
Numbers = npt.NDArray[np.int64]


def suggested(
    items: Iterable[Described],
    total: int,
    model: Model,
    count: int,
    record: Callable[[Answer], None],
    progress: Progress | None,
) -> list[Answer]:
    """Return the answers for the photos, `total` in all, that would teach a model most; all are recorded before."""
    answers, vectors, looks, digests = [], [], [], []
    for done, item in enumerate(items, 1):
        if progress is not None:
            progress("predict", done, total)
        record(answer := answer_for(model, item))
        if item.bag is not None and not answer.known:
            answers.append(answer)
            vectors.append(photo_vectors(item.bag)[0])
            looks.append(layouts(item.bag)[0])
            digests.append(item.digest)
    if not answers:
        return []
    probability = np.stack([np.asarray(answer.probabilities) for answer in answers])
    groups = groups_of_layouts(np.stack(looks), digests)
    return [answers[i] for i in next_labels(probability, np.stack(vectors), count, groups)]


def next_labels(probability: Floats, vectors: npt.NDArray[Any], count: int, groups: Numbers | None = None) -> Numbers:
    """Return the photos to label next, the most uncertain first.

    Each photo has a vector of length 1; of the `groups` of copies (`copy_groups`), one photo is enough.
    """
    doubt = uncertainty(probability)
    order = np.argsort(-doubt, kind="stable")
    if groups is not None:
        order = order[np.sort(np.unique(groups[order], return_index=True)[1])]
    candidates = order[: _CANDIDATES * count]
    if len(candidates) <= count:
        return candidates
    chosen = _middles(vectors[candidates].astype(np.float64), np.maximum(doubt[candidates], 1e-12), count)
    return np.asarray(candidates[np.sort(chosen)])


def uncertainty(probability: Floats) -> Floats:
    """Return how uncertain answers are: 1 less the margin between the two likeliest classes."""
    second, first = np.partition(probability, -2, axis=1)[:, -2:].T
    return np.asarray(1 - (first - second))


def _middles(vectors: Floats, weight: Floats, count: int) -> Numbers:
    """Return one row per cluster, the one nearest to its middle; clustering begins with rows far from one another."""
    first = [0]
    similarity = vectors @ vectors[0]
    while len(first) < count:
        first.append(int(np.argmin(similarity)))
        similarity = np.maximum(similarity, vectors @ vectors[first[-1]])
    middles = vectors[first]
    for _ in range(_ROUNDS):
        nearest = np.argmax(vectors @ middles.T, axis=1)
        sums = np.zeros_like(middles)
        np.add.at(sums, nearest, weight[:, None] * vectors)
        length = np.linalg.norm(sums, axis=1, keepdims=True)
        middles = np.where(length > 0, sums / np.where(length > 0, length, 1), middles)
    chosen: list[int] = []
    for similarity in (vectors @ middles.T).T:
        similarity[chosen] = -np.inf  # a row stands for one cluster
        chosen.append(int(np.argmax(similarity)))
    return np.array(chosen, np.int64)
