"""Mean and spread of every feature, from descriptors that come block by block."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt


class Moments:
    """Weighted mean and variance of a stream, summed in float64, by the update of Chan, Golub and LeVeque (1983).

    Examples
    --------
    >>> moments = Moments()
    >>> moments.update(np.array([[1.0], [3.0]]))
    >>> moments.update(np.array([[5.0]]))
    >>> moments.mean, moments.deviation()
    (array([3.]), array([1.632993...]))
    """

    def __init__(self) -> None:
        self.weight = 0.0
        self.mean: npt.NDArray[np.float64] = np.zeros(0)
        self._squares: npt.NDArray[np.float64] = np.zeros(0)
        self._rounding = 0.0  # how coarse the numbers are that came

    def update(self, values: npt.NDArray[Any], weight: npt.NDArray[Any] | None = None) -> None:
        """Take in a block of descriptors, each counted `weight` times."""
        for start in range(0, len(values), 4096):
            rows = values[start : start + 4096]
            rows = rows if rows.dtype == np.float64 else rows.astype(np.float32, copy=False)
            self._rounding = max(self._rounding, 64 * float(np.finfo(rows.dtype).eps))
            counts = np.ones(len(rows)) if weight is None else weight[start : start + 4096]
            self._merge(rows, counts.astype(rows.dtype))

    def _merge(self, rows: npt.NDArray[Any], counts: npt.NDArray[Any]) -> None:
        """Merge some thousand descriptors; sums within them are short enough for their own type."""
        total = float(counts.sum(dtype=np.float64))
        if total <= 0:
            return
        centre = (counts @ rows / rows.dtype.type(total)).astype(rows.dtype)
        apart = rows - centre
        mean = centre + (counts @ apart).astype(np.float64) / total  # what rounding the centre lost
        squares = (counts @ np.square(apart)).astype(np.float64)
        if self.weight == 0:
            self.weight, self.mean, self._squares = total, mean, squares
            return
        both = self.weight + total
        shift = mean - self.mean
        self._squares = self._squares + squares + shift**2 * (self.weight * total / both)
        self.mean = self.mean + shift * (total / both)
        self.weight = both

    def deviation(self) -> npt.NDArray[np.float64]:
        """Return the standard deviation of each feature, and 1 for a feature that changes by no more than rounding."""
        deviation = np.sqrt(self._squares / self.weight)
        constant = deviation <= self._rounding * np.maximum(np.abs(self.mean), 1e-12)
        return np.where(constant, 1.0, deviation)
