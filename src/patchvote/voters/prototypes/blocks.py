"""Blocks of a store that is larger than memory: how large they may be, and reading the next one ahead.

A training holds the block that it learns from and the one that is being read, never a third. What it needs besides
(prototypes, products of a minibatch, votes of held-out images) is estimated from above and subtracted from the budget.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import numpy.typing as npt

from ...bags.bags import Bags
from ..votes import chunk_rows

# Bytes per descriptor beside its values: box, level, image, row, two orders (one is being drawn), owner.
_BESIDE = 16 + 2 + 5 * 8
_COPIES = 10  # of the prototypes: current, mean, best, gradient, temporary ones, those that a checkpoint writes
_RESERVE = 64 << 20  # bytes for buffers of libraries and threads, and what freeing leaves behind
_FEWEST = 2  # minibatches per block; with fewer, a minibatch would be of too few photos


@dataclasses.dataclass(frozen=True)
class Block:
    """Bags in memory, the image of each of their descriptors, and the descriptors that are used."""

    bags: Bags
    image: npt.NDArray[np.int64]
    rows: npt.NDArray[np.int64]


@dataclasses.dataclass(frozen=True)
class Limits:
    """How many descriptors may be in memory.

    Parameters
    ----------
    block : int
        Most descriptors of a block, of which there are two.
    whole : int
        Most descriptors that are kept as a single block for all passes.
    features : int
        Most features of all mean descriptors together, which are compared to find copies of photos.
    """

    block: int
    whole: int
    features: int = 1 << 62


def limits(
    memory: float,
    block: int | None,
    *,
    dim: int,
    itemsize: int,
    prototypes: int,
    classes: int,
    batch_size: int,
    votes: bool,
) -> Limits:
    """Return the limits that keep a training within `memory` megabytes.

    Parameters
    ----------
    memory : float
        Megabytes that the training may take.
    block : int or None
        Most descriptors of a block that the caller wants, however much memory there is.
    dim, itemsize : int
        Features per descriptor, and bytes per feature in the store.
    prototypes, classes, batch_size : int
        Prototypes per class, number of classes, descriptors per step.
    votes : bool
        Whether held-out images are classified.

    Raises
    ------
    ValueError
        The budget is too small for the prototypes and two blocks of a few minibatches.
    """
    width = prototypes * classes
    step = _RESERVE + 4 * (_COPIES * width * (dim + 2) + 2 * batch_size * (width + dim))
    rows = chunk_rows(width)
    voting = rows * (4 * (3 * width + 3 * (dim + 2)) + 8 * 3 * classes) if votes else 0
    free = memory * 1e6 - step - voting
    per_descriptor = dim * itemsize + _BESIDE
    fewest = _FEWEST * min(batch_size, block or batch_size)
    if free < 2 * fewest * per_descriptor:
        least = (step + voting + 2 * fewest * per_descriptor) / 1e6
        raise ValueError(
            f"memory must be at least {least:,.0f} megabytes for {classes:,} classes with {prototypes:,} prototypes of "
            f"{dim:,} features and minibatches of {batch_size:,} descriptors, got {memory:g}."
        )
    whole, half = int(free / per_descriptor), int(free / 2 / per_descriptor)
    if block is not None:
        whole, half = min(whole, block), min(half, block)
    return Limits(half, whole, int(free / 16))  # copies of means are searched in four arrays of float32


def read_ahead(load: Callable[[npt.NDArray[np.int64]], Any], parts: Sequence[npt.NDArray[np.int64]]) -> Iterator[Any]:
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
