"""Descriptors for training: from bags in memory or from a store larger than memory, in random minibatches.

A trainer wants minibatches that are random samples. Descriptors stay where and as they are; those of a minibatch are
gathered and standardised when their turn comes, which takes a fraction of the step that learns from them and no memory.
A store is read in blocks of random photos: one block that holds everything is kept, otherwise each pass reads the store
again in a new order, so that memory holds one block however much data there is.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from ...bags.bags import Bags
from ...bags.store import Store
from ...utils.float16 import to_float32
from ..votes import centres, check_bags, has_positions, with_positions
from .moments import Moments

# Descriptors gathered at once: few enough to stay in the processor's cache while they are standardised.
_ROWS = 256

# Descriptors, numbers of their classes, and what each counts.
Minibatch = tuple[npt.NDArray[Any], npt.NDArray[np.int64], npt.NDArray[Any]]


@dataclasses.dataclass(frozen=True)
class _Block:
    """Bags in memory, which image each of their descriptors is of, and which descriptors take part."""

    bags: Bags
    image: npt.NDArray[np.int64]
    rows: npt.NDArray[np.int64]


class TrainingData:
    """Labelled, weighted images whose descriptors come in minibatches.

    Parameters
    ----------
    source : Bags or Store
        The images.
    labels : array of int
        Number of the class of each image.
    weight : array of float
        What each image's descriptors count.
    block : int
        Descriptors of a store held in memory at once.
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
        self._kept: _Block | None = None

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
        if self._kept is not None:
            rows = self._kept.rows
            part._kept = dataclasses.replace(self._kept, rows=rows[part.weight[self._kept.image[rows]] > 0])
        return part

    def moments(self) -> Moments:
        """Mean and spread of each feature, over one pass."""
        moments = Moments()
        for block in self._blocks(self.images):
            for start in range(0, len(block.rows), _ROWS):
                rows = block.rows[start : start + _ROWS]
                moments.update(self._raw(block, rows), self._labelled(block, rows)[1])
        return moments

    def means(self) -> npt.NDArray[Any]:
        """Mean descriptor of each image, without positions."""
        if isinstance(self.source, Bags):
            return self.source.means()
        means, done = np.empty((len(self.source), self.source.dim), np.float32), 0
        for bags, _ in self.source.blocks(self.block, dtype=self.source.dtype):
            means[done : done + len(bags)] = bags.means()
            done += len(bags)
        return means

    def sample(self, rng: np.random.Generator, descriptors: int) -> Minibatch:
        """Give the raw descriptors of random images, about as many as asked for."""
        order = rng.permutation(self.images)
        count = max(1, int(np.searchsorted(np.cumsum(self.source.sizes[order]), descriptors, side="right")))
        block = self._block(order[:count])
        return self._raw(block, block.rows), *self._labelled(block, block.rows)

    def minibatches(
        self, rng: np.random.Generator, size: int, mean: npt.NDArray[Any], scale: npt.NDArray[Any]
    ) -> Iterator[Minibatch]:
        """Give minibatches of standardised descriptors: one pass over the data, in random order.

        Descriptors of a minibatch are overwritten by those of the next.
        """
        mean, scale = mean.astype(self.dtype), scale.astype(self.dtype)
        memory = np.empty((0, self.dim), self.dtype)
        for block in self._blocks(rng.permutation(self.images)):
            order = rng.permutation(block.rows)
            for rows in np.array_split(order, max(1, round(len(order) / size))):
                if len(memory) < len(rows):
                    memory = np.empty((len(rows), self.dim), self.dtype)
                values = memory[: len(rows)]
                for start in range(0, len(rows), _ROWS):
                    part, few, dim = values[start : start + _ROWS], rows[start : start + _ROWS], self.source.dim
                    if self.dtype is np.float32:
                        to_float32(block.bags.values[few], part[:, :dim])
                        part[:, :dim] -= mean[:dim]
                    else:
                        np.subtract(block.bags.values[few], mean[:dim], out=part[:, :dim])
                    if self.positions:
                        np.subtract(centres(block.bags, few), mean[dim:], out=part[:, dim:])
                    part *= scale
                yield values, *self._labelled(block, rows)

    def _blocks(self, images: npt.NDArray[np.int64]) -> Iterator[_Block]:
        """Give the images in blocks, in this order; one block that has them all is kept, and what is kept is given."""
        if self._kept is None and (isinstance(self.source, Bags) or self.descriptors <= self.block):
            self._kept = self._block(images)
        if self._kept is not None:
            yield self._kept
            return
        start = 0
        while start < len(images):
            ends = np.cumsum(self.source.sizes[images[start:]])
            count = max(1, int(np.searchsorted(ends, self.block, side="right")))
            yield self._block(images[start : start + count])
            start += count

    def _block(self, images: npt.NDArray[np.int64]) -> _Block:
        if isinstance(self.source, Store):
            bags = self.source.load(images, self.source.dtype)[0]
            check_bags(bags)
            return _Block(bags, images[bags.owner], np.arange(len(bags.values)))
        chosen = np.zeros(len(self.source), bool)
        chosen[images] = True
        return _Block(self.source, self.source.owner, np.flatnonzero(chosen[self.source.owner]))

    def _raw(self, block: _Block, rows: npt.NDArray[np.int64]) -> npt.NDArray[Any]:
        """Return descriptors of a block, with the centres of their boxes in 0..1 where positions take part."""
        return with_positions(block.bags, rows, self.positions).astype(self.dtype, copy=False)

    def _labelled(self, block: _Block, rows: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.int64], npt.NDArray[Any]]:
        image = block.image[rows]
        return self.labels[image], self.weight[image].astype(self.dtype)
