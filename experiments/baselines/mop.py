"""MOP-CNN: multi-scale orderless pooling.

The descriptor of the whole image is used unchanged. At every finer level, descriptors are reduced by a PCA and pooled
into one VLAD: for each of a few k-means centres, the sum of the differences between the descriptors near it and the
centre. Every descriptor is shared among its five nearest centres, as in the authors' code. All levels are normalised to
length 1, concatenated, and classified by a linear SVM.

Unlike that code, weights depend on the scale of the features, the VLAD is not reduced again by a PCA, and the first PCA
subtracts the mean.

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

from patchvote.bags.bags import Bags
from patchvote.bags.store import Store

from .pooled import Floats, PooledClassifier, blocks_of, unit

_MAX_SAMPLE = 40_000  # descriptors per level from which its PCA and its centres are learned: 400 per centre
_BLOCK_IMAGES = 32  # images that are pooled at a time, so that arrays stay small


class MopCnn(PooledClassifier):
    """VLAD of the descriptors at every level, and a linear SVM; the defaults are those of the paper.

    A descriptor is shared among its `soft` nearest centres with weights proportional to ``exp(-beta d^2)``, where beta
    is the inverse of the mean squared distance of training descriptors to their nearest centre.
    """

    def __init__(self, features: int = 500, centres: int = 100, soft: int = 5, random_state: int = 0) -> None:
        super().__init__(random_state)
        self.features = features
        self.centres = centres
        self.soft = soft

    def _prepare(self, images: Bags | Store) -> None:
        """Learn the levels, and the projection of images onto the span of the training images.

        The concatenated levels have 100,000 features and more, but a linear SVM depends only on their products with
        the training images. Within that span, the projection is a rotation, so the SVM is not affected. Products are
        summed level by level.
        """
        self._levels = {
            number: _Level.learn(sample, self) for number, sample in _samples(images, self.random_state).items()
        }
        self._trained = {
            number: np.concatenate([self._pooled(bags, number) for bags in blocks_of(images)])
            for number in (0, *self._levels)
        }
        products: Any = sum(vectors @ vectors.T for vectors in self._trained.values())
        eigenvalues, axes = np.linalg.eigh(products.astype(np.float64))
        keep = eigenvalues > eigenvalues[-1] * 1e-7
        self._projection = (axes[:, keep] / np.sqrt(eigenvalues[keep])).astype(np.float32)

    def _vectors_of_block(self, bags: Bags) -> Floats:
        products = sum(self._pooled(bags, number) @ trained.T for number, trained in self._trained.items())
        return np.asarray(products @ self._projection, np.float32)

    def _pooled(self, bags: Bags, number: int) -> Floats:
        """Return the vectors of one level, a few images at a time: allocating large arrays is slower."""
        width = bags.dim if number == 0 else self._levels[number].width
        pooled = []
        for first in range(0, len(bags), _BLOCK_IMAGES):
            block = bags[first : first + _BLOCK_IMAGES]
            in_level = block.level == number
            owner, values = block.owner[in_level], np.asarray(block.values[in_level], np.float32)
            vectors = np.zeros((len(block), width), np.float32)
            if number == 0:
                vectors[owner] = values
            else:
                vectors = self._levels[number].pool(values, owner, len(block))
            pooled.append(unit(vectors))
        return np.concatenate(pooled)


def _samples(images: Bags | Store, seed: int) -> dict[int, Floats]:
    """Return random descriptors of every level but that of the whole image, about `_MAX_SAMPLE` of each."""
    counts = np.sum([np.bincount(bags.level, minlength=64) for bags in blocks_of(images)], axis=0)
    rng, samples = np.random.default_rng(seed), collections.defaultdict(list)
    for bags in blocks_of(images):
        chance = rng.random(len(bags.level))
        for number in np.flatnonzero(counts[1:]) + 1:
            rows = np.flatnonzero((bags.level == number) & (chance < _MAX_SAMPLE / counts[number]))
            samples[int(number)].append(np.asarray(bags.values[rows], np.float32))
    return {number: np.concatenate(parts) for number, parts in samples.items()}


@dataclasses.dataclass(frozen=True)
class _Level:
    """The PCA and the centres of one level, and how descriptors are shared among the centres."""

    mean: Floats
    axes: Floats
    centres: Floats
    soft: int
    beta: float

    @classmethod
    def learn(cls, sample: Floats, settings: MopCnn) -> _Level:
        mean = sample.mean(axis=0)
        sample = sample - mean
        _, axes = np.linalg.eigh((sample.T @ sample).astype(np.float64))
        axes = np.ascontiguousarray(axes[:, ::-1][:, : settings.features], np.float32)
        sample = sample @ axes
        count = max(1, min(settings.centres, len(sample) // 10))
        kmeans = faiss.Kmeans(
            sample.shape[1], count, niter=20, seed=settings.random_state + 1, min_points_per_centroid=1
        )
        kmeans.train(sample)
        centres = np.asarray(kmeans.centroids, np.float32)
        spread = float(_squared_distances(sample, centres).min(axis=1).mean())
        return cls(mean, axes, centres, min(settings.soft, count), 1 / max(spread, 1e-12))

    @property
    def width(self) -> int:
        """Features of the VLAD."""
        return self.centres.size

    def pool(self, values: Floats, owner: npt.NDArray[np.int64], images: int) -> Floats:
        """Return the VLAD of each image: signed roots of the summed differences to the nearest centres."""
        reduced: Floats = ((values - self.mean) @ self.axes).astype(np.float32, copy=False)
        nearest, weights = self._shares(reduced)
        sums = np.zeros((images * len(self.centres), reduced.shape[1]), np.float32)
        for number in range(self.soft):
            centre = nearest[:, number]
            differences = reduced - self.centres[centre]
            differences *= weights[:, number, None]
            _add(sums, owner * len(self.centres) + centre, differences)
        return np.copysign(np.sqrt(np.abs(sums)), sums).reshape(images, -1)

    def _shares(self, reduced: Floats) -> tuple[npt.NDArray[np.int64], Floats]:
        """Return the nearest centres of each descriptor, and its shares of them, which sum to 1."""
        distances = _squared_distances(reduced, self.centres)
        if self.soft < len(self.centres):
            nearest = np.argpartition(distances, self.soft - 1, axis=1)[:, : self.soft]
        else:
            nearest = np.broadcast_to(np.arange(self.soft), distances.shape)
        near = np.take_along_axis(distances, nearest, axis=1)
        weights = np.exp(-self.beta * (near - near.min(axis=1, keepdims=True)))
        return nearest, weights / weights.sum(axis=1, keepdims=True)


def _squared_distances(rows: Floats, centres: Floats) -> Floats:
    lengths = np.einsum("ij,ij->i", rows, rows)[:, None] + np.einsum("ij,ij->i", centres, centres)
    return np.asarray(np.maximum(lengths - 2 * (rows @ centres.T), 0))


def _add(sums: Floats, slot: npt.NDArray[np.int64], rows: Floats) -> None:
    """Add every row to the sum of its slot; summing sorted rows is much faster than adding them one by one."""
    order = np.argsort(slot, kind="stable")
    starts = np.flatnonzero(np.diff(slot[order], prepend=-1))
    if len(starts):
        sums[slot[order][starts]] += np.add.reduceat(rows[order], starts, axis=0)
