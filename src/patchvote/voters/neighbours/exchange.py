"""The exchange of training photos: sure photos of the target enter, distant photos of the source leave."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

FEWEST_LABELLED = 2  # photos of every class that stay: one, and another to compare it with


def exchange(
    distances: npt.NDArray[np.float64],
    members: npt.NDArray[np.int64],
    source: npt.NDArray[np.bool_],
    unknown: npt.NDArray[np.bool_],
    most: int,
) -> npt.NDArray[np.int64]:
    """Return the training photos of the next round.

    Parameters
    ----------
    distances : array of shape (photos, classes)
        Distances of all photos to the classes.
    members : array of shape (photos,)
        Class number of each training photo; -1 for the others.
    source : array of shape (photos,)
        Whether a photo belongs to the source: these may leave.
    unknown : array of shape (photos,)
        Whether a photo belongs to the target and has no label: these may enter, and leave if they are named otherwise.
    most : int
        Largest number of photos per class that enter, and of photos of the source that leave.
    """
    named, ranked = distances.argmin(axis=1), np.sort(distances, axis=1)
    lead, following = ranked[:, 1] - ranked[:, 0], members.copy()
    following[unknown & (named != members)] = -1
    outside = unknown & (members < 0)
    for number in range(distances.shape[1]):
        surest = _first(np.flatnonzero(outside & (named == number)), -lead, most)
        labelled = int(np.sum((members == number) & ~unknown))
        farthest = _first(
            np.flatnonzero(source & (members == number)),
            -distances[:, number],
            max(0, min(len(surest), labelled - FEWEST_LABELLED)),
        )
        following[surest], following[farthest] = number, -1
    return following


def _first(photos: npt.NDArray[np.int64], order: npt.NDArray[np.float64], count: int) -> npt.NDArray[np.int64]:
    """Return the photos with the smallest numbers in `order`."""
    return photos[np.argsort(order[photos], kind="stable")[:count]]
