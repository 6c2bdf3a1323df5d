"""Initial prototypes, and new ones for those that no descriptor activates."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

_ROWS = 512  # prototypes whose products with a minibatch are held in memory at once


def first_prototypes(
    values: npt.NDArray[Any], labels: npt.NDArray[np.int64], count: int, classes: int, start: str, seed: int
) -> npt.NDArray[Any]:
    """Return `count` points per class from a sample: random descriptors ("data") or k-means centres ("kmeans").

    Returns
    -------
    array of shape (count, classes, features)
    """
    rng = np.random.default_rng(seed)
    result = np.empty((count, classes, values.shape[1]), dtype=values.dtype)
    for number in range(classes):
        class_rows = np.flatnonzero(labels == number)
        if not len(class_rows):
            raise ValueError(
                f"a sample of {len(labels):,} descriptors has none of class number {number}: use start='random' or a "
                "larger memory."
            )
        class_rows = rng.choice(class_rows, size=min(len(class_rows), max(count, 5000)), replace=False)
        result[:, number] = _centres(values[class_rows], count, start, rng)
    return result


def _centres(values: npt.NDArray[Any], count: int, start: str, rng: np.random.Generator) -> npt.NDArray[Any]:
    """Return `count` points from the descriptors of a class: random ones, or k-means centres."""
    if start == "kmeans" and len(values) > count:
        from sklearn.cluster import MiniBatchKMeans

        means = MiniBatchKMeans(count, n_init=1, random_state=int(rng.integers(2**31)), batch_size=1024)
        return np.asarray(means.fit(values).cluster_centers_)
    return values[rng.choice(len(values), size=count, replace=len(values) < count)]


def dead_prototypes(weights: npt.NDArray[Any], x: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    """Return the indices, in ``weights.reshape(-1, features)``, of prototypes that no descriptor activates.

    Such a prototype gets no gradient and would never learn.
    """
    flat = weights.reshape(-1, weights.shape[2])
    largest = [(flat[start : start + _ROWS] @ x.T).max(axis=1) for start in range(0, len(flat), _ROWS)]
    return np.flatnonzero(np.concatenate(largest) <= 0)


def seed_anew(
    weights: npt.NDArray[Any],
    dead: npt.NDArray[np.int64],
    x: npt.NDArray[Any],
    labels: npt.NDArray[np.int64],
    rng: np.random.Generator,
    scale: float,
) -> None:
    """Replace dead prototypes by random descriptors of their class, times `scale`."""
    for index in dead:
        prototype, number = divmod(int(index), weights.shape[1])
        class_rows = np.flatnonzero(labels == number)
        if len(class_rows):
            weights[prototype, number] = x[rng.choice(class_rows)] * scale
