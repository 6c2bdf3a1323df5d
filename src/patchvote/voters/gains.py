"""Gains: a white balance of features, which gives the photos of one domain the means of another."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from ..bags.bags import Bags

_SMALL = 0.01  # of the mean feature: what is weaker than that in both domains keeps its gain near 1


def moved(source: Bags, labels: npt.NDArray[Any], found: npt.NDArray[Any], there: npt.NDArray[np.float64]) -> Bags:
    """Give the source's features the means that they have in the target.

    Every photo counts the same, however many descriptors it has, and every class as often as it is found there.

    Parameters
    ----------
    source, labels
        Photos and their classes.
    found : array
        Classes that were found in the target, a photo each.
    there : array of shape (features,)
        The target's means.
    """
    means = source.means()
    classes, counts = np.unique(found[np.isin(found, labels)], return_counts=True)
    by_class = [means[labels == label].mean(axis=0, dtype=np.float64) for label in classes]
    here = np.average(by_class, axis=0, weights=counts) if by_class else means.mean(axis=0, dtype=np.float64)
    if (source.values < 0).any() or (there < 0).any():
        values = source.values + (there - here)
    else:
        little = _SMALL * (here.mean() + there.mean()) / 2 or 1.0
        values = source.values * ((there + little) / (here + little))
    return Bags(values.astype(np.float32), source.offsets, source.boxes, source.level)
