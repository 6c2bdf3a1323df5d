"""Descriptors for training: from bags in memory or from a store larger than memory, in random minibatches.

Descriptors stay in their array; those of a minibatch are gathered and standardised when it is needed. A store is read
in blocks of random photos. If all photos fit into one block, it is cached; otherwise each pass reads the store again in
a new order, one block ahead of the steps, so that memory holds two blocks at a time, never a third.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import numpy.typing as npt

from ..bags.bags import Bags
from ..bags.store import Store
from ..utils.arrays import Moments, to_float32
from .votes import centres, check_bags, has_negative, has_positions, raised

# Bytes per descriptor beside its values: box, level, image, row, two orders (one is being drawn), owner.
_BESIDE = 16 + 2 + 5 * 8
_COPIES = 10  # of the prototypes: current, mean, gradient, temporary ones, those that a checkpoint writes
_RESERVE = 64 << 20  # bytes for buffers of libraries and threads, and what freeing leaves behind
_FEWEST = 4  # minibatches in memory; with fewer, a minibatch would be of too few photos
# Descriptors gathered at once: so few that they stay in the processor's cache while they are standardised.
_ROWS = 256

Floats = npt.NDArray[Any]
Numbers = npt.NDArray[np.int64]
Minibatch = tuple[Floats, Numbers, Floats]  # descriptors, their class numbers, and their weights


def most_in_memory(memory: float, dim: int, itemsize: int, width: int, batch_size: int) -> int:
    """Return how many descriptors of a store a training of `width` prototypes holds within `memory` megabytes."""
    step = _RESERVE + 4 * (_COPIES * width * (dim + 2) + 2 * batch_size * (width + dim))
    return max(int((memory * 1e6 - step) / (dim * itemsize + _BESIDE)), _FEWEST * batch_size)


@dataclasses.dataclass(frozen=True)
class Block:
    """Bags in memory, the image of each of their descriptors, and the descriptors that are used."""

    bags: Bags
    image: Numbers
    rows: Numbers


def read_ahead(load: Callable[[Numbers], Any], parts: Sequence[Numbers]) -> Iterator[Any]:
    """Yield what `load` returns for each part; the next one is loaded on a thread while the caller works.

    A caller that drops a block before it asks for the next has at most two in memory.
    """
    with ThreadPoolExecutor(1, thread_name_prefix="patchvote-reader") as thread:
        coming = thread.submit(load, parts[0])
        for part in parts[1:]:
            block = coming.result()
            coming = thread.submit(load, part)
            yield block
            del block
        yield coming.result()


class TrainingData:
    """Labelled, weighted images, read as minibatches of descriptors, of which memory holds `most` at once."""

    def __init__(self, source: Bags | Store, labels: Numbers, weight: npt.NDArray[np.float64], most: int) -> None:
        self.source, self.labels, self.weight, self.most = source, labels, weight, most
        self.images = np.flatnonzero(weight > 0)
        self.positions = True if isinstance(source, Store) else has_positions(source.boxes)
        # float64 stays float64, everything else becomes float32.
        double = isinstance(source, Bags) and source.values.dtype == np.float64
        self.dtype: type[np.float64] | type[np.float32] = np.float64 if double else np.float32
        self.power = 1.0  # exponent of the power normalisation of features
        self.mean = self.scale = np.zeros(0)  # by which minibatches are standardised: (x - mean) * scale
        self._cached: Block | None = None

    @property
    def dim(self) -> int:
        """Number of features, with those of positions."""
        return self.source.dim + 2 * self.positions

    def _count(self, images: Numbers) -> int:
        return int(self.source.sizes[images].sum())

    def has_negative_features(self) -> bool:
        """Whether a feature of some photo is negative; of a store, one block of photos is read."""
        block = next(self._read(self._parts(self.images)[:1]))
        starts = range(0, len(block.rows), _ROWS)
        return any(has_negative(block.bags.values[block.rows[start : start + _ROWS]]) for start in starts)

    def moments(self) -> Moments:
        """Return the mean and variance of each feature: those that the store holds, and of the rest from one pass."""
        weight = self.weight[self.images]
        equal = bool((weight == weight[0]).all())
        moments, images = self._stored_moments() if equal and self.power == 1 else (Moments(), self.images)
        for block in self._read(self._parts(images)) if len(images) else ():
            for start in range(0, len(block.rows), _ROWS):
                rows = block.rows[start : start + _ROWS]
                moments.update(self._raw(block, rows), None if equal else self.weight[block.image[rows]])
            del block  # before the next but one is read
        return moments

    def _stored_moments(self) -> tuple[Moments, Numbers]:
        """Return moments that need no reading, and the images that they leave out."""
        if isinstance(self.source, Bags):
            return Moments(), self.images
        moments, left = self.source.moments(self.images)
        if len(left) and self._is_one_block:  # which memory holds anyway
            return Moments(), self.images
        if not self.positions and moments.weight:
            kept, moments = moments, Moments()
            moments.merge(kept.weight, kept.as_array()[:, : self.source.dim])
        return moments, left

    def sample(self, rng: np.random.Generator, descriptors: int) -> tuple[Floats, Numbers]:
        """Return the raw descriptors of random images, about `descriptors` of them, and their class numbers."""
        order = rng.permutation(self.images)
        count = max(1, int(np.searchsorted(np.cumsum(self.source.sizes[order]), descriptors, side="right")))
        block = self._block(order[:count])
        return self._raw(block, block.rows), self.labels[block.image[block.rows]]

    def minibatches(self, rng: np.random.Generator, size: int, skip: int = 0) -> Iterator[Minibatch]:
        """Yield minibatches of standardised descriptors: one pass over the data, in random order.

        The descriptors of a minibatch are overwritten by those of the next. The first `skip` minibatches are left out:
        the others are the same as in a complete pass, and so are the random numbers that follow it.
        """
        memory = np.empty((0, self.dim), self.dtype)
        parts = self._parts(rng.permutation(self.images))
        while len(parts) > 1 and (count := self.minibatches_per_pass(size, parts[0])) <= skip:
            rng.permutation(self._count(parts[0]))  # the order of a block that need not be read
            skip, parts = skip - count, parts[1:]
        for block in self._read(parts):
            order = rng.permutation(block.rows)
            for rows in np.array_split(order, max(1, round(len(order) / size)))[skip:]:
                if len(memory) < len(rows):
                    memory = np.empty((len(rows), self.dim), self.dtype)
                image = block.image[rows]
                x = self._standardised(block, rows, memory[: len(rows)])
                yield x, self.labels[image], self.weight[image].astype(self.dtype)
            skip = 0
            del block, order, rows  # before the next but one is read

    def minibatches_per_pass(self, size: int, images: Numbers | None = None) -> int:
        """Return about how many minibatches a pass over all images, or over some, has."""
        return max(1, round(self._count(self.images if images is None else images) / size))

    def _parts(self, images: Numbers) -> list[Numbers]:
        """Divide images, in the given order, into those of each block."""
        if self._is_one_block:
            return [images]
        ends = np.cumsum(self.source.sizes[images])
        parts, start = [], 0
        while start < len(images):
            before = int(ends[start - 1]) if start else 0
            stop = max(start + 1, int(np.searchsorted(ends, before + self.most // 2, side="right")))
            parts.append(images[start:stop])
            start = stop
        return parts

    @property
    def _is_one_block(self) -> bool:
        return isinstance(self.source, Bags) or self._count(self.images) <= self.most

    def _read(self, parts: list[Numbers]) -> Iterator[Block]:
        """Yield the blocks of `_parts`. If everything fits into one, that one is cached, and yielded ever after."""
        if not self._is_one_block:
            return read_ahead(self._block, parts)
        if self._cached is None:
            self._cached = self._block(self.images)  # in an order that does not depend on the pass
        return iter([self._cached])

    def _block(self, images: Numbers) -> Block:
        if isinstance(self.source, Store):
            bags = self.source.load(images, self.source.dtype)[0]
            check_bags(bags)
            return Block(bags, images[bags.owner], np.arange(len(bags.values)))
        return Block(self.source, self.source.owner, np.flatnonzero(np.isin(self.source.owner, images)))

    def _raw(self, block: Block, rows: Numbers, out: Floats | None = None) -> Floats:
        """Gather descriptors, with the centres of their boxes in 0..1 if positions are used."""
        out = np.empty((len(rows), self.dim), self.dtype) if out is None else out
        dim = self.source.dim
        to_float32(block.bags.values[rows], out[:, :dim])
        if self.power != 1:
            out[:, :dim] = raised(out[:, :dim], self.power)
        if self.positions:
            out[:, dim:] = centres(block.bags, rows)
        return out

    def _standardised(self, block: Block, rows: Numbers, out: Floats) -> Floats:
        """Gather descriptors, and standardise them while they are in the processor's cache."""
        mean, scale = self.mean.astype(self.dtype), self.scale.astype(self.dtype)
        for start in range(0, len(rows), _ROWS):
            part = self._raw(block, rows[start : start + _ROWS], out[start : start + _ROWS])
            part -= mean
            part *= scale
        return out
