"""Descriptors for training: from bags in memory or from a store larger than memory, in random minibatches.

Training needs minibatches that are random samples. Descriptors stay in their array; those of a minibatch are gathered
and standardised when it is needed, which takes a fraction of the time of a training step and no memory. A store is read
in blocks of random photos. If all photos fit into one block, it is cached; otherwise each pass reads the store again in
a new order, so that memory holds one block at a time.
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
from ..power import raise_in_place
from ..votes import centres, check_bags, has_positions, with_positions
from .moments import Moments

# Descriptors gathered at once: so few that they stay in the processor's cache while they are standardised.
_ROWS = 256

# Descriptors, their class numbers, and their weights.
Minibatch = tuple[npt.NDArray[Any], npt.NDArray[np.int64], npt.NDArray[Any]]


@dataclasses.dataclass(frozen=True)
class _Block:
    """Bags in memory, the image of each of their descriptors, and the descriptors that are used."""

    bags: Bags
    image: npt.NDArray[np.int64]
    rows: npt.NDArray[np.int64]


class TrainingData:
    """Labelled, weighted images, read as minibatches of descriptors.

    Parameters
    ----------
    source : Bags or Store
        Training images.
    labels : array of int
        Class number of each image.
    weight : array of float
        Weight of the descriptors of each image.
    block : int
        Descriptors of a store that are held in memory at once.
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
        # float64 stays float64, everything else becomes float32.
        double = isinstance(source, Bags) and source.values.dtype == np.float64
        self.dtype: type[np.float64] | type[np.float32] = np.float64 if double else np.float32
        self.power = 1.0  # exponent of the power normalisation of features
        self._cached: _Block | None = None

    def has_negative_features(self) -> bool:
        """Whether a feature of some photo is negative; of a store, one block of photos is read."""
        block = next(self._blocks(self.images))
        return any((block.bags.values[start : start + _ROWS] < 0).any() for start in range(0, len(block.rows), _ROWS))

    @property
    def descriptors(self) -> int:
        """Number of descriptors in a pass."""
        return int(self.source.sizes[self.images].sum())

    def only(self, images: npt.NDArray[np.int64]) -> TrainingData:
        """Return the same data, restricted to these images."""
        weight = np.zeros_like(self.weight)
        weight[images] = self.weight[images]
        part = TrainingData(self.source, self.labels, weight, self.block)
        part.positions, part.dim, part.power = self.positions, self.dim, self.power
        if self._cached is not None:
            rows = self._cached.rows
            part._cached = dataclasses.replace(self._cached, rows=rows[part.weight[self._cached.image[rows]] > 0])
        return part

    def moments(self) -> Moments:
        """Return the mean and variance of each feature, from one pass."""
        moments = Moments()
        for block in self._blocks(self.images):
            for start in range(0, len(block.rows), _ROWS):
                rows = block.rows[start : start + _ROWS]
                moments.update(self._raw(block, rows), self._labelled(block, rows)[1])
        return moments

    def means(self) -> npt.NDArray[Any]:
        """Return the mean descriptor of each image, without positions."""
        if isinstance(self.source, Bags):
            return self.source.means()
        means, done = np.empty((len(self.source), self.source.dim), np.float32), 0
        for bags, _ in self.source.blocks(self.block, dtype=self.source.dtype):
            means[done : done + len(bags)] = bags.means()
            done += len(bags)
        return means

    def sample(self, rng: np.random.Generator, descriptors: int) -> Minibatch:
        """Return the raw descriptors of random images, about `descriptors` of them."""
        order = rng.permutation(self.images)
        count = max(1, int(np.searchsorted(np.cumsum(self.source.sizes[order]), descriptors, side="right")))
        block = self._block(order[:count])
        return self._raw(block, block.rows), *self._labelled(block, block.rows)

    def minibatches(
        self, rng: np.random.Generator, size: int, mean: npt.NDArray[Any], scale: npt.NDArray[Any]
    ) -> Iterator[Minibatch]:
        """Yield minibatches of standardised descriptors: one pass over the data, in random order.

        The descriptors of a minibatch are overwritten by those of the next.
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
                    part, chunk, dim = values[start : start + _ROWS], rows[start : start + _ROWS], self.source.dim
                    if self.dtype is np.float32:
                        to_float32(block.bags.values[chunk], part[:, :dim])
                    else:
                        part[:, :dim] = block.bags.values[chunk]
                    raise_in_place(part[:, :dim], self.power)
                    part[:, :dim] -= mean[:dim]
                    if self.positions:
                        np.subtract(centres(block.bags, chunk), mean[dim:], out=part[:, dim:])
                    part *= scale
                yield values, *self._labelled(block, rows)

    def _blocks(self, images: npt.NDArray[np.int64]) -> Iterator[_Block]:
        """Yield the images block by block, in the given order.

        If everything fits into one block, that block is cached and yielded on every later call.
        """
        if self._cached is None and (isinstance(self.source, Bags) or self.descriptors <= self.block):
            self._cached = self._block(images)
        if self._cached is not None:
            yield self._cached
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
        """Return normalised descriptors, with the centres of their boxes in 0..1 if positions are used."""
        values = with_positions(block.bags, rows, self.positions).astype(self.dtype, copy=False)
        if self.power != 1:
            values = values.copy() if np.may_share_memory(values, block.bags.values) else values
            raise_in_place(values[:, : self.source.dim], self.power)
        return values

    def _labelled(self, block: _Block, rows: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.int64], npt.NDArray[Any]]:
        image = block.image[rows]
        return self.labels[image], self.weight[image].astype(self.dtype)
