"""The mathematics of ML3, for every array library that supports the array API standard.

A class has several prototypes; a descriptor's score for the class is phi(z) = ||[z]_+||_q, where z are its products
with the prototypes. q = inf is the largest product, q = 1 the sum of the positive ones. Products of a minibatch are an
array ``(prototypes, classes, descriptors)``: sums over prototypes and classes then run along whole rows of memory.

References
----------
Fornoni, Caputo and Orabona, "Multiclass Latent Locally Linear Support Vector Machines", ACML 2013.
Kuzborskij, Carlucci and Caputo, "When Naive Bayes Nearest Neighbours Meet Convolutional Neural Networks", CVPR 2016.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from array_api_compat import array_namespace, device, is_numpy_array

Array = Any  # of any library that supports the array API

# Range of values whose squares and cubes in float32 neither overflow nor underflow, so that no scaling is needed.
_LEAST, _MOST = 1e-9, 1e9


def phi(z: Array, q: float) -> Array:
    """Score of each class, ``||[z]_+||_q`` over the first axis."""
    return _positive_norm(z, q)[0]


def phi_and_gradient(z: Array, q: float) -> tuple[Array, Array]:
    """Score of each class, and its derivative by each product: ``([z]_+ / phi)^(q-1)``, and 0 where phi is 0.

    At q = inf, where the largest product is the score, the derivative is 1 for that product (the first, where several
    are largest) and 0 for the others.
    """
    xp = array_namespace(z)
    score, positive = _positive_norm(z, q)
    if q == 1:
        return score, xp.astype(positive > 0, z.dtype)
    if q == math.inf:
        number = xp.reshape(xp.arange(z.shape[0], device=device(z)), (-1,) + (1,) * (z.ndim - 1))
        largest = xp.expand_dims(xp.argmax(positive, axis=0), axis=0)
        return score, xp.astype((number == largest) & (positive > 0), z.dtype)
    # Dividing before taking the power: the quotient is at most 1, so nothing can overflow.
    ratio = positive / xp.where(score > 0, score, xp.ones_like(score))
    if q == 2:
        return score, ratio
    return score, ratio * ratio if q == 3 else ratio ** (q - 1)


def _positive_norm(z: Array, q: float, overwrite: bool = False) -> tuple[Array, Array]:
    """Return ``||[z]_+||_q`` over the first axis, and ``[z]_+``."""
    xp = array_namespace(z)
    positive = np.maximum(z, 0, out=z) if overwrite and is_numpy_array(z) else xp.clip(z, min=0)
    if q == 1:
        return xp.sum(positive, axis=0), positive
    if q == math.inf:
        return xp.max(positive, axis=0), positive
    most = xp.max(positive)
    if q in (2, 3) and bool((most > _LEAST) & (most < _MOST)):
        if q == 2:
            return xp.sqrt(_sum_of_squares(positive)), positive
        return xp.sum(positive * positive * positive, axis=0) ** (1 / 3), positive
    top = xp.max(positive, axis=0)
    ratio = positive / xp.where(top > 0, top, xp.ones_like(top))
    return top * xp.sum(ratio**q, axis=0) ** (1 / q), positive


def _sum_of_squares(values: Array) -> Array:
    """Return the sum of squares over the first axis; numpy does it without writing the squares to memory."""
    if is_numpy_array(values):
        return np.einsum("i...,i...->...", values, values)
    return array_namespace(values).sum(values * values, axis=0)


def softmax_loss(scores: Array, labels: Array) -> tuple[Array, Array]:
    """Softmax loss of each descriptor, and its derivative by the scores: softmax minus one-hot."""
    xp = array_namespace(scores)
    right = xp.expand_dims(xp.arange(scores.shape[0], device=device(scores)), axis=1) == xp.expand_dims(labels, axis=0)
    shifted = scores - xp.max(scores, axis=0)
    power = xp.exp(shifted)
    total = xp.sum(power, axis=0)
    hit = xp.astype(right, scores.dtype)
    loss = xp.log(total) - xp.sum(shifted * hit, axis=0)
    return loss, power / total - hit


def hinge_loss(scores: Array, labels: Array) -> tuple[Array, Array]:
    """Multiclass hinge loss of each descriptor, ``[1 + max_(r != y) s_r - s_y]_+``, and the class that decides it.

    The loss is the difference of two convex functions, ``max(1 + max_(r != y) s_r, s_y)`` and ``s_y``; this is what the
    concave-convex procedure works on.
    """
    xp = array_namespace(scores)
    number = xp.expand_dims(xp.arange(scores.shape[0], device=device(scores)), axis=1)
    right = number == xp.expand_dims(labels, axis=0)
    margin = scores + xp.astype(~right, scores.dtype)
    correct = xp.sum(xp.where(right, scores, xp.zeros_like(scores)), axis=0)
    winner = number == xp.expand_dims(xp.argmax(margin, axis=0), axis=0)
    return xp.max(margin, axis=0) - correct, xp.astype(winner, scores.dtype)


def minibatch_gradient(
    z: Array, labels: Array, weight: Array, q: float, *, overwrite: bool = False
) -> tuple[Array, Array]:
    """Loss and derivative of the weighted softmax loss by every product of a minibatch."""
    if q != 2:
        scores, gradient = phi_and_gradient(z, q)
        loss, residual = softmax_loss(scores, labels)
        return loss, gradient * (residual * weight)
    # q = 2, the default, saves one pass over the products: phi divides the small residual, not the large gradient.
    xp = array_namespace(z)
    scores, residual = _positive_norm(z, q, overwrite)
    loss, difference = softmax_loss(scores, labels)
    factor = difference * weight / xp.where(scores > 0, scores, xp.ones_like(scores))
    if overwrite:
        residual *= factor
        return loss, residual
    return loss, residual * factor
