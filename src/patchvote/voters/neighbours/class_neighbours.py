"""ClassNeighbours: the nearest descriptor of each class, kept up to date while photos enter and leave the classes.

A search among all photos is the costly part of image-to-class distances. When photos enter a class, only they are
searched; when photos leave, only the descriptors whose neighbour they held are searched again. The neighbours of a
photo that belongs to a class itself are those in the other photos of the class.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from .approximate import Headed, PcaBank, Rotation, make_bank
from .bounds import Floats, Indices
from .exact import Bank, on_all_cores
from .image_to_class import change_of

_ROWS_PER_CANDIDATE = 256  # descriptors of a bank per candidate of the search "pca": small banks need fewer
_FEWEST_CANDIDATES, _MOST_CANDIDATES = 4, 8  # half of those of `NBNN`: a quarter less time per search
_ROWS = 16_384  # descriptors whose differences are held at once

Mask = npt.NDArray[np.bool_]


class ClassNeighbours:
    """Nearest descriptors of the classes, for every descriptor of some photos.

    Parameters
    ----------
    values : array of shape (descriptors, features)
        Descriptors of all photos, one photo after the other, normalised.
    owner : array of shape (descriptors,)
        Photo number of each descriptor.
    classes : int
        Number of classes.
    rotation : Rotation
        Rotation that the search "pca" uses.
    search : {"pca", "exact"}
        Search for neighbours.

    Attributes
    ----------
    members : array of shape (photos,)
        Class number of each photo; -1 for photos of no class.
    nearest : array of shape (classes, descriptors)
        Number of the nearest descriptor of each class.
    distances : array of shape (classes, descriptors)
        Squared distances to them.
    head : array of shape (descriptors, leading features)
        Leading features of the descriptors after the rotation.
    """

    def __init__(
        self, values: Floats, owner: npt.NDArray[np.int64], classes: int, rotation: Rotation, search: str
    ) -> None:
        self._queries, self._owner, self._rotation, self._search = rotation(values), owner, rotation, search
        self.values = self._queries.values
        self.head = self._queries.head
        self.members = np.full(int(owner[-1]) + 1, -1)
        self._offsets = np.searchsorted(owner, np.arange(len(self.members) + 1))
        self.nearest = np.zeros((classes, len(values)), np.int64)
        self.distances = np.full((classes, len(values)), np.inf, np.float32)

    def update(self, members: npt.NDArray[np.int64]) -> None:
        """Set the classes of the photos, and find the neighbours that have changed."""
        for number in range(len(self.nearest)):
            before, after = self.members == number, members == number
            left = before & ~after
            lost = np.flatnonzero(left[self._owner[self.nearest[number]]])
            if len(lost):
                self.distances[number, lost] = np.inf
                self._compare(number, lost, before & after)
            self._compare(number, None, after & ~before)
        self.members = members.copy()

    def rows_of_class(self, number: int) -> Indices:
        """Return the numbers of the descriptors of a class."""
        return np.flatnonzero(self.members[self._owner] == number)

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

    def _compare(self, number: int, rows: npt.NDArray[np.int64] | None, photos: Mask) -> None:
        """Compare descriptors (None for all) with those of some photos, and keep the nearer neighbours."""
        columns = np.flatnonzero(photos[self._owner])
        if not len(columns):
            return
        bank = self.values[columns]
        queries = self._queries if rows is None else self._queries[rows]
        rows = np.arange(len(self._owner)) if rows is None else rows
        distances, found = self._nearest(bank, queries)
        numbers = np.flatnonzero(photos)

        def exclude_own(place: int) -> None:
            inside, own = (_rows_of(numbers[place], self._owner[part]) for part in (rows, columns))
            distances[inside], found[inside] = _elsewhere(queries.values[inside], bank, own)

        on_all_cores(exclude_own, range(len(numbers)))
        nearer = distances < self.distances[number, rows]
        self.distances[number, rows[nearer]] = distances[nearer]
        self.nearest[number, rows[nearer]] = columns[found[nearer]]

    def _nearest(self, bank: Floats, queries: Headed) -> tuple[Floats, Indices]:
        candidates = min(_MOST_CANDIDATES, max(_FEWEST_CANDIDATES, len(bank) // _ROWS_PER_CANDIDATE))
        index = make_bank(bank, self._rotation, self._search, candidates)
        distances, found = index.nearest(queries) if isinstance(index, PcaBank) else index.nearest(queries.values)
        return distances[:, 0], found[:, 0]


def _rows_of(photo: int, owner: Indices) -> slice:
    """Return the rows of a photo; the owners of rows never fall."""
    return slice(*np.searchsorted(owner, [photo, photo + 1]))


def _elsewhere(queries: Floats, bank: Floats, own: slice) -> tuple[Floats, Indices]:
    """Find the nearest descriptors of a bank outside of some of its rows; infinitely far if there are none."""
    distances, found = np.full(len(queries), np.inf, np.float32), np.zeros(len(queries), np.int64)
    for part in (slice(0, own.start), slice(own.stop, len(bank))):
        if part.start < part.stop and len(queries):
            near, where = Bank(bank[part]).nearest(queries)
            nearer = near[:, 0] < distances
            distances[nearer], found[nearer] = near[nearer, 0], where[nearer, 0] + part.start
    return distances, found
