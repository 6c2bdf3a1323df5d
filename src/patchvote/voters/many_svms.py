"""Linear SVMs of very many classes, learned together: matrix products for all classes at once.

Every class has the problem of scikit-learn's `LinearSVC` (squared hinge loss, one class against all others, the
intercept regularised as one more weight):

    min_w  1/2 |w|^2  +  C sum_i c_i max(0, 1 - y_i w.x_i)^2

Its curvature is at most that of M = I + 2 C X^T diag(c) X, whatever the labels are. So one decomposition of M serves
all classes: steps of M^-1 times the gradient descend for each of them, and momentum, which restarts where it would
climb, makes them few (Nesterov; O'Donoghue and Candes, 2015). Classes are learned in groups, so that memory does not
grow with their number.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.linalg import cho_factor, cho_solve

Floats = npt.NDArray[np.float64]

_GROUP_NUMBERS = 1 << 22  # scores of images that are held at once: 32 MB, in each of about four arrays
_TOLERANCE = 1e-4  # of the gradient; the rule for stopping is that of liblinear
_MOST_STEPS = 1000


def fit_many(
    vectors: Floats, numbers: npt.NDArray[np.int64], C: float, class_weight: Any, weight: Floats
) -> tuple[npt.NDArray[np.int64], Floats, Floats]:
    """Return the class numbers that occur, and weights ``(classes, features)`` and intercepts of their SVMs.

    Parameters
    ----------
    vectors : array of shape (images, features)
        Vectors of the images.
    numbers : array of int
        Class number of each image.
    C : float
        Inverse strength of the regularisation.
    class_weight : dict, "balanced" or None
        Weights of the classes, by class number.
    weight : array of shape (images,)
        Weights of the images.

    Examples
    --------
    >>> classes, linear, bias = fit_many(np.eye(6), np.array([0, 0, 1, 1, 4, 4]), 10.0, None, np.ones(6))
    >>> classes[(np.eye(6) @ linear.T + bias).argmax(axis=1)]
    array([0, 0, 1, 1, 4, 4])
    """
    present = np.unique(numbers)
    labels = np.searchsorted(present, numbers)
    ratio = _class_ratio(class_weight, present, labels, weight)
    x = np.concatenate([vectors, np.ones((len(vectors), 1))], axis=1)
    # An image counts `ratio` times for its own class, and once against the others.
    most = 2 * C * weight * np.maximum(ratio[labels], 1.0)
    metric = cho_factor(np.eye(x.shape[1]) + (x * most[:, None]).T @ x, overwrite_a=True)
    found = np.empty((len(present), x.shape[1]))
    group = max(1, _GROUP_NUMBERS // len(x))
    for start in range(0, len(present), group):
        members = np.arange(start, min(start + group, len(present)))
        found[members] = _descend(x, labels, members, 2 * C * weight, ratio, metric).T
    return present, found[:, :-1], found[:, -1]


def _class_ratio(
    class_weight: Any, present: npt.NDArray[np.int64], labels: npt.NDArray[np.int64], weight: Floats
) -> Floats:
    """Return the weight of each class, as scikit-learn has it."""
    if class_weight == "balanced":
        return np.asarray(weight.sum() / (len(present) * np.bincount(labels, weight)))
    given = class_weight or {}
    return np.array([given.get(number, 1.0) for number in present.tolist()])


def _descend(
    x: Floats,
    labels: npt.NDArray[np.int64],
    members: npt.NDArray[np.int64],
    cost: Floats,
    ratio: Floats,
    metric: tuple[Floats, bool],
) -> Floats:
    """Return the weights ``(features, classes)`` of some classes; `cost` is 2 C times the weight of each image."""
    result = np.zeros((x.shape[1], len(members)))
    open_ = np.arange(len(members))  # classes that have not converged
    weights, ahead, momentum = result.copy(), result.copy(), np.ones(len(members))
    least = np.zeros(0)
    for _ in range(_MOST_STEPS):
        gradient = _gradient(x, labels, members[open_], ahead, cost, ratio)
        size = np.linalg.norm(gradient, axis=0)
        if not len(least):
            counts = np.bincount(labels, minlength=members[-1] + 1)[members]
            least = _TOLERANCE * np.maximum(np.minimum(counts, len(x) - counts), 1) / len(x) * size
        done = size <= least
        result[:, open_[done]] = ahead[:, done]
        left = ~done
        open_, gradient, least = open_[left], gradient[:, left], least[left]
        weights, ahead, momentum = weights[:, left], ahead[:, left], momentum[left]
        if not len(open_):
            return result
        new = ahead - cho_solve(metric, gradient)
        climbs = np.einsum("ij,ij->j", gradient, new - weights) > 0
        following = np.where(climbs, 1.0, (1 + np.sqrt(1 + 4 * momentum**2)) / 2)
        share = np.where(climbs, 0.0, (momentum - 1) / following)
        ahead, weights, momentum = new + share * (new - weights), new, following
    result[:, open_] = weights
    return result


def _gradient(
    x: Floats,
    labels: npt.NDArray[np.int64],
    members: npt.NDArray[np.int64],
    weights: Floats,
    cost: Floats,
    ratio: Floats,
) -> Floats:
    """Gradient by the weights ``(features, classes)`` of the classes `members`."""
    place = np.full(int(max(labels.max(), members.max())) + 1, -1)
    place[members] = np.arange(len(members))
    column = place[labels]
    own = np.flatnonzero(column >= 0)  # images of these classes
    residual = x @ weights
    positive = residual[own, column[own]]
    residual += 1.0  # of the images of other classes: how far they are above -1
    np.maximum(residual, 0, out=residual)
    residual[own, column[own]] = np.minimum(positive - 1, 0) * ratio[labels[own]]
    residual *= cost[:, None]
    return weights + x.T @ residual
