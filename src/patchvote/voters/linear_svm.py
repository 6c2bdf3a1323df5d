"""A linear SVM per class, in as few coordinates as the images span."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.svm import LinearSVC

from ..utils.threads import blas_threads_for, one_blas_thread
from .many_svms import fit_many

Floats = npt.NDArray[np.float64]

# Images times features times classes above which all classes are learned together. It is above what 67 classes of 5,360
# photos need (5e8), so that results on the smaller image sets stay those of liblinear.
_MOST_NUMBERS = 2_000_000_000


def fit_linear(
    vectors: Floats,
    numbers: npt.NDArray[np.int64],
    classes: npt.NDArray[Any],
    C: float,
    class_weight: Any,
    weight: Floats,
    seed: int,
) -> tuple[Floats, Floats]:
    """Return weights ``(classes, features)`` and intercepts of one-against-all linear SVMs.

    Where there are more features than images, the SVMs are fitted in coordinates among the images, which changes
    nothing but the time: the weights are combinations of the images.

    Parameters
    ----------
    vectors : array of shape (images, features)
        Vectors of the images.
    numbers : array of int
        Class number of each image.
    classes : array
        All classes; a class without images gets weights of 0 and an intercept of -1.
    C : float
        Inverse strength of the regularisation.
    class_weight : dict, "balanced" or None
        Weights of the classes; a dict has them by class.
    weight : array of shape (images,)
        Weights of the images.
    seed : int
        Seed of the solver.

    Examples
    --------
    >>> vectors = np.eye(4)
    >>> linear, bias = fit_linear(vectors, np.array([0, 0, 1, 1]), np.array(["a", "b"]), 10.0, None, np.ones(4), 0)
    >>> (vectors @ linear.T + bias).argmax(axis=1)
    array([0, 0, 1, 1])
    """
    if isinstance(class_weight, dict):
        class_weight = {number: class_weight.get(label, 1.0) for number, label in enumerate(classes.tolist())}
    if len(there := np.unique(numbers)) < 2:
        raise ValueError(f"images of at least two classes are needed, got those of {classes[there].tolist()}.")
    coordinates, combine = _coordinates(vectors)
    if len(there) > 2 and len(classes) * coordinates.size > _MOST_NUMBERS:
        present, found, intercepts = fit_many(coordinates, numbers, C, class_weight, weight)
        found = combine(found)
    else:
        solver = LinearSVC(C=C, class_weight=class_weight, random_state=seed, max_iter=10_000)
        solver.fit(coordinates, numbers, None if (weight == 1).all() else weight)
        present, found, intercepts = solver.classes_, combine(solver.coef_), np.asarray(solver.intercept_)
    if len(present) == 2:  # one function separates two classes: each gets half of it, with opposite signs
        found, intercepts = np.concatenate([-found, found]) / 2, np.concatenate([-intercepts, intercepts]) / 2
    linear, bias = np.zeros((len(classes), vectors.shape[1])), np.full(len(classes), -1.0)
    linear[present], bias[present] = found, intercepts
    return linear, bias


def _coordinates(vectors: Floats) -> tuple[Floats, Callable[[Floats], Floats]]:
    """Return vectors in coordinates with the same products, and the function that takes weights back to features."""
    images, features = vectors.shape
    if images >= features:
        return vectors, np.asarray
    with blas_threads_for(images * images * features):
        products = vectors @ vectors.T
    with one_blas_thread():  # several threads take longer, since they wait for one another
        squares, axes = np.linalg.eigh(products)
    kept = squares > 1e-12 * max(squares[-1], 1e-300)
    kept[-1] = True  # where all images are the same, one coordinate of zeros is left
    lengths = np.sqrt(np.maximum(squares[kept], 1e-300))
    return axes[:, kept] * lengths, lambda weights: np.asarray((weights / lengths) @ axes[:, kept].T @ vectors)
