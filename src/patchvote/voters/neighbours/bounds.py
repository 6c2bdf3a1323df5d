"""Proven bounds of distances, which cost a fraction of the distances.

The inner product of two descriptors q and x is bounded from above by a product in 8-bit integers:

- PCA concentrates every descriptor in its leading features, the head. Of the rest, the tail, only the length is
  kept: ``<q, x> <= <head q, head x> + |tail q| |tail x|``. So ``[head, |tail|]`` is a descriptor of fewer features and
  of the same length whose inner products are never too small.
- A random rotation of it gives all features a similar scale, so that few bits suffice for each of them.
- Rounding ``q = s_q Q + e_q`` and ``x = s_x X + e_x`` to integers Q and X changes the inner product by at most
  ``|e_q| |s_x X| + |q| |e_x|``. Both terms are products of a number of q and a number of x, so they become further
  features of the same integer product, rounded upwards.

A descriptor whose bound is above the distance to an actual candidate is not the nearest. For the few that remain, the
next features of the PCA, the middle, replace most of the tail and give a sharper bound. The bounds hold for any
descriptors; only the number that remains depends on the data.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import faiss
import numpy as np
import numpy.typing as npt

from ...utils.int8 import MOST_MATRIX, MOST_ROW, int8_product

Floats = npt.NDArray[np.float32]
Indices = npt.NDArray[np.int64]

_HEAD, _MIDDLE = 0.95, 0.98  # shares of the squared length in the head, and in head and middle together
_LENGTH, _ROUNDING = 8, 16  # features that hold the length of a query, and the length of a descriptor of the bank
_FEW = 0.3  # share of the features up to which a head is multiplied in floating point, which needs no rounding
_SPARE = 8  # range of integers left for rounding upwards and for errors, in the features that hold lengths
MOST_FEATURES = 8192  # features per descriptor; with more, errors might not fit into an integer
_FLOAT = 4e-6  # relative error of sums of products in float32, with a safety margin


@dataclasses.dataclass(frozen=True)
class Turned:
    """Rotated descriptors and the numbers from which bounds are computed; one row per descriptor.

    Attributes
    ----------
    values : array of shape (n, features)
        The descriptors.
    even : array of shape (n, head + 1)
        Head and length of the tail, rotated so that all features have a similar scale.
    middle : array of shape (n, middle)
        Features that follow the head.
    whole : array of shape (n,)
        Squared distance from the mean.
    tail, rest : arrays of shape (n,)
        Lengths of the features without the head, and without head and middle.
    """

    values: Floats
    even: Floats
    middle: Floats
    whole: Floats
    tail: Floats
    rest: Floats

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, rows: slice) -> Turned:
        return Turned(*(getattr(self, field.name)[rows] for field in dataclasses.fields(self)))


class EvenRotation:
    """Rotates descriptors for the bounds; shared by the banks of all classes.

    Parameters
    ----------
    sample : array of shape (n, features)
        Descriptors from which the PCA is learned.

    Attributes
    ----------
    head, middle : int
        Number of features of the first bound, and of those that the second one adds.
    coarse : bool
        Whether products of heads are computed in integers.
    """

    def __init__(self, sample: Floats) -> None:
        self.mean, axes, energy = principal_axes(sample)
        share = np.cumsum(energy) / max(float(energy.sum()), 1e-30)
        self.head = _whole_blocks(share, _HEAD)
        self.middle = _whole_blocks(share, _MIDDLE) - self.head
        self.coarse = self.head > _FEW * len(energy)
        even = np.linalg.qr(np.random.default_rng(0).standard_normal((self.head + 1, self.head + 1)))[0]
        self._tail = even[:, -1].astype(np.float32)
        columns = np.hstack([axes[:, : self.head] @ even[:, :-1].T, axes[:, self.head : self.head + self.middle]])
        self._axes = np.ascontiguousarray(columns, np.float32)

    def __call__(self, values: Floats) -> Turned:
        """Rotate descriptors; queries for several banks are rotated once."""
        values = np.ascontiguousarray(values, np.float32)
        apart: Floats = values - self.mean
        rotated: Floats = apart @ self._axes
        even, middle = rotated[:, : self.head + 1], np.ascontiguousarray(rotated[:, self.head + 1 :])
        whole = squares(apart)
        # The smaller a length that is computed as a difference, the larger its relative error. Too large is safe: the
        # bound becomes less sharp, never wrong.
        tail = np.sqrt(np.maximum(whole - squares(even), 0) + _FLOAT * whole)
        rest = np.minimum(np.sqrt(np.maximum(np.square(tail) - squares(middle), 0) + _FLOAT * whole), tail)
        return Turned(values, even + tail[:, None] * self._tail, middle, whole, tail, rest)


@dataclasses.dataclass(frozen=True)
class _Rounded:
    """Descriptors in integers, with their scale, the length of the rounding error, and their length."""

    whole: Floats
    step: Floats
    error: Floats
    length: Floats


def _rounded(values: Floats, most: int, shares: int) -> _Rounded:
    """Round descriptors to integers up to `most`, so coarsely that `shares` integers can hold their length, too."""
    length = np.sqrt(squares(values)) * np.float32(1 + _FLOAT)
    largest = np.abs(values).max(axis=1, initial=0)
    step = np.maximum(np.maximum(largest / most, length / shares / (most - _SPARE)), 1e-30)
    whole = np.rint(values / step[:, None])
    error = np.sqrt(squares(values - whole * step[:, None])) + np.float32(_FLOAT) * length
    return _Rounded(whole, step, error, length)


class Bounds:
    """Bounds of the distances to the descriptors of one bank.

    Parameters
    ----------
    values : array of shape (n, features)
        Descriptors of the bank, float32.
    rotation : EvenRotation
        Rotation, shared by the banks of all classes.
    """

    def __init__(self, values: Floats, rotation: EvenRotation) -> None:
        self.rotation, self.bank = rotation, rotation(values)
        if rotation.coarse:
            self._round()

    def _round(self) -> None:
        """Round the bank to integers."""
        rounded = _rounded(self.bank.even, MOST_MATRIX, _ROUNDING)
        step = rounded.step[:, None]
        lengths = np.ceil((rounded.length + rounded.error)[:, None] / step / _ROUNDING)
        errors = np.ceil(rounded.error[:, None] / step)
        columns = [rounded.whole, np.repeat(lengths, _ROUNDING, axis=1), np.repeat(errors, _LENGTH, axis=1)]
        self._product = int8_product(np.minimum(np.hstack(columns), MOST_MATRIX))
        self._step = -2 * rounded.step

    def below(self, query: Turned) -> Floats:
        """Return lower bounds of the squared distances minus the query's squared length, ``(queries, bank)``."""
        if not self.rotation.coarse:
            bound = np.asarray((-2 * query.even) @ self.bank.even.T)
            bound += self.bank.whole
            return bound
        rounded = _rounded(query.even, MOST_ROW, _LENGTH)
        step = rounded.step[:, None]
        errors = np.ceil(rounded.error[:, None] / step)
        lengths = np.ceil(rounded.length[:, None] / step / _LENGTH)
        rows = np.hstack([rounded.whole, np.repeat(errors, _ROUNDING, axis=1), np.repeat(lengths, _LENGTH, axis=1)])
        bound = np.multiply(self._product(np.minimum(rows, MOST_ROW)), self._step, dtype=np.float32)
        bound *= step
        bound += self.bank.whole
        return bound

    def closer(self, bound: Floats, query: Turned, rows: Indices, columns: Indices) -> Floats:
        """Return sharper bounds of some pairs, from the bounds of `below`."""
        bank = self.bank
        both = _pair_products(query.middle, rows, bank.middle, columns) + query.rest[rows] * bank.rest[columns]
        return np.asarray(bound + 2 * (query.tail[rows] * bank.tail[columns] - both), np.float32)

    def slack(self, query: Turned) -> Floats:
        """Return the most by which rounding in float32 may have raised the bounds of each query."""
        return np.asarray(4 * _FLOAT * (query.whole + float(self.bank.whole.max())), np.float32)


def principal_axes(sample: Floats) -> tuple[Floats, npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Return the mean of a sample, its principal axes as columns, and the energy along each, largest first."""
    mean = sample.mean(axis=0, dtype=np.float64).astype(np.float32)
    apart: Floats = sample - mean
    energy, axes = np.linalg.eigh((apart.T @ apart).astype(np.float64))
    return mean, axes[:, ::-1], np.maximum(energy[::-1], 0)


def squares(values: Floats) -> Floats:
    """Return the squared length of each row."""
    return np.asarray(np.einsum("ij,ij->i", values, values))


def pair_distances(x: Floats, rows: Indices, y: Floats, columns: Indices) -> Floats:
    """Return the squared distance of each pair ``x[rows[i]], y[columns[i]]``, without copying rows."""
    return _pairwise(faiss.pairwise_indexed_L2sqr, x, rows, y, columns)  # type: ignore[attr-defined]


def _pair_products(x: Floats, rows: Indices, y: Floats, columns: Indices) -> Floats:
    """Return the inner product of each pair."""
    return _pairwise(faiss.pairwise_indexed_inner_product, x, rows, y, columns)  # type: ignore[attr-defined]


def _pairwise(function: Any, x: Floats, rows: Indices, y: Floats, columns: Indices) -> Floats:
    result = np.zeros(len(rows), np.float32)
    if len(rows) and x.shape[1]:
        x, y = np.ascontiguousarray(x), np.ascontiguousarray(y)
        rows, columns = np.ascontiguousarray(rows, np.int64), np.ascontiguousarray(columns, np.int64)
        pointers = [faiss.swig_ptr(array) for array in (x, rows, y, columns, result)]
        function(x.shape[1], len(rows), *pointers)
    return result


def _whole_blocks(share: npt.NDArray[np.float64], wanted: float) -> int:
    """Return how many leading features hold the wanted share, rounded up to a multiple of 32 if there are so many."""
    return min(len(share), -(-(int(np.searchsorted(share, wanted)) + 1) // 32) * 32)
