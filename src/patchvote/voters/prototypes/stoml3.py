"""STOML3 in one state: the stochastic majorisation-minimisation step that trains sNBNL.

The paper's pseudocode keeps three running sums beside the prototypes. With w_t = 1/sqrt(t), G_t the minibatch gradient
and L the curvature of the surrogate, they collapse into the prototypes themselves:

    t = 1:   W_1 = (L W_0 - G_1) / (L + lambda)
    t > 1:   W_t = (1 - w_t lambda / (L + lambda)) W_{t-1}  -  w_t / (L + lambda) G_t

The same iterates (the tests hold the literal pseudocode beside it), a quarter of the memory, two products per step. The
step is written once, for numpy and for every other library that speaks the array API standard.
"""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import numpy.typing as npt
from array_api_compat import array_namespace, device, is_numpy_array

from ...utils.devices import on_device, on_host
from ...utils.machine import cores
from ..ml3 import Array, minibatch_gradient

# Bytes of products that one thread works on at once: small enough to stay in a core's cache from pass to pass.
_CACHE_BYTES = 2 << 20
_THREADS = ThreadPoolExecutor(cores(), thread_name_prefix="patchvote-stoml3")


def advance(weights: Array, gradient: Array, t: int, curvature: float, lam: float) -> None:
    """Make step number `t`, from 1, on the prototypes themselves; the memory of `gradient` is used up.

    Examples
    --------
    >>> weights = np.array([1.0, 2.0])
    >>> advance(weights, np.array([1.0, 0.0]), 1, curvature=1.0, lam=1.0)
    >>> weights
    array([0., 1.])
    """
    total, rate = curvature + lam, 1 / math.sqrt(t)
    weights *= curvature / total if t == 1 else 1 - rate * lam / total
    gradient *= rate / total
    weights -= gradient


class Stoml3:
    """Prototypes that learn, one minibatch after the other.

    Parameters
    ----------
    weights : array of shape (prototypes, classes, features)
        The start, of any library that speaks the array API; it is changed in place where it is on this machine.
    q, lam, curvature : float
        Exponent of the score, strength of the regulariser, curvature of the surrogate.
    step : int
        Steps made before.
    device : str, optional
        Let torch make the steps on this device. By default they are made where `weights` is.

    Attributes
    ----------
    weights : array
        The prototypes now, as an array of numpy.
    t : int
        Steps made so far.
    mean : array or None
        Mean of the prototypes over the steps since `begin_mean`, as an array of numpy.
    """

    def __init__(
        self,
        weights: Array,
        q: float,
        lam: float,
        curvature: float = 1.0,
        step: int = 0,
        device: str | None = None,
    ) -> None:
        self._weights = weights if device is None else on_device(weights, device)
        self._is_numpy = is_numpy_array(self._weights)
        self._dtype = on_host(weights[:0]).dtype
        self.q, self.lam, self.curvature, self.t = q, lam, curvature, step
        self._mean: Array | None = None
        self._counted = 0
        self._memory: dict[str, npt.NDArray[Any]] = {}

    @property
    def weights(self) -> npt.NDArray[Any]:
        """The prototypes now."""
        return on_host(self._weights)

    @weights.setter
    def weights(self, weights: Array) -> None:
        self._weights = self._there(weights)

    @property
    def mean(self) -> npt.NDArray[Any] | None:
        """Mean of the prototypes over the steps since `begin_mean`."""
        return None if self._mean is None else on_host(self._mean)

    def begin_mean(self) -> None:
        """Take the mean of the prototypes over the steps that come."""
        self._mean, self._counted = array_namespace(self._weights).zeros_like(self._weights), 0

    def step(self, x: Array, labels: Array, weight: Array | None = None) -> float:
        """Learn from one minibatch; return its mean loss before the step.

        Parameters
        ----------
        x : array of shape (descriptors, features)
            The descriptors.
        labels : array of int of shape (descriptors,)
            Their class numbers.
        weight : array of shape (descriptors,), optional
            How much each counts.
        """
        self.t += 1
        prototypes, classes, dim = self._weights.shape
        counts = np.ones(len(x), self._dtype) if weight is None else on_host(weight).astype(self._dtype, copy=False)
        share = self._there(counts / counts.sum(dtype=np.float64).astype(self._dtype))
        x, labels = self._there(x), self._there(labels)
        products = self._product("products", self._weights.reshape(-1, dim), x.T)
        loss, residual = self._residual(products.reshape(prototypes, classes, -1), labels, share)
        gradient = self._product("gradient", residual.reshape(prototypes * classes, -1), x)
        advance(self._weights, gradient.reshape(self._weights.shape), self.t, self.curvature, self.lam)
        if self._mean is not None:
            self._counted += 1
            self._mean += (self._weights - self._mean) / self._counted
        return loss

    def _there(self, array: Array) -> Array:
        """Bring an array to where the prototypes are."""
        if self._is_numpy:
            return on_host(array)
        return array_namespace(self._weights).asarray(array, device=device(self._weights))

    def _product(self, name: str, a: Array, b: Array) -> Array:
        """Return a @ b; numpy writes it into the memory of the step before, since new memory costs time."""
        if not self._is_numpy:
            return a @ b
        size = a.shape[0] * b.shape[1]
        memory = self._memory.get(name)
        if memory is None or memory.size < size:
            memory = self._memory[name] = np.empty(size, a.dtype)
        return np.matmul(a, b, out=memory[:size].reshape(a.shape[0], b.shape[1]))

    def _residual(self, z: Array, labels: Array, share: Array) -> tuple[float, Array]:
        """Turn products into residuals; return the mean loss, and the residuals.

        numpy does so in blocks that stay in cache, on all cores. Other libraries have threads of their own.
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
