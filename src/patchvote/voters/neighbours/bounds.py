"""Bounds of distances that cost a fraction of the distances, and are proven.

The inner product of two descriptors q and x is bounded from above by a product in 8-bit whole numbers:

- PCA brings most of every descriptor into its leading features, the head. Of the rest, the tail, only the length is
  kept: ``<q, x> <= <head q, head x> + |tail q| |tail x|``. So ``[head, |tail|]`` is a descriptor of fewer features and
  of the same length whose inner products are never too small.
- A random rotation of it makes all features alike, so that few bits describe each of them well.
- Rounding ``q = s_q Q + e_q`` and ``x = s_x X + e_x`` to whole numbers Q and X changes the inner product by at most
  ``|e_q| |s_x X| + |q| |e_x|``. Both terms are products of a number of q and a number of x, so they stand as further
  features in the same whole-numbered product, rounded upwards.

Whoever's bound is above the distance to an actual candidate is not the nearest. For the few that remain, the next
features of the PCA, the middle, replace most of the tail and give a sharper bound. Nothing in this depends on what the
descriptors are like; only how many remain does.
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

_HEAD, _MIDDLE = 0.94, 0.985  # shares of the squared length that head, and head and middle, hold
_LENGTH, _ROUNDING = 8, 16  # features that carry the length of a query, and the length of a descriptor of the bank
_FEW = 0.3  # of the features: a head of no more of them is multiplied in floating point, which rounds nothing
_SPARE = 8  # whole numbers left for rounding upwards and for errors, in the features that carry lengths
MOST_FEATURES = 8192  # with more, errors might not fit into a whole number
_FLOAT = 4e-6  # relative error of sums of products in float32, with room to spare


@dataclasses.dataclass(frozen=True)
class Turned:
    """Descriptors and what their bounds are made of; one row per descriptor.

    Attributes
    ----------
    values : array of shape (n, features)
        The descriptors.
    even : array of shape (n, head + 1)
        Head and length of the tail, rotated so that all features are alike.
    middle : array of shape (n, middle)
        The features that follow the head.
    whole : array of shape (n,)
        Squared length, from the mean on.
    tail, rest : arrays of shape (n,)
        Length of what the head leaves out, and of what head and middle leave out.
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
    """Turns descriptors into what bounds are made of; shared by the banks of all classes.

    Parameters
    ----------
    sample : array of shape (n, features)
        Descriptors to learn the PCA from.

    Attributes
    ----------
    head, middle : int
        Features of the first bound, and those that the second one adds.
    coarse : bool
        Whether products of heads are taken in whole numbers.
    """

    def __init__(self, sample: Floats) -> None:
        self.mean, axes, energy = principal_axes(sample)
        share = np.cumsum(energy) / max(float(energy.sum()), 1e-30)
        self.head = _whole_blocks(share, _HEAD)
        self.middle = _whole_blocks(share, _MIDDLE) - self.head
        self.coarse = self.head > _FEW * len(energy)
        even = np.linalg.qr(np.random.default_rng(0).standard_normal((self.head + 1, self.head + 1)))[0]
        self._tail = even[:, -1].astype(np.float32)
        turned = np.hstack([axes[:, : self.head] @ even[:, :-1].T, axes[:, self.head : self.head + self.middle]])
        self._axes = np.ascontiguousarray(turned, np.float32)

    def __call__(self, values: Floats) -> Turned:
        """Turn descriptors; those that are to be searched in several banks need it once."""
        values = np.ascontiguousarray(values, np.float32)
        apart: Floats = values - self.mean
        turned: Floats = apart @ self._axes
        even, middle = turned[:, : self.head + 1], np.ascontiguousarray(turned[:, self.head + 1 :])
        whole = squares(apart)
        # A length that is what is left of another is known the less the smaller it is. Too large is safe: the bound
        # becomes less sharp, never wrong.
        tail = np.sqrt(np.maximum(whole - squares(even), 0) + _FLOAT * whole)
        rest = np.minimum(np.sqrt(np.maximum(np.square(tail) - squares(middle), 0) + _FLOAT * whole), tail)
        return Turned(values, even + tail[:, None] * self._tail, middle, whole, tail, rest)


@dataclasses.dataclass(frozen=True)
class _Rounded:
    """Descriptors in whole numbers: what they are multiplied by, and the lengths of what was rounded away."""

    whole: Floats
    step: Floats
    error: Floats
    length: Floats


def _rounded(values: Floats, most: int, shares: int) -> _Rounded:
    """Round descriptors to whole numbers up to `most`, so coarsely that `shares` of them can hold their length, too."""
    length = np.sqrt(squares(values)) * np.float32(1 + _FLOAT)
    largest = np.abs(values).max(axis=1, initial=0)
    step = np.maximum(np.maximum(largest / most, length / shares / (most - _SPARE)), 1e-30)
    whole = np.rint(values / step[:, None])
    error = np.sqrt(squares(values - whole * step[:, None])) + np.float32(_FLOAT) * length
    return _Rounded(whole, step, error, length)


class Bounds:
    """The descriptors of one bank, ready to be bounded.

    Parameters
    ----------
    values : array of shape (n, features)
        The bank, float32.
    rotation : EvenRotation
        Shared by the banks of all classes.
    """

    def __init__(self, values: Floats, rotation: EvenRotation) -> None:
        self.rotation, self.bank = rotation, rotation(values)
        if rotation.coarse:
            self._round()

    def _round(self) -> None:
        """Bring the bank to whole numbers."""
        rounded = _rounded(self.bank.even, MOST_MATRIX, _ROUNDING)
        step = rounded.step[:, None]
        lengths = np.ceil((rounded.length + rounded.error)[:, None] / step / _ROUNDING)
        errors = np.ceil(rounded.error[:, None] / step)
        columns = [rounded.whole, np.repeat(lengths, _ROUNDING, axis=1), np.repeat(errors, _LENGTH, axis=1)]
        self._product = int8_product(np.minimum(np.hstack(columns), MOST_MATRIX))
        self._step = rounded.step

    def below(self, query: Turned) -> Floats:
        """Return lower bounds of the squared distances, less the query's own squared length, ``(queries, bank)``."""
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
        bound *= -2 * step
        bound += self.bank.whole
        return bound

    def closer(self, bound: Floats, query: Turned, rows: Indices, columns: Indices) -> Floats:
        """Return sharper bounds of some pairs, from those that `below` gave them."""
        bank = self.bank
        both = _pair_products(query.middle, rows, bank.middle, columns) + query.rest[rows] * bank.rest[columns]
        return np.asarray(bound + 2 * (query.tail[rows] * bank.tail[columns] - both), np.float32)

    def slack(self, query: Turned) -> Floats:
        """Return by how much the rounding of float32 may have raised the bounds of each query."""
        return np.asarray(4 * _FLOAT * (query.whole + float(self.bank.whole.max())), np.float32)


def principal_axes(sample: Floats) -> tuple[Floats, npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Return the mean of a sample, its principal axes as columns, and the energy along each, the largest first."""
    mean = sample.mean(axis=0, dtype=np.float64).astype(np.float32)
    apart: Floats = sample - mean
    energy, axes = np.linalg.eigh((apart.T @ apart).astype(np.float64))
    return mean, axes[:, ::-1], np.maximum(energy[::-1], 0)


def squares(values: Floats) -> Floats:
    """Return the squared length of each row."""
    return np.asarray(np.einsum("ij,ij->i", values, values))


def pair_distances(x: Floats, rows: Indices, y: Floats, columns: Indices) -> Floats:
    """Squared distance of each pair ``x[rows[i]], y[columns[i]]``, without copying either."""
    return _pairwise(faiss.pairwise_indexed_L2sqr, x, rows, y, columns)  # type: ignore[attr-defined]


def _pair_products(x: Floats, rows: Indices, y: Floats, columns: Indices) -> Floats:
    """Inner product of each pair."""
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
    """Return how many leading features hold the wanted share, a multiple of 32 as far as there are so many."""
    return min(len(share), -(-(int(np.searchsorted(share, wanted)) + 1) // 32) * 32)
