"""Exact nearest neighbours of descriptors in a bank, with less computation than brute force.

Brute force is one matrix product over all features, and libraries already run it at the processor's full speed. Here a
cheaper product gives a proven lower bound of every distance (`bounds`). Descriptors whose bound is above the distance
to an actual candidate are excluded, and full distances are computed of the few that remain. The result is exact.
Whether that is faster depends on the data: it is measured on the first queries of a bank, and where too many
descriptors remain, the bank is searched by brute force.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import faiss
import numpy as np
import numpy.typing as npt

from ...utils.machine import cores, one_blas_thread
from .bounds import MOST_FEATURES, Bounds, EvenRotation, Floats, Indices, Turned, pair_distances, squares

_PAIRS = 1 << 20  # bounds that one thread holds at once: 4 MB, which stay in cache
_PART = 1 << 16  # rows of a bank that brute force compares at once
_PROBE = 16  # queries from which the cost of bounds is estimated
FEWEST_TO_BOUND = 1536  # a bank with fewer descriptors is searched by brute force

# Costs per pair, in multiply-adds of the plain product, measured on two processors: a feature of the float32 and of the
# 8-bit product; the passes over the bounds; a pair that is bounded again; a pair whose distance is computed.
_FLOAT32, _INT8, _PASSES, _AGAIN, _DISTANCE = 1.0, 0.42, 160, 5_000, 18_000
_CLEAR = 1e5  # times the rounding error of a product: the relative error of larger distances is below 1e-5
_PAYS = 0.85  # share of the plain product's cost below which bounds are used


class Bank:
    """Descriptors that can be searched.

    Parameters
    ----------
    values : array of shape (n, features)
        Descriptors of the bank. A float16 bank takes half the memory of float32, and is searched by brute force.
    rotation : EvenRotation, optional
        Rotation, shared by the banks of all classes; without it, the search is brute force.

    Attributes
    ----------
    pays : bool or None
        Whether bounds are used; None before the first queries.
    """

    def __init__(self, values: npt.NDArray[Any], rotation: EvenRotation | None = None) -> None:
        self.values = np.ascontiguousarray(values)
        self._bounds: Bounds | None = None
        fits = len(values) >= FEWEST_TO_BOUND and values.shape[1] <= MOST_FEATURES
        if rotation is not None and values.dtype == np.float32 and fits:
            self._bounds = Bounds(self.values, rotation)
        self.pays: bool | None = None if self._bounds is not None else False

    def __len__(self) -> int:
        return len(self.values)

    def nearest(self, queries: Floats | Turned, k: int = 1) -> tuple[Floats, Indices]:
        """Find the `k` nearest descriptors of the bank for each query.

        Parameters
        ----------
        queries : array of shape (queries, features), or Turned
            Queries, rotated by the rotation of this bank or not.
        k : int
            Number of neighbours.

        Returns
        -------
        distances : array of shape (queries, k)
            Squared distances, in ascending order.
        indices : array of shape (queries, k)
            Indices of the neighbours in the bank.
        """
        if k > len(self):
            raise ValueError(f"the bank has {len(self)} descriptors, fewer than the {k} neighbours asked for.")
        if self._bounds is not None and self.pays is not False:
            rotated = queries if isinstance(queries, Turned) else self._bounds.rotation(queries)
            if self.pays is None:
                self.pays = _pays(self._bounds, rotated[:_PROBE], k)
            if self.pays:
                return _by_bounds(self._bounds, rotated, k)
        plain = queries.values if isinstance(queries, Turned) else np.ascontiguousarray(queries, np.float32)
        return self._brute_force(plain, k)

    def _brute_force(self, queries: Floats, k: int) -> tuple[Floats, Indices]:
        """Search the bank in parts of bounded size, and keep the best `k`."""

        def found() -> Iterator[tuple[Floats, Indices]]:
            for start in range(0, len(self), _PART):
                part = self.values[start : start + _PART].astype(np.float32, copy=False)
                distances, chosen = _by_products(queries, part, min(k, len(part)))
                yield distances, chosen + start

        return best_of(found(), len(queries), k)


def best_of(found: Iterable[tuple[Floats, Indices]], queries: int, k: int) -> tuple[Floats, Indices]:
    """Merge the neighbours that were found in parts of a bank, and keep the `k` nearest of each query.

    Of equally near ones, that of the lower index is kept, wherever the bank was cut.
    """
    best, indices = np.full((queries, 0), np.inf, np.float32), np.zeros((queries, 0), np.int64)
    for distances, chosen in found:
        best, indices = np.hstack([best, distances]), np.hstack([indices, chosen])
        order = np.lexsort((indices, best), axis=1)[:, :k]
        best, indices = np.take_along_axis(best, order, 1), np.take_along_axis(indices, order, 1)
    return best, indices


def _by_products(queries: Floats, bank: Floats, k: int) -> tuple[Floats, Indices]:
    """Find the `k` nearest descriptors with faiss, and compute their distances again.

    faiss computes distances from products, which adds rounding errors. Where a distance is so small compared with the
    lengths of its descriptors that rounding could hide a nearer one, two more neighbours are compared.
    """
    rough, chosen = faiss.knn(queries, bank, k)
    lengths = max(float(np.max(squares(values), initial=0.0)) for values in (queries, bank))
    doubtful = rough[:, -1] < _CLEAR * 4 * np.finfo(np.float32).eps * lengths
    distances, chosen = _measured(queries, bank, chosen)
    if doubtful.any():
        _, more = faiss.knn(queries[doubtful], bank, min(k + 2, len(bank)))
        exact, more = _measured(queries[doubtful], bank, more)
        distances[doubtful], chosen[doubtful] = exact[:, :k], more[:, :k]
    return distances, chosen


def _measured(queries: Floats, bank: Floats, chosen: Indices) -> tuple[Floats, Indices]:
    """Compute the distances to chosen descriptors, and sort by them."""
    rows = np.repeat(np.arange(len(queries)), chosen.shape[1])
    distances = pair_distances(queries, rows, bank, chosen.ravel()).reshape(chosen.shape)
    if chosen.shape[1] == 1:
        return distances, chosen
    order = np.lexsort((chosen, distances), axis=1)
    return np.take_along_axis(distances, order, 1), np.take_along_axis(chosen, order, 1)


def _pays(bounds: Bounds, queries: Turned, k: int) -> bool:
    """Estimate from some queries whether bounds cost less than the plain product."""
    _, _, again, full = _nearest(bounds, queries, k)
    pairs = max(1, len(queries)) * len(bounds.bank)
    product = bounds.rotation.head * (_INT8 if bounds.rotation.coarse else _FLOAT32)
    cost = product + _PASSES + (_AGAIN * again + _DISTANCE * full) / pairs
    return bool(cost < _PAYS * queries.values.shape[1])


def _by_bounds(bounds: Bounds, queries: Turned, k: int) -> tuple[Floats, Indices]:
    """Find the `k` nearest descriptors for each query, one block of queries per core."""
    distances = np.empty((len(queries), k), np.float32)
    indices = np.empty((len(queries), k), np.int64)
    size = max(16, _PAIRS // len(bounds.bank))

    def work(start: int) -> None:
        rows = slice(start, start + size)
        distances[rows], indices[rows], _, _ = _nearest(bounds, queries[rows], k)

    on_all_cores(work, range(0, len(queries), size))
    return distances, indices


def _nearest(bounds: Bounds, query: Turned, k: int) -> tuple[Floats, Indices, int, int]:
    """Find the `k` nearest descriptors for a block of queries.

    Returns
    -------
    distances, indices
        Neighbours, as returned by `Bank.nearest`.
    again, full : int
        Number of pairs that were bounded a second time, and of pairs whose distance was computed.
    """
    bank, bound = bounds.bank, bounds.below(query)
    # The distances to some candidates with small bounds: nothing farther than the k-th of them can be a neighbour.
    first = part_winners(bound, 4 * k)
    rows = np.repeat(np.arange(len(query)), first.shape[1])
    candidates = pair_distances(query.values, rows, bank.values, first.ravel()).reshape(first.shape)
    limit = np.partition(candidates, k - 1, axis=1)[:, k - 1]

    allowed = limit - query.whole + bounds.slack(query)
    row, column = np.divmod(np.flatnonzero(bound <= allowed[:, None]), bound.shape[1])
    again = len(row)
    stay = bounds.closer(bound[row, column], query, row, column) <= allowed[row]
    row, column = row[stay], column[stay]
    distance = pair_distances(query.values, row, bank.values, column)

    order = np.lexsort((column, distance, row))
    row, column, distance = row[order], column[order], distance[order]
    picked = np.searchsorted(row, np.arange(len(query)))[:, None] + np.arange(k)
    return distance[picked], column[picked], again, len(row)


def part_winners(values: npt.NDArray[Any], parts: int) -> Indices:
    """Return the column of the smallest value in each of at least `parts` parts of every row, without sorting."""
    parts = min(parts, values.shape[1])
    width = values.shape[1] // parts
    whole = values[:, : width * parts].reshape(len(values), parts, width).argmin(axis=2) + np.arange(parts) * width
    if width * parts == values.shape[1]:
        return np.asarray(whole)
    last = values[:, width * parts :].argmin(axis=1) + width * parts
    return np.hstack([whole, last[:, None]])


def on_all_cores(work: Callable[[int], None], items: range) -> None:
    """Run `work` for each item, one core per item; libraries inside it use one thread.

    Two libraries with their own threads, which spin while they wait for each other, would halve the speed.
    """
    with one_blas_thread():
        for _ in _workers().map(work, items):
            pass


@functools.cache
def _workers() -> ThreadPoolExecutor:
    """Return the threads, started once: that takes longer than a small search."""
    return ThreadPoolExecutor(cores(), "patchvote-search", initializer=_one_thread)


def _one_thread() -> None:
    faiss.omp_set_num_threads(1)  # for the calling thread only
