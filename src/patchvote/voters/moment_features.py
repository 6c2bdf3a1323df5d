"""Moments of a bag: what its parts show, where, and which features they show together.

The mean of a bag's descriptors forgets where a part stood and what it showed besides. Three kinds of statistics of the
rooted descriptors r of a bag keep some of that, and all of them are means over its parts:

- **what**: the mean of r;
- **where**: the means of a r, b r and a b r, with a from -1 at the top of the image to 1 at its bottom, and b from -1
  in the middle to 1 at the left and right edges;
- **together**: the mean of the products y_j y_k of the features y = (r - offset) D, projections on a few directions.

A linear function of these means is a sum over parts: every part votes with a function of what it shows, weighted by
where it stands and by what else it shows. First and second moments are divided by their lengths, so that bright and
dark images count the same. Nothing here learns, and nothing needs more than numpy.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ..bags.bags import Bags
from ..utils.float16 import to_float32
from .power import raised
from .votes import centres

Floats = npt.NDArray[np.float32]

PLACES = 4  # means of r, a r, b r and a b r
# Numbers of directions whose indices are kept: a model has one, and finding indices takes a twentieth of the time of
# the scores of a bag.
_KEPT_INDICES = 4
_LEAST_SIZE = 1e-9  # of differences between images whose vectors have the length 1: smaller ones are rounding


@dataclasses.dataclass(frozen=True, eq=False)
class MomentBags(Bags):
    """Bags of which only the mean and the moments are known: each has one descriptor, its mean.

    Parameters
    ----------
    stats : array of shape (bags, moments)
        Moments of the whole bags, as `moments` returns them.
    """

    stats: Floats = dataclasses.field(default=None)  # type: ignore[arg-type]


def places(bags: Bags, rows: slice) -> Floats:
    """Return the factors (1, a, b, a b) of some descriptors, ``(descriptors, 4)``.

    Examples
    --------
    >>> top_middle, top_left = [0.5, 0, 0.5, 0], [0, 0, 0, 0]
    >>> places(Bags(np.ones((2, 2)), np.array([0, 2]), np.array([top_middle, top_left])), slice(None))
    array([[ 1., -1., -1.,  1.],
           [ 1., -1.,  1., -1.]], dtype=float32)
    """
    x, y = centres(bags, rows).T
    down, aside = 2 * y - 1, 4 * np.abs(x - 0.5) - 1
    return np.stack([np.ones_like(down), down, aside, down * aside], axis=1).astype(np.float32)


def rooted(bags: Bags, rows: slice, power: float) -> Floats:
    """Return some descriptors as float32, raised to a power; with the power 1, maybe a view of the bags."""
    return np.asarray(raised(to_float32(bags.values[rows]), power))


def pair_count(directions: int) -> int:
    """Return the number of products of so many features with one another."""
    return directions * (directions + 1) // 2


def moments(bags: Bags, power: float, directions: npt.NDArray[Any], offset: npt.NDArray[Any]) -> Floats:
    """Return the moments of each bag: four means of every feature, then the means of products.

    Parameters
    ----------
    bags : Bags
        The bags.
    power : float
        Exponent of the power normalisation of features.
    directions : array of shape (features, k)
        Directions on which descriptors are projected for their products; k may be 0.
    offset : array of shape (features,)
        Subtracted from descriptors before they are projected.
    """
    k, dim = directions.shape[1], bags.dim
    upper, double = _upper(k), _factors(k)
    directions = directions.astype(np.float32)
    offset = offset.astype(np.float32)
    result = np.empty((len(bags), PLACES * dim + pair_count(k)), np.float32)
    for number, (start, stop) in enumerate(zip(bags.offsets[:-1], bags.offsets[1:], strict=True)):
        rows = slice(int(start), int(stop))
        r = rooted(bags, rows, power)
        result[number, : PLACES * dim] = (places(bags, rows).T @ r / len(r)).ravel()
        if k:
            projected = (r - offset) @ directions
            result[number, PLACES * dim :] = (projected.T @ projected / len(r))[upper] * double
    return result


@functools.lru_cache(_KEPT_INDICES)
def _upper(k: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return rows and columns of the products of k features, each pair once; to be read only."""
    return np.triu_indices(k)


@functools.lru_cache(_KEPT_INDICES)
def _factors(k: int) -> Floats:
    """Return the factor of each product: those of two features stand for two equal entries of a matrix."""
    first, second = _upper(k)
    return np.where(first == second, 1, np.sqrt(2)).astype(np.float32)


def lengths(stats: npt.NDArray[Any], dim: int) -> npt.NDArray[np.float64]:
    """Return the length of the mean, and that of the products, of each bag ``(bags, 2)``; 1 where it is 0."""
    what, together = stats[:, :dim].astype(np.float64), stats[:, PLACES * dim :].astype(np.float64)
    both = np.stack([np.linalg.norm(what, axis=1), np.linalg.norm(together, axis=1)], axis=1)
    return np.where(both > 0, both, 1.0)


def moment_vectors(stats: npt.NDArray[Any], dim: int) -> npt.NDArray[np.float64]:
    """Return the vector of each bag: its moments, divided by their lengths."""
    size = lengths(stats, dim)
    vectors = stats.astype(np.float64)
    vectors[:, : PLACES * dim] /= size[:, :1]
    vectors[:, PLACES * dim :] /= size[:, 1:]
    return vectors


def parts_of(dim: int) -> tuple[slice, slice, slice]:
    """Return the features, places and products among the moments of an image."""
    return slice(0, dim), slice(dim, PLACES * dim), slice(PLACES * dim, None)


def scales(sizes: Sequence[float], count: int, dim: int, layout: float) -> npt.NDArray[np.float64]:
    """Return the factor of each moment that gives features, places and products their weights, 1 in all.

    Parameters
    ----------
    sizes : sequence of three floats
        Root mean square lengths of features, places and products of the centred training images.
    count : int
        Number of moments.
    dim : int
        Number of features.
    layout : float
        Weight of the places; features and products have 1.
    """
    scale, total = np.zeros(count), 0.0
    for block, size, importance in zip(parts_of(dim), sizes, (1.0, layout, 1.0), strict=True):
        if size > _LEAST_SIZE and importance > 0:
            scale[block] = np.sqrt(importance) / size
            total += importance
    return np.asarray(scale / np.sqrt(total or 1.0))


def symmetric(linear: npt.NDArray[Any], k: int) -> npt.NDArray[np.float32]:
    """Return the weights of products as one symmetric matrix per class, ``(classes, k, k)``."""
    first, second = _upper(k)
    half = linear * np.where(first == second, 1.0, np.sqrt(0.5))
    matrices = np.zeros((len(linear), k, k), np.float32)
    matrices[:, first, second] = half
    matrices[:, second, first] = half
    return matrices
