"""The exact nearest neighbours of descriptors in a bank, faster than brute force by doing less.

Brute force is one matrix product over all features, and libraries already run it at the processor's full speed. Here
the bank is rotated by PCA once, so that a few leading features (the head) carry most of a distance. Two things are
known of a pair from its head and the lengths of its tails: the distance of the heads, and that the tails are at least
as far apart as their lengths differ. Together they bound the distance from below. A product over the head alone gives
the bound for all pairs; whoever's bound is above the distance to an actual candidate is out. Of the few that remain,
some features more make a sharper bound, and only then are full distances computed. The answer is exact.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import faiss
import numpy as np
import numpy.typing as npt
from threadpoolctl import ThreadpoolController

from .machine import cores

Floats = npt.NDArray[np.float32]
Indices = npt.NDArray[np.int64]

HEAD, MIDDLE = 320, 192  # leading features of a rotation: fewer cost less and exclude less
_PAIRS = 1 << 23  # bounds that one thread holds at once: 32 MB
FEWEST_TO_BOUND = 1536  # a bank with fewer descriptors is searched by brute force


@dataclasses.dataclass(frozen=True)
class Turned:
    """Descriptors, and what the bounds need to know of them.

    Lengths have an entry a descriptor: of the whole of it, squared; of its tail, which is all that the head leaves out;
    and of the rest, which middle and head leave out.
    """

    values: Floats
    head: Floats
    middle: Floats
    whole: Floats
    tail: Floats
    rest: Floats

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, rows: slice) -> Turned:
        return Turned(
            self.values[rows], self.head[rows], self.middle[rows], self.whole[rows], self.tail[rows], self.rest[rows]
        )


class Rotation:
    """Turns descriptors so that their leading features differ most.

    Parameters
    ----------
    sample : array of shape (n, features)
        Descriptors to learn it from.
    head, middle : int
        Leading features of the first and the second bound.
    """

    def __init__(self, sample: Floats, head: int = HEAD, middle: int = MIDDLE) -> None:
        dim = sample.shape[1]
        self.head, self.middle = min(head, dim), min(middle, max(dim - head, 0))
        self.mean = sample.mean(axis=0, dtype=np.float64).astype(np.float32)
        apart = (sample - self.mean).astype(np.float64)
        _, axes = np.linalg.eigh(apart.T @ apart)
        self.axes = np.ascontiguousarray(axes[:, ::-1][:, : self.head + self.middle], dtype=np.float32)

    def __call__(self, values: Floats) -> Turned:
        """Turn descriptors; those that are to be searched in several banks need it once."""
        values = np.ascontiguousarray(values, np.float32)
        apart = values - self.mean
        turned = apart @ self.axes
        head, middle = turned[:, : self.head], np.ascontiguousarray(turned[:, self.head :])
        whole = squares(apart)
        tail = np.maximum(whole - squares(head), 0)
        rest = np.maximum(tail - squares(middle), 0)
        return Turned(values, head, middle, whole, np.sqrt(tail), np.sqrt(rest))


class Bank:
    """Descriptors to be searched.

    Parameters
    ----------
    values : array of shape (n, features)
        The bank, float32 or float16. A float16 bank takes half the memory and is searched by brute force.
    rotation : Rotation, optional
        Shared by the banks of all classes; without it, the search is brute force.
    """

    def __init__(self, values: npt.NDArray[Any], rotation: Rotation | None = None) -> None:
        self.values = np.ascontiguousarray(values)
        self._bounds: _Bounds | None = None
        if rotation is not None and values.dtype == np.float32 and len(values) >= FEWEST_TO_BOUND:
            self._bounds = _Bounds(self.values, rotation)

    def __len__(self) -> int:
        return len(self.values)

    def nearest(self, queries: Floats | Turned, k: int = 1) -> tuple[Floats, Indices]:
        """Find the `k` nearest of the bank for each query.

        Parameters
        ----------
        queries : array of shape (queries, features), or Turned
            Turned by the rotation of this bank before, or not.
        k : int
            Neighbours to find.

        Returns
        -------
        distances : array of shape (queries, k)
            Squared, in rising order.
        indices : array of shape (queries, k)
            Rows of the bank.
        """
        if k > len(self):
            raise ValueError(f"the bank has {len(self)} descriptors, fewer than the {k} neighbours asked for.")
        if self._bounds is None:
            plain = queries.values if isinstance(queries, Turned) else np.ascontiguousarray(queries, np.float32)
            return self._brute_force(plain, k)
        distances = np.empty((len(queries), k), np.float32)
        indices = np.empty((len(queries), k), np.int64)
        size, bounds = max(16, _PAIRS // len(self)), self._bounds

        def work(start: int) -> None:
            rows = slice(start, start + size)
            distances[rows], indices[rows] = bounds.nearest(queries[rows], k)

        on_all_cores(work, range(0, len(queries), size))
        return distances, indices

    def _brute_force(self, queries: Floats, k: int) -> tuple[Floats, Indices]:
        """Keep the best `k` while going through the bank in parts of bounded size.

        faiss computes distances by products, which rounds: it is asked for two more, and distances are computed anew.
        """
        best = np.full((len(queries), 0), np.inf, np.float32)
        indices = np.zeros((len(queries), 0), np.int64)
        for start in range(0, len(self), 1 << 16):
            part = self.values[start : start + (1 << 16)].astype(np.float32, copy=False)
            _, chosen = faiss.knn(queries, part, min(k + 2, len(part)))
            rows = np.repeat(np.arange(len(queries)), chosen.shape[1])
            exact = pair_distances(queries, rows, part, chosen.ravel()).reshape(chosen.shape)
            best, indices = np.hstack([best, exact]), np.hstack([indices, chosen + start])
            order = np.lexsort((indices, best), axis=1)[:, :k]
            best, indices = np.take_along_axis(best, order, 1), np.take_along_axis(indices, order, 1)
        return best, indices


class _Bounds:
    """A float32 bank with its rotated heads: what the search by bounds needs.

    Bounds are computed in float32 and would be a little wrong; so everything is allowed for that rounding could have
    done to them. The length of a tail is what is left of the whole length, and the smaller it is, the less is known of
    it: `_doubt` says how little.
    """

    def __init__(self, values: Floats, rotation: Rotation) -> None:
        self._rotation, self._bank = rotation, rotation(values)
        bank = self._bank
        # One product with [-2 head, -2 tail, 1] of a query gives the bound less the query's own length.
        self._bound = np.concatenate([bank.head, bank.tail[:, None], bank.whole[:, None]], axis=1)
        self._longest = float(bank.whole.max())
        self._most = {"tail": float(bank.tail.max()), "rest": float(bank.rest.max())}
        self._doubts = {
            "tail": float(_doubt(bank.tail, bank.whole).max()),
            "rest": float(_doubt(bank.rest, bank.whole).max()),
        }

    def nearest(self, queries: Floats | Turned, k: int) -> tuple[Floats, Indices]:
        """Find the `k` nearest of the bank for each query."""
        query, bank = queries if isinstance(queries, Turned) else self._rotation(queries), self._bank
        ones = np.ones((len(query), 1), np.float32)
        bound = np.concatenate([-2 * query.head, -2 * query.tail[:, None], ones], axis=1) @ self._bound.T

        # Some that look near are actual candidates: nobody farther than the k-th of them can be an answer.
        first = part_winners(bound, 4 * k)
        rows = np.repeat(np.arange(len(query)), first.shape[1])
        candidates = pair_distances(query.values, rows, bank.values, first.ravel()).reshape(first.shape)
        limit = np.partition(candidates, k - 1, axis=1)[:, k - 1]

        slack = self._slack(query.whole, query.tail, "tail")
        allowed = limit - query.whole + slack
        row, column = np.divmod(np.flatnonzero(bound <= allowed[:, None]), bound.shape[1])
        closer = bound[row, column] + query.whole[row] - np.square(query.tail[row] - bank.tail[column])
        closer += pair_distances(query.middle, row, bank.middle, column)
        closer += np.square(query.rest[row] - bank.rest[column])
        stay = closer <= (limit + slack + self._slack(query.whole, query.rest, "rest"))[row]
        row, column = row[stay], column[stay]
        distance = pair_distances(query.values, row, bank.values, column)

        order = np.lexsort((column, distance, row))
        row, column, distance = row[order], column[order], distance[order]
        picked = np.searchsorted(row, np.arange(len(query)))[:, None] + np.arange(k)
        return distance[picked], column[picked]

    def _slack(self, whole: Floats, length: Floats, part: str) -> Floats:
        """By how much rounding may have raised a bound that uses the lengths of this part."""
        doubt = _doubt(length, whole) + self._doubts[part]
        return np.asarray(4e-6 * (whole + self._longest) + 2 * (length + self._most[part]) * doubt, np.float32)


def squares(values: Floats) -> Floats:
    """Return the squared length of each row."""
    return np.asarray(np.einsum("ij,ij->i", values, values))


def _doubt(length: Floats, whole: Floats) -> Floats:
    """How wrong a length may be whose square was what was left of `whole`."""
    error = 1e-6 * whole
    return np.asarray(error / np.maximum(length, np.sqrt(error) + 1e-30))


def pair_distances(x: Floats, rows: Indices, y: Floats, columns: Indices) -> Floats:
    """Squared distance of each pair ``x[rows[i]], y[columns[i]]``, without copying either."""
    result = np.empty(len(rows), np.float32)
    if len(rows) and x.shape[1]:
        x, y = np.ascontiguousarray(x), np.ascontiguousarray(y)
        rows, columns = np.ascontiguousarray(rows, np.int64), np.ascontiguousarray(columns, np.int64)
        pointers = [faiss.swig_ptr(array) for array in (x, rows, y, columns, result)]
        faiss.pairwise_indexed_L2sqr(x.shape[1], len(rows), *pointers)  # type: ignore[attr-defined]
    else:
        result[:] = 0
    return result


def part_winners(values: npt.NDArray[Any], parts: int) -> Indices:
    """Return the column of the smallest value in each of at least `parts` parts of every row: one pass, no sorting."""
    parts = min(parts, values.shape[1])
    width = values.shape[1] // parts
    whole = values[:, : width * parts].reshape(len(values), parts, width).argmin(axis=2) + np.arange(parts) * width
    if width * parts == values.shape[1]:
        return np.asarray(whole)
    last = values[:, width * parts :].argmin(axis=1) + width * parts
    return np.hstack([whole, last[:, None]])


def on_all_cores(work: Callable[[int], None], items: range) -> None:
    """Run `work` for each item, a core each; libraries inside it keep to that core.

    Two libraries with threads of their own, spinning while they wait for one another, would halve the speed.
    """
    controller, pool = _workers()
    with controller.limit(limits=1, user_api="blas"):
        for _ in pool.map(work, items):
            pass


@functools.cache
def _workers() -> tuple[ThreadpoolController, ThreadPoolExecutor]:
    """Make the threads once; finding the libraries and starting threads takes longer than a small search."""
    return ThreadpoolController(), ThreadPoolExecutor(cores(), "patchvote-search", initializer=_one_thread)


def _one_thread() -> None:
    faiss.omp_set_num_threads(1)  # for the calling thread only
