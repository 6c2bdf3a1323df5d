"""Mean and variance of every feature, from descriptors that come block by block."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

_BLOCK = 1 << 18  # numbers per block: 1 MB in float32, which stays in the processor's cache
_ROWS = 4096  # descriptors per block at most, few enough to sum them in their own type


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
        self._rounding = 0.0  # relative rounding error of the coarsest input

    def update(self, values: npt.NDArray[Any], weight: npt.NDArray[Any] | None = None) -> None:
        """Add a block of descriptors, each counted `weight` times."""
        step = min(_ROWS, max(1, _BLOCK // max(1, values[:1].size)))
        for start in range(0, len(values), step):
            rows = values[start : start + step]
            rows = rows if rows.dtype == np.float64 else rows.astype(np.float32, copy=False)
            self._rounding = max(self._rounding, 64 * float(np.finfo(rows.dtype).eps))
            counts = np.ones(len(rows)) if weight is None else weight[start : start + step]
            self._merge(rows, counts.astype(rows.dtype))

    def _merge(self, rows: npt.NDArray[Any], counts: npt.NDArray[Any]) -> None:
        """Merge one block.

        Sums are made by `einsum`: a product of matrices would wake the threads of the BLAS library, which then wait
        actively and take the processor from the network.
        """
        total = float(counts.sum(dtype=np.float64))
        if total <= 0:
            return
        centre = (np.einsum("i,ij->j", counts, rows) / rows.dtype.type(total)).astype(rows.dtype)
        apart = rows - centre
        error = np.einsum("i,ij->j", counts, apart).astype(np.float64) / total  # rounding of the centre
        squares = np.einsum("i,ij->j", counts, np.square(apart, out=apart)).astype(np.float64)
        # Rows are added one by one, so a long sum is off by enough to make a constant feature seem to vary.
        self._add(total, centre + error, np.maximum(squares - total * error**2, 0))

    def _add(self, total: float, mean: npt.NDArray[np.float64], squares: npt.NDArray[np.float64]) -> None:
        if self.weight == 0:
            self.weight, self.mean, self._squares = total, mean, squares
            return
        both = self.weight + total
        shift = mean - self.mean
        self._squares = self._squares + squares + shift**2 * (self.weight * total / both)
        self.mean = self.mean + shift * (total / both)
        self.weight = both

    def as_array(self) -> npt.NDArray[np.float64]:
        """Return the means, and the sums of squared differences from them, as two rows."""
        return np.stack([self.mean, self._squares])

    def merge(self, count: float, rows: npt.NDArray[np.float64]) -> None:
        """Add `count` descriptors of which only ``as_array()`` is known, from values in float32 or coarser."""
        self._rounding = max(self._rounding, 64 * float(np.finfo(np.float32).eps))
        if count > 0:
            self._add(float(count), rows[0].copy(), rows[1].copy())

    def deviation(self) -> npt.NDArray[np.float64]:
        """Return the standard deviation of each feature, or 1 for a feature that varies by no more than rounding."""
        deviation = np.sqrt(self._squares / self.weight)
        constant = deviation <= self._rounding * np.maximum(np.abs(self.mean), 1e-12)
        return np.where(constant, 1.0, deviation)
