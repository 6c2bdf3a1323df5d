"""Outliers of a small collection, of which quartiles of one measure say too little.

With few photos, every photo points into directions in which the others do not vary, so that a stranger is hardly
further away in that sense than a photo that belongs (`suspects.outliers`). Three signs together tell more:

- `unlike`, as for larger collections;
- the distance to the three nearest photos, whatever their classes;
- whether the others, asked about the photo, are undecided between the classes: P, the largest probability, is small.

With z the number of interquartile ranges above the upper quartile, on a log scale, a photo is an outlier where

    min(z(unlike), z(distance)) - 2 log P > 2.4    and    min(z(unlike), z(distance)) > 0 .

The second condition limits outliers to a quarter of the photos, whatever P is. The third sign means something only
where the others are decided about most photos. With many classes of two photos, or classes that differ by nothing
visible, they are undecided about nearly all, and no outlier is told.

The rule and its constants were chosen on draws of Amazon, Caltech, Webcam and Scene-15 with one planted stranger, and
measured on photos that none of the choices had seen (docs/check.md).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from .held_out import HeldOut
from .suspects import outliers

_SMALL = 100  # photos below which a collection is small; the rule was measured with 16 to 80
_FEWEST = 12  # photos from which on quartiles mean something, if three signs agree
_NEAREST = 3  # photos to which the distance is measured; of 1, 2, 3 and 5 the best
_UNDECIDED = 2.0  # weight of the negative log of the largest probability
_LIMIT = 2.4  # from which on a photo is told
_DECIDED = 0.5  # least median of P. With 8 photos per class and more it was 0.65 or more (docs/check.md)
_LEAST_SPREAD = 0.02  # interquartile range on the log scale; with less, all photos are the same, and none is an outlier

Floats = npt.NDArray[np.float64]
Numbers = npt.NDArray[np.int64]


def outliers_of(held_out: HeldOut, vectors: npt.NDArray[Any], groups: Numbers) -> Numbers:
    """Return the photos unlike all others of a collection of any size, the least alike first.

    Parameters
    ----------
    held_out : HeldOut
        What the others say of each photo.
    vectors : array of shape (photos, features)
        Vector of each photo, of length 1.
    groups : array of int
        Groups of copies, which are no neighbours of one another.
    """
    known = np.flatnonzero(held_out.unlike > 0)
    if len(known) >= _SMALL:
        return outliers(held_out.unlike)
    if why_no_outliers(held_out):
        return np.zeros(0, np.int64)
    distance = nearest_distances(vectors, groups)[known]
    both = np.minimum(_ranges_above(np.log(held_out.unlike[known])), _ranges_above(np.log(distance)))
    undecided = -np.log(held_out.probability[known].max(axis=1))
    strange = both + _UNDECIDED * undecided
    found = np.flatnonzero((strange > _LIMIT) & (both > 0))
    return np.asarray(known[found[np.argsort(-strange[found], kind="stable")]])


def why_no_outliers(held_out: HeldOut) -> str:
    """Return why outliers cannot be told, as a part of a sentence; empty if they can."""
    known = np.flatnonzero(held_out.unlike > 0)
    if len(known) < _FEWEST:
        return f"that needs {_FEWEST} photos that can be compared"
    if len(known) < _SMALL and np.median(held_out.probability[known].max(axis=1)) < _DECIDED:
        return "the other photos are undecided about most photos, as classes have too few photos or differ too little"
    return ""


def nearest_distances(vectors: npt.NDArray[Any], groups: Numbers) -> Floats:
    """Return the mean distance (1 - cosine) of each photo to the nearest others, its copies left out.

    Examples
    --------
    >>> vectors = np.array([[1.0, 0.0], [1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    >>> nearest_distances(vectors, np.arange(4)).round(2).tolist()
    [0.33, 0.33, 0.33, 1.0]
    """
    distances = 1 - vectors @ vectors.T
    distances[groups[:, None] == groups[None, :]] = np.nan  # also the photo itself
    nearest = np.sort(distances, axis=1)[:, :_NEAREST]  # NaN comes last
    known = ~np.isnan(nearest)
    mean = np.where(known, nearest, 0.0).sum(axis=1) / np.maximum(known.sum(axis=1), 1)
    return np.asarray(np.maximum(mean, np.finfo(float).tiny))


def _ranges_above(values: Floats) -> Floats:
    """Return how many interquartile ranges each value is above the upper quartile."""
    low, high = np.quantile(values, [0.25, 0.75])
    return np.asarray((values - high) / max(high - low, _LEAST_SPREAD))
