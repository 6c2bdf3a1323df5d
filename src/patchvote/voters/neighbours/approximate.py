"""Approximate searches, which may miss the nearest neighbour; their recall is measured.

A distance that they return is always the true distance to a descriptor of the bank, but maybe not to the nearest one.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import faiss
import numpy as np
import numpy.typing as npt

from ...utils.int8 import MOST_MATRIX, MOST_ROW, int8_product
from .bounds import EvenRotation, Floats, Indices, pair_distances, principal_axes, squares
from .exact import Bank, on_all_cores, part_winners
from .in_parts import BankInParts

APPROXIMATE = ("pca", "hnsw", "ivf")
_BLOCK = 1 << 22  # estimated distances per block of queries
_CACHED = 1 << 20  # estimated distances that are computed and read at once: 4 MB, which stay in cache


@dataclasses.dataclass(frozen=True)
class Headed:
    """Descriptors, their leading features (the head), their squared lengths, and the lengths of the other features."""

    values: Floats
    head: Floats
    whole: Floats
    tail: Floats

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, rows: slice) -> Headed:
        return Headed(self.values[rows], self.head[rows], self.whole[rows], self.tail[rows])


class Rotation:
    """Rotates descriptors so that their leading features have the largest variance.

    Parameters
    ----------
    sample : array of shape (n, features)
        Descriptors from which the rotation is learned.
    head : int
        Number of leading features that the search uses.
    """

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

    Parameters
    ----------
    values : array of shape (n, features)
        Descriptors of the bank, float32.
    rotation : Rotation
        Rotation whose leading features are used.
    candidates : int, default 16
        Number of descriptors per query whose full distances are computed.
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


class FaissBank:
    """A faiss index: "hnsw" (a graph) or "ivf" (lists around k-means centres)."""

    def __init__(self, values: Floats, kind: str) -> None:
        self.values = np.ascontiguousarray(values)
        n, dim = self.values.shape
        if kind == "hnsw":
            self._index: Any = faiss.IndexHNSWFlat(dim, 32)
            self._index.hnsw.efSearch = 64
        else:
            lists = max(1, min(int(np.sqrt(n)), n // 39))  # faiss recommends 39 training points per list
            self._index = faiss.IndexIVFFlat(faiss.IndexFlatL2(dim), dim, lists)
            self._index.nprobe = max(1, lists // 8)
            self._index.train(self.values)
        self._index.add(self.values)

    def __len__(self) -> int:
        return len(self.values)

    def nearest(self, queries: Floats | Headed, k: int = 1) -> tuple[Floats, Indices]:
        """Find `k` near descriptors for each query; as `Bank.nearest`, but maybe not the nearest."""
        plain = queries.values if isinstance(queries, Headed) else np.ascontiguousarray(queries, np.float32)
        _, indices = self._index.search(plain, k)
        incomplete = (indices < 0).any(axis=1)  # faiss returns -1 for neighbours that it did not find
        if incomplete.any():
            indices[incomplete] = Bank(self.values).nearest(plain[incomplete], k)[1]
        row = np.repeat(np.arange(len(plain)), k)
        distances = pair_distances(plain, row, self.values, indices.ravel()).reshape(indices.shape)
        order = np.argsort(distances, axis=1, kind="stable")
        return np.take_along_axis(distances, order, 1), np.take_along_axis(indices, order, 1)


def make_bank(
    values: npt.NDArray[Any], rotation: Rotation | EvenRotation | None, how: str, candidates: int = 16
) -> Bank | PcaBank | FaissBank:
    """Return the bank for the search `how`: "exact", or one of `APPROXIMATE`; `candidates` is used by "pca"."""
    if how == "exact":
        return Bank(values, rotation if isinstance(rotation, EvenRotation) else None)
    single = values.astype(np.float32, copy=False)
    if how == "pca" and isinstance(rotation, Rotation):
        return PcaBank(single, rotation, candidates)
    return FaissBank(single, how) if how in ("hnsw", "ivf") else Bank(single)


def recall(bank: Any, queries: Floats, k: int = 1) -> float:
    """Return the share of neighbours of `queries` that are as near as the k-th nearest of the exact search."""
    whole = bank.exact() if isinstance(bank, BankInParts) else Bank(bank.values)
    exact = whole.nearest(queries, k)[0][:, -1:]
    return float(np.mean(bank.nearest(queries, k)[0] <= exact * (1 + 1e-5) + 1e-12))
