"""Metrics of image-to-class distances: one Mahalanobis metric per class, learned with a large margin.

The distance of photo i to class c is the mean over its descriptors x of ``(x - n)' M_c (x - n)``, where n is the
nearest descriptor of the class. It is linear in the metric ``M_c``: with the mean ``S_ic`` of the outer products of
the differences x - n, the scatter, it is the inner product of ``M_c`` and ``S_ic``. So descriptors are read once, and
a step of the learning costs a few products of small matrices.

The metrics minimise, over the training photos i of classes y,

    (1 - balance) sum_i D_iy + balance sum_i sum_{c != y} max(0, margin + D_iy - D_ic)

by projected gradient descent, as published. Three things are decided here: a metric changes only the leading principal
features of the descriptors, and the others keep the Euclidean distance; the trace of a metric stays that of the
Euclidean one; and the descent ends after few steps.

References
----------
Wang, Hu and Chia, "Image-to-Class Distance Metric Learning for Image Classification", ECCV 2010.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import numpy.typing as npt

from patchvote.voters.search import Floats, on_all_cores, squares

_FIRST_STEP = 0.1  # length of the first step, as a share of the length of the Euclidean metric
_GROWTH = 1.2  # of the step after each success
_SMALLEST_GAIN = 1e-6  # relative gain of the objective below which the descent ends
_HALVINGS = 20  # of a step that does not lower the objective


@dataclasses.dataclass(frozen=True, eq=False)
class ImageToClass:
    """Distances of training photos to all classes, as a function of the metrics."""

    euclidean: npt.NDArray[np.float64]  # mean squared distances over all features, (photos, classes)
    scatter: Floats  # mean outer products of the differences that a metric changes, (classes, photos, d, d)
    numbers: npt.NDArray[np.int64]  # class number of each photo
    balance: float  # weight of the margins against the distances of photos to their own classes
    margin: float  # distance by which other classes should be farther than the own class

    def distances(self, metrics: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
        """Return the distance of each photo to each class, ``(photos, classes)``."""
        result, d = self.euclidean.copy(), metrics.shape[1]

        def add(number: int) -> None:
            change = (metrics[number] - np.eye(d)).astype(np.float32)
            result[:, number] += self.scatter[number].reshape(-1, d * d) @ change.ravel()

        on_all_cores(add, range(len(metrics)))
        return result

    def objective(self, metrics: npt.NDArray[Any]) -> float:
        """Return the mean over the photos of what the metrics minimise."""
        own, missing = self._own_and_missing(metrics)
        return float(np.mean((1 - self.balance) * own + self.balance * missing.sum(axis=1)))

    def gradient(self, metrics: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
        """Return the gradient of the objective, with the shape of the metrics."""
        _, missing = self._own_and_missing(metrics)
        weight = np.where(missing > 0, -self.balance, 0.0)
        weight[np.arange(len(weight)), self.numbers] = 1 - self.balance + self.balance * (missing > 0).sum(axis=1)
        result, d = np.empty(metrics.shape), metrics.shape[1]

        def add(number: int) -> None:
            total = weight[:, number].astype(np.float32) @ self.scatter[number].reshape(-1, d * d)
            result[number] = total.reshape(d, d) / len(weight)

        on_all_cores(add, range(len(metrics)))
        return result

    def _own_and_missing(self, metrics: npt.NDArray[Any]) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
        """Return the distances to the own classes, and what other classes lack to be farther by the margin."""
        distances, rows = self.distances(metrics), np.arange(len(self.numbers))
        own = distances[rows, self.numbers]
        missing = np.maximum(self.margin + own[:, None] - distances, 0)
        missing[rows, self.numbers] = 0
        return own, missing


def learn_metrics(photos: ImageToClass, max_iter: int) -> tuple[npt.NDArray[np.float64], list[float]]:
    """Learn one metric per class in at most `max_iter` steps, starting from the Euclidean one."""
    classes, _, d, _ = photos.scatter.shape
    metrics = np.tile(np.eye(d), (classes, 1, 1))
    objectives, step = [photos.objective(metrics)], 0.0
    for _ in range(max_iter):
        gradient = photos.gradient(metrics)
        length = float(np.sqrt(np.square(gradient).sum(axis=(1, 2)).max()))
        step = step or _FIRST_STEP * np.sqrt(d) / max(length, 1e-30)
        for _ in range(_HALVINGS):
            following = projected(metrics - step * gradient)
            objective = photos.objective(following)
            if objective <= objectives[-1]:
                break
            step /= 2
        if objectives[-1] - objective <= _SMALLEST_GAIN * abs(objectives[-1]):
            break
        metrics, step = following, step * _GROWTH
        objectives.append(objective)
    return metrics, objectives


def projected(matrices: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Return the nearest positive semidefinite matrices whose trace is that of the Euclidean metric.

    Without the trace, the metrics of some classes become smaller than those of others; that suits the source, and draws
    photos of the target to these classes.

    Examples
    --------
    >>> projected(np.array([[[3.0, 0.0], [0.0, -2.0]]])).tolist()
    [[[2.0, 0.0], [0.0, 0.0]]]
    """
    result = np.empty_like(matrices)

    def project(number: int) -> None:
        values, axes = np.linalg.eigh((matrices[number] + matrices[number].T) / 2)
        result[number] = (axes * _onto_simplex(values)) @ axes.T

    on_all_cores(project, range(len(matrices)))
    return result


def _onto_simplex(row: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Return the nearest numbers that are not negative and whose mean is 1."""
    falling = -np.sort(-row)
    shifts = (np.cumsum(falling) - len(row)) / np.arange(1, len(row) + 1)
    return np.asarray(np.maximum(row - shifts[np.sum(falling > shifts) - 1], 0))


def change_of(apart: Floats, metric: npt.NDArray[np.float64]) -> Floats:
    """Return by how much a metric changes the squared lengths of differences, the rows of `apart`."""
    return np.asarray(np.einsum("ij,ij->i", apart @ metric.astype(np.float32), apart) - squares(apart))
