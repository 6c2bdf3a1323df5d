"""MOP-CNN: multi-scale orderless pooling.

The whole image gives its descriptor as it is. At every finer level the descriptors go through a PCA and become one
VLAD: the sum, for each of a few k-means centres, of the differences to it of the descriptors nearest to it. All levels
are brought to length 1, put side by side, and given to a linear SVM.

References
----------
Gong, Wang, Guo and Lazebnik, "Multi-scale Orderless Pooling of Deep Convolutional Activation Features", ECCV 2014.
"""

from __future__ import annotations

import collections
import dataclasses
from typing import Any

import faiss
import numpy as np
import numpy.typing as npt

from ...bags.bags import Bags
from ...bags.store import Store
from ...voters.neighbours.exact import on_all_cores
from .pooled import PooledClassifier, blocks_of

Floats = npt.NDArray[np.float32]
_SAMPLE = 40_000  # descriptors of a level from which its PCA and its centres are learned
_IMAGES = 32  # pooled at a time


class MopCnn(PooledClassifier):
    """VLAD of the descriptors at every level, and a linear SVM.

    Parameters
    ----------
    features : int, default 500
        Features that the PCA leaves (the paper's own number).
    centres : int, default 100
        Centres a level (the paper's own number).
    random_state : int, default 0
        Seed of the sample, of k-means and of the folds.
    """

    def __init__(self, features: int = 500, centres: int = 100, random_state: int = 0) -> None:
        super().__init__(random_state)
        self.features = features
        self.centres = centres

    def _prepare(self, images: Bags | Store) -> None:
        """Learn the levels, and the coordinates of images among the training images.

        Those are a rotation of all levels put side by side. The levels together have 100,000 features and more, and a
        linear SVM sees only their products with the training images. Products are added up level by level, so that no
        more than one level is ever held.
        """
        self._levels = {
            number: _Level.learn(sample, self) for number, sample in _samples(images, self.random_state).items()
        }
        self._trained = {
            number: np.concatenate([self._pooled(bags, number) for bags in blocks_of(images)])
            for number in (0, *self._levels)
        }
        products: Any = sum(own @ own.T for own in self._trained.values())
        size, turn = np.linalg.eigh(products.astype(np.float64))
        keep = size > size[-1] * 1e-7
        self._turn = (turn[:, keep] / np.sqrt(size[keep])).astype(np.float32)

    def _vectors_of_block(self, bags: Bags) -> Floats:
        products = sum(self._pooled(bags, number) @ own.T for number, own in self._trained.items())
        return np.asarray(products @ self._turn, np.float32)

    def _pooled(self, bags: Bags, number: int) -> Floats:
        """Return the vectors of one level, made a few images at a time: large arrays that come and go cost more."""
        width = bags.dim if number == 0 else self._levels[number].width
        pooled = np.empty((len(bags), width), np.float32)

        def work(first: int) -> None:
            few = bags[first : first + _IMAGES]
            own = few.level == number
            owner, values = few.owner[own], np.asarray(few.values[own], np.float32)
            if number == 0:
                part = np.zeros((len(few), width), np.float32)
                part[owner] = values
            else:
                part = self._levels[number].pool(values, owner, len(few))
            pooled[first : first + len(few)] = _to_length_one(part)

        on_all_cores(work, range(0, len(bags), _IMAGES))
        return pooled


def _samples(images: Bags | Store, seed: int) -> dict[int, Floats]:
    """Return random descriptors of every level but that of the whole image, at most `_SAMPLE` of each."""
    counts: collections.Counter[int] = collections.Counter()
    for bags in blocks_of(images):
        counts.update(dict(zip(*(part.tolist() for part in np.unique(bags.level, return_counts=True)), strict=True)))
    chosen = {}
    for number in sorted(counts.keys() - {0}):
        rng = np.random.default_rng(seed)
        chosen[number] = np.sort(rng.choice(counts[number], size=min(_SAMPLE, counts[number]), replace=False))
    found: dict[int, list[Floats]] = {number: [] for number in chosen}
    passed: collections.Counter[int] = collections.Counter()
    for bags in blocks_of(images):
        for number, rows in chosen.items():
            own = np.flatnonzero(bags.level == number)
            here = rows[(rows >= passed[number]) & (rows < passed[number] + len(own))] - passed[number]
            found[number].append(np.asarray(bags.values[own[here]], np.float32))
            passed[number] += len(own)
    return {number: np.concatenate(parts) for number, parts in found.items()}


@dataclasses.dataclass(frozen=True)
class _Level:
    """The PCA and the centres of one level."""

    mean: Floats
    axes: Floats
    centres: Floats

    @classmethod
    def learn(cls, sample: Floats, settings: MopCnn) -> _Level:
        mean = sample.mean(axis=0)
        sample -= mean
        _, axes = np.linalg.eigh((sample.T @ sample).astype(np.float64))
        axes = np.ascontiguousarray(axes[:, ::-1][:, : settings.features], np.float32)
        sample = sample @ axes
        count = max(1, min(settings.centres, len(sample) // 10))
        means = faiss.Kmeans(
            sample.shape[1], count, niter=20, seed=settings.random_state + 1, min_points_per_centroid=1
        )
        means.train(sample)
        return cls(mean, axes, np.asarray(means.centroids, np.float32))

    @property
    def width(self) -> int:
        """Features of the VLAD."""
        return self.centres.size

    def pool(self, values: Floats, owner: npt.NDArray[np.int64], images: int) -> Floats:
        """Return the VLAD of each image: differences to the nearest centre, added up, signed roots."""
        low = (values - self.mean) @ self.axes
        nearest = (0.5 * np.einsum("ij,ij->i", self.centres, self.centres) - low @ self.centres.T).argmin(axis=1)
        low -= self.centres[nearest]
        place = owner * len(self.centres) + nearest
        order = np.argsort(place, kind="stable")
        starts = np.flatnonzero(np.diff(place[order], prepend=-1))
        sums = np.zeros((images * len(self.centres), low.shape[1]), np.float32)
        if len(starts):
            sums[place[order][starts]] = np.add.reduceat(low[order], starts, axis=0)
        return np.copysign(np.sqrt(np.abs(sums)), sums).reshape(images, -1)


def _to_length_one(rows: Floats) -> Floats:
    rows /= np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12)
    return rows
