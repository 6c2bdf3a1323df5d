"""Nearest neighbours of descriptors in a bank: exact, with less computation than brute force, or approximate.

Brute force is one matrix product over all features. The exact search computes a cheaper product, which gives a proven
lower bound of every distance (`Bounds`), and full distances only of descriptors that the bounds do not exclude. The
approximate search (`PcaBank`) ranks by estimated distances, and its recall is measured.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Self

import faiss
import numpy as np
import numpy.typing as npt

from ..utils.arrays import MOST_MATRIX, MOST_ROW, int8_product
from ..utils.machine import cores, one_blas_thread

Floats = npt.NDArray[np.float32]
Indices = npt.NDArray[np.int64]
_HEAD, _MIDDLE = 0.95, 0.98  # shares of the squared length in the head, and in head and middle together
_LENGTH, _ROUNDING = 8, 16  # features that hold the length of a query, and the length of a descriptor of the bank
_FEW = 0.3  # share of the features up to which a head is multiplied in floating point, which needs no rounding
_SPARE = 8  # range of integers left for rounding upwards and for errors, in the features that hold lengths
MOST_FEATURES = 8192  # features per descriptor; with more, errors might not fit into an integer
_FLOAT = 4e-6  # relative error of sums of products in float32, with a safety margin
_PAIRS = 1 << 20  # bounds that one thread holds at once: 4 MB, which stay in cache
_PART = 1 << 16  # rows of a bank that brute force compares at once
_PROBE = 16  # queries from which the cost of bounds is estimated
FEWEST_TO_BOUND = 1536  # a bank with fewer descriptors is searched by brute force
# Costs per pair, in multiply-adds of the plain product, measured on two processors: a feature of the float32 and of the
# 8-bit product; the passes over the bounds; a pair that is bounded again; a pair whose distance is computed.
_FLOAT32, _INT8, _PASSES, _AGAIN, _DISTANCE = 1.0, 0.42, 160, 5_000, 18_000
_CLEAR = 1e5  # times the rounding error of a product: the relative error of larger distances is below 1e-5
_PAYS = 0.85  # share of the plain product's cost below which bounds are used
_BLOCK = 1 << 22  # estimated distances per block of queries
_CACHED = 1 << 20  # estimated distances that are computed and read at once: 4 MB, which stay in cache


@dataclasses.dataclass(frozen=True)
class _Descriptors:
    """Descriptors, and what is known of each of them; subclasses add arrays with a row per descriptor."""

    values: Floats

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, rows: slice) -> Self:
        return type(self)(*(getattr(self, field.name)[rows] for field in dataclasses.fields(self)))


@dataclasses.dataclass(frozen=True)
class Turned(_Descriptors):
    """Rotated descriptors and the numbers from which bounds are computed."""

    even: Floats
    middle: Floats
    whole: Floats
    tail: Floats
    rest: Floats


class EvenRotation:
    """Rotates descriptors for the bounds; shared by the banks of all classes."""

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


def _rounded(values: Floats, most: int, shares: int) -> tuple[Floats, Floats, Floats, Floats]:
    """Round descriptors to integers up to `most`, so coarsely that `shares` integers can hold their length, too.

    Returns the integers and, as columns, their scale, the length of the rounding error, and their length.
    """
    length = np.sqrt(squares(values)) * np.float32(1 + _FLOAT)
    largest = np.abs(values).max(axis=1, initial=0)
    step = np.maximum(np.maximum(largest / most, length / shares / (most - _SPARE)), 1e-30)
    whole = np.rint(values / step[:, None])
    error = np.sqrt(squares(values - whole * step[:, None])) + np.float32(_FLOAT) * length
    return whole, step[:, None], error[:, None], length[:, None]


class Bounds:
    """Bounds of the distances to the descriptors of one bank."""

    def __init__(self, values: Floats, rotation: EvenRotation) -> None:
        self.rotation, self.bank = rotation, rotation(values)
        if rotation.coarse:
            self._round()

    def _round(self) -> None:
        whole, step, error, length = _rounded(self.bank.even, MOST_MATRIX, _ROUNDING)
        lengths, errors = np.ceil((length + error) / step / _ROUNDING), np.ceil(error / step)
        columns = [whole, np.repeat(lengths, _ROUNDING, axis=1), np.repeat(errors, _LENGTH, axis=1)]
        self._product = int8_product(np.minimum(np.hstack(columns), MOST_MATRIX))
        self._step = -2 * step[:, 0]

    def below(self, query: Turned) -> Floats:
        """Return lower bounds of the squared distances minus the query's squared length, ``(queries, bank)``."""
        if not self.rotation.coarse:
            bound = np.asarray((-2 * query.even) @ self.bank.even.T)
            bound += self.bank.whole
            return bound
        whole, step, error, length = _rounded(query.even, MOST_ROW, _LENGTH)
        errors, lengths = np.ceil(error / step), np.ceil(length / step / _LENGTH)
        rows = np.hstack([whole, np.repeat(errors, _ROUNDING, axis=1), np.repeat(lengths, _LENGTH, axis=1)])
        bound = np.multiply(self._product(np.minimum(rows, MOST_ROW)), self._step, dtype=np.float32)
        bound *= step
        bound += self.bank.whole
        return bound

    def closer(self, bound: Floats, query: Turned, rows: Indices, columns: Indices) -> Floats:
        """Return sharper bounds of some pairs, from the bounds of `below`."""
        bank = self.bank
        products = _pairwise("inner_product", query.middle, rows, bank.middle, columns)
        both = products + query.rest[rows] * bank.rest[columns]
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
    return _pairwise("L2sqr", x, rows, y, columns)


def _pairwise(measure: str, x: Floats, rows: Indices, y: Floats, columns: Indices) -> Floats:
    result = np.zeros(len(rows), np.float32)
    if len(rows) and x.shape[1]:
        x, y = np.ascontiguousarray(x), np.ascontiguousarray(y)
        rows, columns = np.ascontiguousarray(rows, np.int64), np.ascontiguousarray(columns, np.int64)
        pointers = [faiss.swig_ptr(array) for array in (x, rows, y, columns, result)]
        getattr(faiss, f"pairwise_indexed_{measure}")(x.shape[1], len(rows), *pointers)
    return result


def _whole_blocks(share: npt.NDArray[np.float64], wanted: float) -> int:
    """Return how many leading features hold the wanted share, rounded up to a multiple of 32 if there are so many."""
    return min(len(share), -(-(int(np.searchsorted(share, wanted)) + 1) // 32) * 32)


class Bank:
    """Descriptors that can be searched."""

    def __init__(self, values: Floats, rotation: EvenRotation | None = None) -> None:
        self.values = np.ascontiguousarray(values)
        self._bounds: Bounds | None = None
        fits = len(values) >= FEWEST_TO_BOUND and values.shape[1] <= MOST_FEATURES
        if rotation is not None and fits:
            self._bounds = Bounds(self.values, rotation)
        self.pays: bool | None = None if self._bounds is not None else False

    def __len__(self) -> int:
        return len(self.values)

    def nearest(self, queries: Floats | Turned, k: int = 1) -> tuple[Floats, Indices]:
        """Find the `k` nearest descriptors of the bank for each query."""
        if self._bounds is not None and self.pays is not False:
            rotated = queries if isinstance(queries, Turned) else self._bounds.rotation(queries)
            if self.pays is None:
                self.pays = _pays(self._bounds, rotated[:_PROBE], k)
            if self.pays:
                return _by_bounds(self._bounds, rotated, k)
        plain = queries.values if isinstance(queries, Turned) else np.ascontiguousarray(queries, np.float32)
        return _in_parts((self.values[start : start + _PART] for start in range(0, len(self), _PART)), plain, k)


def _in_parts(parts: Iterable[Floats], queries: Floats, k: int) -> tuple[Floats, Indices]:
    """Search the parts of a bank one after the other by brute force, and keep the best `k`."""

    def found() -> Iterator[tuple[Floats, Indices]]:
        start = 0
        for part in parts:
            distances, chosen = _by_products(queries, part, min(k, len(part)))
            yield distances, chosen + start
            start += len(part)
            del part  # before the next one is read

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
    """Find the `k` nearest descriptors for a block of queries."""
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


@dataclasses.dataclass(frozen=True)
class Headed(_Descriptors):
    """Descriptors, their leading features (the head), their squared lengths, and the lengths of the other features."""

    head: Floats
    whole: Floats
    tail: Floats


class Rotation:
    """Rotates descriptors so that their leading features have the largest variance."""

    def __init__(self, sample: Floats, head: int) -> None:
        self.mean, axes, _ = principal_axes(sample)
        self.axes = np.ascontiguousarray(axes[:, :head], dtype=np.float32)

    def __call__(self, values: Floats) -> Headed:
        """Rotate descriptors; queries for several banks are rotated once."""
        values = np.ascontiguousarray(values, np.float32)
        apart: Floats = values - self.mean
        head: Floats = apart @ self.axes
        whole = squares(apart)
        return Headed(values, head, whole, np.sqrt(np.maximum(whole - squares(head), 0)))


class PcaBank:
    """Estimates distances from the leading features of a rotation, and computes full distances of the best candidates.

    The estimate uses the distance of the heads and the lengths of the tails. Tails of neighbours are neither parallel
    nor independent, so an angle of 60 degrees between them is assumed (a cosine of 0.5). On Scene-15 patches this finds
    the nearest neighbour in 90 of 100 cases; without the tails it would be 84.

    The products of heads are computed in 8-bit integers, three times faster than in floating point. Their rounding
    error is small compared with that of the assumed angle.
    """

    def __init__(self, values: Floats, rotation: Rotation, candidates: int = 16) -> None:
        self.values, self.rotation, self.candidates = np.ascontiguousarray(values), rotation, candidates
        bank = rotation(self.values)
        # Candidates are the best of each part of the bank. In the order of the images, neighbours would be in the same
        # part, and all but one of them would be lost.
        self._order = np.random.default_rng(0).permutation(len(self.values))
        near = np.concatenate([bank.head, bank.tail[:, None] / 2], axis=1)[self._order]
        whole = bank.whole[self._order]
        # The product of a query's [head, tail] with `near`, minus half of `whole`, falls as the estimate rises.
        self._products = _Products(-near, (whole - whole.mean()) / 2)

    def __len__(self) -> int:
        return len(self.values)

    def nearest(self, queries: Floats | Headed, k: int = 1) -> tuple[Floats, Indices]:
        """Find `k` near descriptors for each query; as `Bank.nearest`, but maybe not the nearest."""
        rotated = queries if isinstance(queries, Headed) else self.rotation(queries)
        distances = np.empty((len(queries), k), np.float32)
        indices = np.empty((len(queries), k), np.int64)
        size, inner = max(16, _BLOCK // len(self)), max(16, _CACHED // len(self))

        def work(start: int) -> None:
            rows = slice(start, start + size)
            part = rotated[rows]
            whole = self._products.round(np.concatenate([part.head, part.tail[:, None]], axis=1))
            winners = [
                part_winners(self._products(whole[first : first + inner]), max(k, self.candidates))
                for first in range(0, len(part), inner)
            ]
            chosen = self._order[np.concatenate(winners)]
            row = np.repeat(np.arange(len(part)), chosen.shape[1])
            exact = pair_distances(part.values, row, self.values, chosen.ravel()).reshape(chosen.shape)
            order = np.argsort(exact, axis=1)[:, :k]
            distances[rows] = np.take_along_axis(exact, order, 1)
            indices[rows] = np.take_along_axis(chosen, order, 1)

        on_all_cores(work, range(0, len(queries), size))
        return distances, indices


class _Products:
    """``rows @ matrix.T + added`` in integers; each row has its own scale, so values are comparable within a row."""

    def __init__(self, matrix: Floats, added: Floats) -> None:
        step = max(float(np.abs(matrix).max()), 1e-30) / MOST_MATRIX
        self._unit = max(float(np.median(np.abs(matrix).max(axis=1))), 1e-30)
        # `added` is stored in columns that every row multiplies by `unit`: as many as its largest number needs.
        steps = np.rint(added / (self._unit * step)).astype(np.int64)
        self._columns = max(1, int(np.ceil(np.abs(steps).max() / MOST_MATRIX)))
        shares = (steps[:, None] + np.arange(self._columns)) // self._columns  # their sum is exactly `steps`
        self._product = int8_product(np.hstack([np.rint(matrix / step), shares]))

    def round(self, rows: Floats) -> Floats:
        """Round rows to the integers that are multiplied."""
        # `unit` becomes an exact integer: rounding it would favour or penalise all long descriptors at once.
        largest = np.maximum(np.abs(rows).max(axis=1, keepdims=True), self._unit)
        unit = np.maximum(np.floor(MOST_ROW * self._unit / largest), 1)
        whole = np.clip(np.rint(rows * (unit / self._unit)), -MOST_ROW, MOST_ROW)
        return np.hstack([whole, np.repeat(unit, self._columns, axis=1)])

    def __call__(self, rows: Floats) -> npt.NDArray[np.int32]:
        return self._product(rows)


class BankInParts:
    """A bank on disk of which one part at a time is in memory; `parts` reads them, for every search anew."""

    def __init__(self, length: int, parts: Callable[[], Iterable[Floats]]) -> None:
        self._length, self._parts = length, parts

    def __len__(self) -> int:
        return self._length

    def nearest(self, queries: Any, k: int = 1) -> tuple[Floats, Indices]:
        """Find the `k` nearest descriptors for each query; see `Bank.nearest`."""
        return _in_parts(self._parts(), np.ascontiguousarray(queries, np.float32), k)


def recall(bank: PcaBank, exact: Bank, queries: Floats, k: int = 1) -> float:
    """Return the share of neighbours of `queries` that are as near as the k-th nearest of the exact search."""
    farthest = exact.nearest(queries, k)[0][:, -1:]
    return float(np.mean(bank.nearest(queries, k)[0] <= farthest * (1 + 1e-5) + 1e-12))
