"""Gains: a white balance of features, which gives the features of one domain the means of another.

Features that are never negative are multiplied, so that they stay so. Signed features, such as those of a transformer's
tokens, have no such scale: a mean may be near 0, or of another sign in the other domain. They are shifted instead, and
so are rectified features of a network that stands beside a signed one: voters then take no roots, and to a linear
function of means a shift is what another domain is.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from ..bags.bags import Bags

_SMALL = 0.01  # of the mean of all features: the gain of a feature weaker than that in both domains stays near 1


def moved(source: Bags, labels: npt.NDArray[Any], found: npt.NDArray[Any], there: npt.NDArray[np.float64]) -> Bags:
    """Return the source with features that have the means of the target: multiplied, or shifted if any is negative.

    Every photo has the same weight, however many descriptors it has; classes are weighted by their counts in `found`.

    Parameters
    ----------
    source, labels
        Photos of the source, and their classes.
    found : array
        Classes of the target's photos, known or predicted, one per photo.
    there : array of shape (features,)
        Means of the features in the target.
    """
    means = source.means()
    classes, counts = np.unique(found[np.isin(found, labels)], return_counts=True)
    by_class = [means[labels == label].mean(axis=0, dtype=np.float64) for label in classes]
    here = np.average(by_class, axis=0, weights=counts) if by_class else means.mean(axis=0, dtype=np.float64)
    if (source.values < 0).any() or (there < 0).any():
        values = source.values + (there - here)
    else:
        offset = _SMALL * (here.mean() + there.mean()) / 2 or 1.0
        values = source.values * ((there + offset) / (here + offset))
    return Bags(values.astype(np.float32), source.offsets, source.boxes, source.level)
