"""STOML3 in one state: the stochastic majorisation-minimisation step that trains sNBNL.

The paper's pseudocode keeps three running sums beside the prototypes. With w_t = 1/sqrt(t), G_t the minibatch gradient
and L the curvature of the surrogate, they collapse into the prototypes themselves:

    t = 1:   W_1 = (L W_0 - G_1) / (L + lambda)
    t > 1:   W_t = (1 - w_t lambda / (L + lambda)) W_{t-1}  -  w_t / (L + lambda) G_t

The same iterates (the tests hold the literal pseudocode beside it), a quarter of the memory, two products a step.
"""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import numpy.typing as npt

from ...utils.machine import cores
from ..ml3 import minibatch_gradient

# Bytes of products that one thread works on at once: small enough to stay in a core's cache from pass to pass.
_CACHE_BYTES = 2 << 20
_WORTH_A_THREAD = 200_000  # less takes no longer than it takes to wake another thread
_THREADS = ThreadPoolExecutor(cores(), thread_name_prefix="patchvote-stoml3")


class Stoml3:
    """Prototypes that learn, one minibatch after the other.

    Parameters
    ----------
    weights : array of shape (prototypes, classes, features)
        The start; it is changed in place.
    q, lam, curvature : float
        Of the score, of the regulariser, of the surrogate.
    step : int
        Steps made before.

    Attributes
    ----------
    weights : array
        The prototypes now.
    t : int
        Steps made so far.
    mean : array or None
        Mean of the prototypes over the steps since `begin_mean`.
    """

    def __init__(self, weights: npt.NDArray[Any], q: float, lam: float, curvature: float = 1.0, step: int = 0) -> None:
        self.weights, self.q, self.lam, self.curvature, self.t = weights, q, lam, curvature, step
        self.mean: npt.NDArray[Any] | None = None
        self._counted = 0
        self._products = np.empty(0, weights.dtype)
        self._gradient = np.empty((weights.shape[0] * weights.shape[1], weights.shape[2]), weights.dtype)

    def step(self, x: npt.NDArray[Any], labels: npt.NDArray[np.int64], weight: npt.NDArray[Any] | None = None) -> float:
        """Learn from one minibatch; return its mean loss before the step."""
        self.t += 1
        prototypes, classes, dim = self.weights.shape
        flat = self.weights.reshape(prototypes * classes, dim)
        n = len(x)
        counts = np.ones(n, flat.dtype) if weight is None else weight
        counts = counts / counts.sum(dtype=np.float64).astype(flat.dtype)
        if self._products.size < flat.shape[0] * n:
            self._products = np.empty(flat.shape[0] * n, flat.dtype)
        products = self._products[: flat.shape[0] * n].reshape(flat.shape[0], n)
        np.matmul(flat, x.T, out=products)
        loss, residual = self._residual(products.reshape(prototypes, classes, n), labels, counts)
        gradient = np.matmul(residual.reshape(flat.shape[0], n), x, out=self._gradient)
        total = self.curvature + self.lam
        if self.t == 1:
            flat *= flat.dtype.type(self.curvature / total)
            gradient *= flat.dtype.type(1 / total)
        else:
            rate = 1 / math.sqrt(self.t)
            flat *= flat.dtype.type(1 - rate * self.lam / total)
            gradient *= flat.dtype.type(rate / total)
        flat -= gradient
        if self.mean is not None:
            self._counted += 1
            self.mean += (self.weights - self.mean) / self._counted
        return loss

    def begin_mean(self) -> None:
        """Take the mean of the prototypes over the steps that come."""
        self.mean, self._counted = np.zeros_like(self.weights), 0

    def _residual(
        self, z: npt.NDArray[Any], labels: npt.NDArray[np.int64], counts: npt.NDArray[Any]
    ) -> tuple[float, npt.NDArray[Any]]:
        """Turn products into residuals, in blocks that stay in cache; return the mean loss, and the residuals."""
        n = z.shape[2]
        width = max(128, _CACHE_BYTES // (z.shape[0] * z.shape[1] * z.itemsize))
        if n <= width:
            loss, residual = minibatch_gradient(z, labels, counts, self.q, overwrite=True)
            return float(np.dot(loss, counts)), residual

        def work(start: int) -> float:
            rows = slice(start, min(start + width, n))
            loss, z[:, :, rows] = minibatch_gradient(z[:, :, rows], labels[rows], counts[rows], self.q)
            return float(np.dot(loss, counts[rows]))

        return sum(_THREADS.map(work, range(0, n, width))), z
