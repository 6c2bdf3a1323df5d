"""Searches that may miss the nearest neighbour, each by name, each with a measured recall.

A distance that they give is always the true distance to an actual descriptor of the bank; it may not be the nearest.
"""

from __future__ import annotations

from typing import Any

import faiss
import numpy as np
import numpy.typing as npt

from .search import Bank, Floats, Indices, Rotation, Turned, on_all_cores, pair_distances, part_winners

APPROXIMATE = ("pca", "hnsw", "ivf")


class PcaBank:
    """Looks at the leading features of a rotation only, and computes full distances for the few that look nearest.

    How near they look: the distance of the heads is known, and of the tails their lengths. Tails of neighbours point
    neither the same way nor at random, so an angle of 60 degrees between them is assumed (a cosine of a half). On
    Scene-15 patches that finds the nearest in 90 of 100 cases; without the tails it would be 84.

    Parameters
    ----------
    values : array of shape (n, features)
        The bank, float32.
    rotation : Rotation
        Its head is what is looked at.
    candidates : int, default 16
        Descriptors a query whose full distances are computed.
    """

    def __init__(self, values: Floats, rotation: Rotation, candidates: int = 16) -> None:
        self.values, self.rotation, self.candidates = np.ascontiguousarray(values), rotation, candidates
        bank = rotation(self.values)
        # One product with [-2 head, -2 tail, 1] of a query gives the guess less the query's own length.
        guess = np.concatenate([bank.head, bank.tail[:, None] / 2, bank.whole[:, None]], axis=1)
        # Candidates are the best of each part of the bank. In order of image, neighbours would lie in the same part,
        # and all but one of them would be lost.
        self._order = np.random.default_rng(0).permutation(len(self.values))
        self._guess = guess[self._order]

    def __len__(self) -> int:
        return len(self.values)

    def nearest(self, queries: Floats | Turned, k: int = 1) -> tuple[Floats, Indices]:
        """Find `k` near ones for each query; as `Bank.nearest`, but perhaps not the nearest."""
        turned = queries if isinstance(queries, Turned) else self.rotation(queries)
        distances = np.empty((len(queries), k), np.float32)
        indices = np.empty((len(queries), k), np.int64)
        size = max(16, (1 << 22) // len(self))

        def work(start: int) -> None:
            rows = slice(start, start + size)
            part = turned[rows]
            ones = np.ones((len(part), 1), np.float32)
            guess = np.concatenate([-2 * part.head, -2 * part.tail[:, None], ones], axis=1) @ self._guess.T
            chosen = self._order[part_winners(guess, max(k, self.candidates))]
            row = np.repeat(np.arange(len(part)), chosen.shape[1])
            exact = pair_distances(part.values, row, self.values, chosen.ravel()).reshape(chosen.shape)
            order = np.argsort(exact, axis=1)[:, :k]
            distances[rows] = np.take_along_axis(exact, order, 1)
            indices[rows] = np.take_along_axis(chosen, order, 1)

        on_all_cores(work, range(0, len(queries), size))
        return distances, indices


class FaissBank:
    """An index of faiss: "hnsw" (a graph) or "ivf" (lists around k-means centres)."""

    def __init__(self, values: Floats, kind: str) -> None:
        self.values = np.ascontiguousarray(values)
        n, dim = self.values.shape
        if kind == "hnsw":
            self._index: Any = faiss.IndexHNSWFlat(dim, 32)
            self._index.hnsw.efSearch = 64
        else:
            lists = max(1, min(int(np.sqrt(n)), n // 39))  # faiss wants 39 points a list to learn from
            self._index = faiss.IndexIVFFlat(faiss.IndexFlatL2(dim), dim, lists)
            self._index.nprobe = max(1, lists // 8)
            self._index.train(self.values)
        self._index.add(self.values)

    def __len__(self) -> int:
        return len(self.values)

    def nearest(self, queries: Floats | Turned, k: int = 1) -> tuple[Floats, Indices]:
        """Find `k` near ones for each query; as `Bank.nearest`, but perhaps not the nearest."""
        plain = queries.values if isinstance(queries, Turned) else np.ascontiguousarray(queries, np.float32)
        _, found = self._index.search(plain, k)
        found = np.where(found < 0, 0, found)  # faiss says -1 where it found fewer
        row = np.repeat(np.arange(len(plain)), k)
        exact = pair_distances(plain, row, self.values, found.ravel())
        return exact.reshape(found.shape), found


def make_bank(
    values: npt.NDArray[Any], rotation: Rotation | None, how: str, candidates: int = 16
) -> Bank | PcaBank | FaissBank:
    """Make the bank that the search `how` needs: "exact", or one of `APPROXIMATE`; `candidates` is for "pca"."""
    if how == "exact":
        return Bank(values, rotation)
    single = values.astype(np.float32, copy=False)
    if how == "pca" and rotation is not None:
        return PcaBank(single, rotation, candidates)
    return FaissBank(single, how) if how in ("hnsw", "ivf") else Bank(single, rotation)


def recall(bank: Any, queries: Floats, k: int = 1) -> float:
    """Return which share of the `k` nearest neighbours of `queries` is found: as near as the exact search's k-th."""
    exact = Bank(bank.values).nearest(queries, k)[0][:, -1:]
    return float(np.mean(bank.nearest(queries, k)[0] <= exact * (1 + 1e-5) + 1e-12))
