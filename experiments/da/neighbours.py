"""ClassNeighbours: the nearest descriptor of each class for the descriptors of photos that may belong to a class.

The neighbours of a photo that belongs to a class itself are those in the other photos of the class. From them follow
the distances of photos to classes, and the scatter from which metrics are learned (`metrics`).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from patchvote.voters.search import Bank, Floats, Indices, PcaBank, Rotation, on_all_cores

from .metrics import change_of

_ROWS = 16_384  # descriptors whose differences are held at once


class ClassNeighbours:
    """Nearest descriptors of the classes, for every descriptor of some photos."""

    def __init__(
        self, values: Floats, owner: npt.NDArray[np.int64], classes: int, rotation: Rotation, search: str
    ) -> None:
        self._queries, self._owner, self._rotation, self._search = rotation(values), owner, rotation, search
        self.head = self._queries.head
        self.members = np.full(int(owner[-1]) + 1, -1)
        self._offsets = np.searchsorted(owner, np.arange(len(self.members) + 1))
        self.nearest = np.zeros((classes, len(values)), np.int64)
        self.distances = np.full((classes, len(values)), np.inf, np.float32)

    def update(self, members: npt.NDArray[np.int64]) -> None:
        """Set the classes of the photos, and search the classes whose photos have changed."""
        for number in range(len(self.nearest)):
            if ((self.members == number) != (members == number)).any():
                self._search_class(number, np.flatnonzero(members == number))
        self.members = members.copy()

    def photo_distances(self, metrics: npt.NDArray[np.float64] | None = None) -> npt.NDArray[np.float64]:
        """Return the mean distance of each photo to each class, in these metrics or the Euclidean one."""
        offsets = self._offsets
        distances = self.distances.T if metrics is None else self.distances.T + self._changes(metrics)
        return np.asarray(np.add.reduceat(distances, offsets[:-1], dtype=np.float64) / np.diff(offsets)[:, None])

    def scatter(self, photos: Indices, features: int) -> Floats:
        """Return the scatter of some photos in the leading features, ``(classes, photos, features, features)``."""
        head = self.head[:, :features]
        result = np.empty((len(self.nearest), len(photos), head.shape[1], head.shape[1]), np.float32)

        def add(place: int) -> None:
            rows = slice(*self._offsets[[photos[place], photos[place] + 1]])
            for number, nearest in enumerate(self.nearest):
                apart = head[rows] - head[nearest[rows]]
                result[number, place] = apart.T @ apart / len(apart)

        on_all_cores(add, range(len(photos)))
        return result

    def _changes(self, metrics: npt.NDArray[np.float64]) -> Floats:
        """Return how metrics change the squared distance of every descriptor to every class."""
        head = self.head[:, : metrics.shape[1]]
        changes = np.empty((len(head), len(metrics)), np.float32)

        def add(start: int) -> None:
            rows = slice(start, start + _ROWS)
            for number, nearest in enumerate(self.nearest):
                changes[rows, number] = change_of(head[rows] - head[nearest[rows]], metrics[number])

        on_all_cores(add, range(0, len(head), _ROWS))
        return changes

    def _search_class(self, number: int, photos: Indices) -> None:
        """Find the nearest descriptors of a class, which consists of some photos."""
        rows = np.flatnonzero(np.isin(self._owner, photos))
        values, owner = self._queries.values[rows], self._owner[rows]
        bank = PcaBank(values, self._rotation) if self._search == "pca" else Bank(values)
        near, found = bank.nearest(self._queries) if isinstance(bank, PcaBank) else bank.nearest(self._queries.values)
        self.distances[number], self.nearest[number] = near[:, 0], rows[found[:, 0]]

        def exclude_own(place: int) -> None:
            inside = slice(*self._offsets[[photos[place], photos[place] + 1]])
            own = slice(*np.searchsorted(owner, [photos[place], photos[place] + 1]))
            near, found = _elsewhere(self._queries.values[inside], values, own)
            self.distances[number, inside], self.nearest[number, inside] = near, rows[found]

        on_all_cores(exclude_own, range(len(photos)))


def _elsewhere(queries: Floats, bank: Floats, own: slice) -> tuple[Floats, Indices]:
    """Find the nearest descriptors of a bank outside of some of its rows; infinitely far if there are none."""
    distances, found = np.full(len(queries), np.inf, np.float32), np.zeros(len(queries), np.int64)
    for part in (slice(0, own.start), slice(own.stop, len(bank))):
        if part.start < part.stop:
            near, where = Bank(bank[part]).nearest(queries)
            nearer = near[:, 0] < distances
            distances[nearer], found[nearer] = near[nearer, 0], where[nearer, 0] + part.start
    return distances, found
