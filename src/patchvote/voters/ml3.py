"""The mathematics of ML3, and the step of STOML3, for every array library that supports the array API standard.

A class has several prototypes; a descriptor's score for the class is phi(z) = ||[z]_+||_q, where z are its products
with the prototypes. q = inf is the largest product, q = 1 the sum of the positive ones. Products of a minibatch are an
array ``(prototypes, classes, descriptors)``: sums over prototypes and classes then run along whole rows of memory.

sNBNL is trained by STOML3, stochastic majorisation-minimisation. The paper's pseudocode keeps three running sums beside
the prototypes; all of them collapse into the prototypes themselves. With the gradient G_t of a minibatch and the
curvature L of the surrogate, the step is

    W_t = W_{t-1} - (G_t + lambda W_{t-1}) / (sqrt(t) (L + lambda)) ,

which is SGD with weight decay and the rate 1 / (sqrt(t) (L + lambda)). The iterates are those of the pseudocode (the
tests compare them), with a quarter of the memory and two products per step. The first step needs no branch: at t = 1
the formula is (L W_0 - G_1) / (L + lambda), as the sums give it. The pseudocode divides by 1 + lambda, which minimises
the surrogate with lambda/2 ||W||^2; with the lambda ||W||^2 of the paper's objective it would be L + 2 lambda.

References
----------
Fornoni, Caputo and Orabona, "Multiclass Latent Locally Linear Support Vector Machines", ACML 2013.
Kuzborskij, Carlucci and Caputo, "When Naive Bayes Nearest Neighbours Meet Convolutional Neural Networks", CVPR 2016.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import numpy.typing as npt
from array_api_compat import array_namespace, device, is_numpy_array

from ..utils.arrays import on_device, on_host
from ..utils.engine import Team
from ..utils.machine import cores

Array = Any  # of any library that supports the array API

# Range of values whose squares and cubes in float32 neither overflow nor underflow, so that no scaling is needed.
_LEAST, _MOST = 1e-9, 1e9
# Bytes of products that one thread processes at once: small enough to stay in a core's cache.
_CACHE_BYTES = 2 << 20
_THREADS = ThreadPoolExecutor(cores(), thread_name_prefix="patchvote-stoml3")


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


# --- the step of STOML3 ----------------------------------------------------------------------------------------------


def advance(weights: Array, gradient: Array, t: int, curvature: float, lam: float) -> None:
    """Make step number `t`, counted from 1, on the prototypes in place; `gradient` is overwritten."""
    total, rate = curvature + lam, 1 / math.sqrt(t)
    weights *= 1 - rate * lam / total
    gradient *= rate / total
    weights -= gradient


class GradientJob:
    """The job of a worker that computes its part of every gradient."""

    name = "fit snbnl"

    def start(self) -> Callable[[Any, Any], tuple[float, Array] | None]:
        """Return the function that computes the loss and the gradient of some descriptors, if there are any."""

        def part(shared: tuple[Array, float], own: tuple[Array, Array, Array]) -> tuple[float, Array] | None:
            return Stoml3(*shared, 0.0).gradient(*own) if len(own[0]) else None

        return part


class Stoml3:
    """Prototypes that are trained one minibatch after the other, here or by a team of workers."""

    team: Team | None = None

    def __init__(
        self, weights: Array, q: float, lam: float, curvature: float = 1.0, step: int = 0, device: str | None = None
    ) -> None:
        self._weights = weights if device is None else on_device(weights, device)
        self._is_numpy = is_numpy_array(self._weights)
        self._dtype = on_host(weights[:0]).dtype
        self.q, self.lam, self.curvature, self.t = q, lam, curvature, step
        self._mean: Array | None = None
        self.averaged = 0  # steps since `begin_mean`
        self._memory: dict[str, npt.NDArray[Any]] = {}

    @property
    def weights(self) -> npt.NDArray[Any]:
        """Current prototypes."""
        return on_host(self._weights)

    @weights.setter
    def weights(self, weights: Array) -> None:
        self._weights = self._to_device(weights)

    @property
    def mean(self) -> npt.NDArray[Any] | None:
        """Mean of the prototypes over the steps since `begin_mean`."""
        return None if self._mean is None else on_host(self._mean)

    def begin_mean(self) -> None:
        """Start to average the prototypes over the following steps."""
        self._mean, self.averaged = array_namespace(self._weights).zeros_like(self._weights), 0

    def restore(self, weights: Array, mean: Array | None, step: int, averaged: int) -> None:
        """Continue from prototypes, and their mean over the last `averaged` steps, that were saved after `step`."""
        self.weights, self.t, self.averaged = weights, step, averaged
        self._mean = None if mean is None else self._to_device(mean)

    def step(self, x: Array, labels: Array, weight: Array | None = None) -> float:
        """Learn from one minibatch; return its mean loss before the step."""
        self.t += 1
        counts = np.ones(len(x), self._dtype) if weight is None else on_host(weight).astype(self._dtype, copy=False)
        loss, change = self.gradient(x, labels, counts / counts.sum(dtype=np.float64).astype(self._dtype))
        advance(self._weights, change, self.t, self.curvature, self.lam)
        if self._mean is not None:
            self.averaged += 1
            apart = np.subtract(self._weights, self._mean, out=change) if self._is_numpy else self._weights - self._mean
            apart /= self.averaged
            self._mean += apart
        return loss

    def gradient(self, x: Array, labels: Array, share: Array) -> tuple[float, Array]:
        """Return the loss of a minibatch, and its gradient, which the next call overwrites.

        Both are sums over the descriptors: a team computes them for parts of the minibatch, which are added here in the
        order of the workers.
        """
        if self.team is not None:
            cuts = np.linspace(0, len(x), self.team.size + 1).astype(int)
            parts = [slice(start, stop) for start, stop in itertools.pairwise(cuts.tolist())]
            own = [(x[part], labels[part], share[part]) for part in parts]
            replies = [one for one in self.team.ask((self.weights, self.q), own) if one is not None]
            return sum(loss for loss, _ in replies), np.sum([gradient for _, gradient in replies], axis=0)
        prototypes, classes, dim = self._weights.shape
        x, labels, share = self._to_device(x), self._to_device(labels), self._to_device(share)
        products = self._product("products", self._weights.reshape(-1, dim), x.T)
        loss, residual = self._residual(products.reshape(prototypes, classes, -1), labels, share)
        gradient = self._product("gradient", residual.reshape(prototypes * classes, -1), x)
        return loss, gradient.reshape(self._weights.shape)

    def _to_device(self, array: Array) -> Array:
        """Move an array to the library and device of the prototypes."""
        if self._is_numpy:
            return on_host(array)
        return array_namespace(self._weights).asarray(array, device=device(self._weights))

    def _product(self, name: str, a: Array, b: Array) -> Array:
        """Return a @ b; numpy writes it into the memory of the previous step, since allocating costs time."""
        if not self._is_numpy:
            return a @ b
        size = a.shape[0] * b.shape[1]
        memory = self._memory.get(name)
        if memory is None or memory.size < size:
            memory = self._memory[name] = np.empty(size, a.dtype)
        return np.matmul(a, b, out=memory[:size].reshape(a.shape[0], b.shape[1]))

    def _residual(self, z: Array, labels: Array, share: Array) -> tuple[float, Array]:
        """Compute residuals from products; return the mean loss and the residuals.

        numpy works in blocks that stay in cache, on all cores. Other libraries use their own threads.
        """
        n = z.shape[2]
        width = max(128, _CACHE_BYTES // (z.shape[0] * z.shape[1] * z.itemsize)) if self._is_numpy else n
        if n <= width:
            loss, residual = minibatch_gradient(z, labels, share, self.q, overwrite=True)
            return float(loss @ share), residual

        def work(start: int) -> float:
            rows = slice(start, min(start + width, n))
            loss, z[:, :, rows] = minibatch_gradient(z[:, :, rows], labels[rows], share[rows], self.q)
            return float(loss @ share[rows])

        return sum(_THREADS.map(work, range(0, n, width))), z
