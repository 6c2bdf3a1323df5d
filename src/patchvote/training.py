"""Descriptors for training: from bags in memory or from a store larger than memory, in shuffled blocks.

A trainer wants minibatches that are random samples. Everything that fits into one block is shuffled once and kept; what
does not is read again in each pass, photos in a new order, so that memory holds one block however much data there is.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from .bags import Bags
from .moments import Moments
from .store import Store
from .voter import check_bags, has_positions, with_positions

# Images prepared at once: their descriptors stay in the processor's cache from step to step.
_IMAGES = 16

# Descriptors, numbers of their classes, and what each counts.
Block = tuple[npt.NDArray[Any], npt.NDArray[np.int64], npt.NDArray[Any]]


class TrainingData:
    """Labelled, weighted images whose descriptors come in blocks.

    Parameters
    ----------
    source : Bags or Store
        The images.
    labels : array of int
        Number of the class of each image.
    weight : array of float
        What each image's descriptors count.
    block : int
        Descriptors held in memory at once.
    """

    def __init__(
        self,
        source: Bags | Store,
        labels: npt.NDArray[np.int64],
        weight: npt.NDArray[np.float64],
        block: int,
    ) -> None:
        self.source, self.labels, self.weight, self.block = source, labels, weight, block
        self.images = np.flatnonzero(weight > 0)
        self.positions = True if isinstance(source, Store) else has_positions(source)
        self.dim = source.dim + 2 * self.positions
        # Numbers are as exact as those that came: float64 stays, everything else is float32.
        double = isinstance(source, Bags) and source.values.dtype == np.float64
        self.dtype: type[np.float64] | type[np.float32] = np.float64 if double else np.float32
        self._kept: Block | None = None

    @property
    def descriptors(self) -> int:
        """Number of descriptors in a pass."""
        return int(self.source.sizes[self.images].sum())

    def only(self, images: npt.NDArray[np.int64]) -> TrainingData:
        """Return the same data, but of these images only."""
        weight = np.zeros_like(self.weight)
        weight[images] = self.weight[images]
        part = TrainingData(self.source, self.labels, weight, self.block)
        part.positions, part.dim = self.positions, self.dim
        return part

    def moments(self) -> Moments:
        """Mean and spread of each feature, over one pass."""
        moments = Moments()
        for values, _, weight in self._pieces(self.images):
            moments.update(values, weight)
        return moments

    def sample(self, rng: np.random.Generator, descriptors: int) -> Block:
        """Give the raw descriptors of random images, about as many as asked for."""
        order = rng.permutation(self.images)
        count = max(1, int(np.searchsorted(np.cumsum(self.source.sizes[order]), descriptors, side="right")))
        pieces = list(self._pieces(order[:count]))
        return (
            np.concatenate([piece[0] for piece in pieces]),
            np.concatenate([piece[1] for piece in pieces]),
            np.concatenate([piece[2] for piece in pieces]),
        )

    def minibatches(
        self, rng: np.random.Generator, size: int, mean: npt.NDArray[Any], scale: npt.NDArray[Any]
    ) -> Iterator[Block]:
        """Give minibatches of standardised descriptors: one pass over the data, in random order.

        Where everything fits into one block, it is shuffled and standardised once, and each pass takes its minibatches
        in a new order, cut at new places.
        """
        if self._kept is not None:
            yield from _cut(self._kept, rng, size)
            return
        order = rng.permutation(self.images)
        start = 0
        while start < len(order):
            ends = np.cumsum(self.source.sizes[order[start:]])
            count = max(1, int(np.searchsorted(ends, self.block, side="right")))
            block = self._shuffled(order[start : start + count], rng, mean, scale)
            start += count
            if count == len(order):
                self._kept = block
            yield from _cut(block, rng, size)

    def _shuffled(
        self, images: npt.NDArray[np.int64], rng: np.random.Generator, mean: npt.NDArray[Any], scale: npt.NDArray[Any]
    ) -> Block:
        """Standardise the descriptors of some images, each into its place in a random order: one pass over memory."""
        n = int(self.source.sizes[images].sum())
        block = np.empty((n, self.dim), self.dtype), np.empty(n, np.int64), np.empty(n, self.dtype)
        place = rng.permutation(n)
        mean, scale = mean.astype(self.dtype), scale.astype(self.dtype)
        start = 0
        for values, labels, weight in self._pieces(images):
            rows = place[start : start + len(values)]
            start += len(values)
            values = values - mean
            values *= scale
            block[0][rows], block[1][rows], block[2][rows] = values, labels, weight
        return block

    def _pieces(self, images: npt.NDArray[np.int64]) -> Iterator[Block]:
        """Give raw descriptors with positions, class numbers and weights, a few images at a time, in this order."""
        for start in range(0, len(images), _IMAGES):
            chosen = images[start : start + _IMAGES]
            if isinstance(self.source, Store):
                bags = self.source.load(chosen)[0]
                check_bags(bags)
            else:
                bags = self.source[chosen]
            values = with_positions(bags, slice(0, len(bags.values)), self.positions).astype(self.dtype, copy=False)
            owner = chosen[bags.owner]
            yield values, self.labels[owner], self.weight[owner].astype(self.dtype)


def _cut(
    block: Block,
    rng: np.random.Generator,
    size: int,
) -> Iterator[Block]:
    n = len(block[0])
    parts = max(1, round(n / size))
    edges = np.linspace(0, n, parts + 1).astype(int)
    if parts > 2:  # other places each time, so that the same descriptors do not always stand together
        edges[1:-1] += rng.integers(-(size // 4), size // 4 + 1)
    for index in rng.permutation(parts):
        rows = slice(edges[index], edges[index + 1])
        yield block[0][rows], block[1][rows], block[2][rows]
