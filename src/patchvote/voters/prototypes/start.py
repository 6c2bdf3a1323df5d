"""Prototypes: where they begin, and what becomes of those that nothing excites."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt


def first_prototypes(
    values: npt.NDArray[Any], labels: npt.NDArray[np.int64], count: int, classes: int, start: str, seed: int
) -> npt.NDArray[Any]:
    """Take `count` points of each class from a sample: random descriptors ("data") or centres of k-means ("kmeans").

    Returns
    -------
    array of shape (count, classes, features)
    """
    rng = np.random.default_rng(seed)
    result = np.empty((count, classes, values.shape[1]), dtype=values.dtype)
    for number in range(classes):
        own = np.flatnonzero(labels == number)
        if not len(own):
            raise ValueError(
                f"a sample of {len(labels):,} descriptors holds none of class number {number}: take start='random' or "
                "a larger block."
            )
        own = rng.choice(own, size=min(len(own), max(count, 5000)), replace=False)
        result[:, number] = _centres(values[own], count, start, rng)
    return result


def _centres(own: npt.NDArray[Any], count: int, start: str, rng: np.random.Generator) -> npt.NDArray[Any]:
    """Return `count` points of a class: random descriptors of it, or its k-means centres."""
    if start == "kmeans" and len(own) > count:
        from sklearn.cluster import MiniBatchKMeans

        means = MiniBatchKMeans(count, n_init=1, random_state=int(rng.integers(2**31)), batch_size=1024)
        return np.asarray(means.fit(own).cluster_centers_)
    return own[rng.choice(len(own), size=count, replace=len(own) < count)]


def dead_prototypes(weights: npt.NDArray[Any], x: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    """Return the numbers, in ``weights.reshape(-1, features)``, of prototypes that none of the descriptors excites.

    Such a prototype gets no gradient and would stay useless for ever.
    """
    return np.flatnonzero((weights.reshape(-1, weights.shape[2]) @ x.T).max(axis=1) <= 0)


def seed_anew(
    weights: npt.NDArray[Any],
    dead: npt.NDArray[np.int64],
    x: npt.NDArray[Any],
    labels: npt.NDArray[np.int64],
    rng: np.random.Generator,
    scale: float,
) -> None:
    """Give dead prototypes a new start: a random descriptor of their class, made small."""
    for index in dead:
        prototype, number = divmod(int(index), weights.shape[1])
        own = np.flatnonzero(labels == number)
        if len(own):
            weights[prototype, number] = x[rng.choice(own)] * scale
