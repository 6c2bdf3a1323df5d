"""NBNN on many workers: every worker keeps the descriptors of some classes, and answers their distances.

Each worker reads the photos of its classes from the store, within the budget of memory of the voter, and keeps their
bank. This process sends every worker the descriptors to be classified, and merges the distances that come back. So
memory grows with the workers, and labels and distances are those of one process.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from ...bags.bags import Bags
from ...bags.copies import vectors_of
from ...bags.shards import Entry
from ...bags.store import Store
from ...errors import PatchvoteError
from ...utils.engine import Team, TeamEngine
from ..base import Numbers
from ..votes import chunk_rows, with_positions
from .bounds import Floats, Indices
from .exact import best_of
from .in_parts import Limits, limits
from .nbnn import NBNN
from .votes import NeighbourVotes


@contextlib.contextmanager
def fit_on_workers(voter: NBNN, store: Store, y: Any = None, *, engine: TeamEngine) -> Iterator[NBNN]:
    """Fit NBNN on the workers of an engine; within the block, the voter answers as `voter.fit(store, y)` does.

    Parameters
    ----------
    voter : NBNN
        Settings of the voter. Its `memory` is that of this process and of each worker.
    store : Store
        Bags of the training images, which every worker has to see under the same path.
    y : array, optional
        Classes of the images; by default those of the store.
    engine : TeamEngine
        Engine that runs the workers.

    Yields
    ------
    NBNN
        The fitted voter. Its bank is on the workers, which end with the block; a model cannot be made of it.
    """
    if voter.condense is not None:
        raise ValueError("condense of NBNN must be None on workers: a condensed bank is small, fit it in one process.")
    settings = voter.get_params(deep=False)
    with contextlib.closing(engine.team(BankJob(store.path, store.entries, settings))) as team:
        parted = _PartedNBNN(**settings)
        parted._team = team
        try:
            yield parted.fit(store, y)
        finally:
            parted._team = None


@dataclasses.dataclass(frozen=True, eq=False)
class Piece:
    """Photos of one class, or some of them, whose descriptors one worker keeps.

    Parameters
    ----------
    number : int
        Class number.
    images : array of int
        Numbers of the photos.
    first : int
        Place of their first descriptor among those of the class.
    """

    number: int
    images: Numbers
    first: int = 0


def shared_out(numbers: Numbers, images: Numbers, sizes: Numbers, workers: int) -> list[list[Piece]]:
    """Assign photos to workers: whole classes, or parts of classes if there are fewer classes than workers.

    Parameters
    ----------
    numbers, sizes : arrays of int
        Class number and number of descriptors of every photo.
    images : array of int
        Numbers of the photos to assign, ascending.
    workers : int
        Number of workers; they get about as many descriptors each.

    Examples
    --------
    >>> numbers, sizes = np.array([0, 0, 1, 1, 2]), np.array([5, 5, 4, 4, 3])
    >>> [[piece.number for piece in pieces] for pieces in shared_out(numbers, np.arange(5), sizes, 2)]
    [[0], [1, 2]]
    >>> [[piece.images.tolist() for piece in pieces] for pieces in shared_out(numbers[:2], np.arange(2), sizes, 2)]
    [[[0]], [[1]]]
    """
    present = np.unique(numbers[images])
    pieces = []
    for number in present.tolist():
        own = images[numbers[images] == number]
        for part in np.array_split(own, min(len(own), -(-workers // len(present)))):
            pieces.append(Piece(number, part, int(sizes[own[own < part[0]]].sum())))
    shares: list[list[Piece]] = [[] for _ in range(workers)]
    loads = np.zeros(workers)
    for piece in sorted(pieces, key=lambda piece: -int(sizes[piece.images].sum())):  # the largest first
        least = int(loads.argmin())
        shares[least].append(piece)
        loads[least] += sizes[piece.images].sum()
    return shares


@dataclasses.dataclass(frozen=True)
class Asked:
    """What all workers are asked.

    Parameters
    ----------
    what : {"negative", "sum", "nearest"}
        Whether a feature is negative; the sums of the normalised features; or the nearest descriptors.
    positions : bool
        Whether positions are used.
    power : float
        Exponent of the power normalisation.
    mean : array
        Mean of the features.
    values : array
        Descriptors to be classified.
    k : int
        Number of neighbours.
    """

    what: str
    positions: bool
    power: float = 1.0
    mean: npt.NDArray[Any] = dataclasses.field(default_factory=lambda: np.zeros(0, np.float32))
    values: npt.NDArray[Any] = dataclasses.field(default_factory=lambda: np.zeros((0, 0), np.float32))
    k: int = 1


@dataclasses.dataclass(frozen=True)
class BankJob:
    """The job of a worker that keeps the bank of some classes.

    Parameters
    ----------
    path : Path
        Folder of the store.
    entries : list of Entry
        Training images, in order.
    settings : mapping
        Parameters of the voter.
    """

    path: Path
    entries: Sequence[Entry]
    settings: Mapping[str, Any]
    name: str = "nbnn"

    def start(self) -> Callable[[Asked, Sequence[Piece]], Any]:
        """Open the store; return the function that answers about the descriptors of some photos."""
        # A piece may have fewer descriptors than neighbours are asked for; this process merges them.
        voter = NBNN(**{**self.settings, "n_neighbors": 1})
        return _Held(Store.open(self.path).only([entry.name for entry in self.entries]), voter).answer


class _Held:
    """The bank of a worker: that of the pieces that it was asked about last."""

    def __init__(self, store: Store, voter: NBNN) -> None:
        self._store, self._voter = store, voter
        self._pieces: tuple[Any, ...] = ()
        self._indexed: tuple[Any, ...] = ()

    def answer(self, asked: Asked, pieces: Sequence[Piece]) -> Any:
        """Answer a question about pieces, which are read if they are others than before."""
        if not pieces:
            return None
        self._read(pieces, asked.positions)
        if asked.what == "negative":
            return self._training.negative
        self._voter.power_ = asked.power
        if asked.what == "sum":
            return self._voter._feature_sum(self._bank[0])
        self._index(asked.power, asked.mean)
        scorer: Any = self._voter.scorer()
        return scorer.nearest(asked.values, asked.k)

    def _read(self, pieces: Sequence[Piece], positions: bool) -> None:
        key = positions, *((piece.number, piece.images.tobytes()) for piece in pieces)
        if key == self._pieces:
            return
        voter, images = self._voter, np.concatenate([piece.images for piece in pieces])
        store = self._store.only([self._store.names[image] for image in images])
        self._numbers = np.repeat(np.arange(len(pieces)), [len(piece.images) for piece in pieces])
        voter.classes_, voter.n_features_in_, voter.positions_ = np.arange(len(pieces)), store.dim, positions
        every = np.arange(len(store))
        self._training = voter._training(voter._in_memory(store), every, self._numbers)
        self._bank, self._pieces, self._indexed = self._training.bank(every), key, ()

    def _index(self, power: float, mean: npt.NDArray[np.float32]) -> None:
        """Make the bank searchable with this mean."""
        key = power, mean.tobytes()
        if key != self._indexed:
            values, owner, boxes = self._bank
            self._voter._set_bank(values, self._numbers[owner], owner, boxes, mean)
            self._indexed = key


class _OnWorkers:
    """Training images whose descriptors are on workers; see `training`."""

    def __init__(self, voter: _PartedNBNN, store: Store, images: Numbers, numbers: Numbers) -> None:
        self._voter, self._store, self._images, self._numbers = voter, store, images, numbers

    @property
    def negative(self) -> bool:
        """Whether a feature is negative."""
        answers = self._voter._ask(Asked("negative", self._voter.positions_), self._shares(self._images))
        return any(answer is True for answer in answers)

    def bank(self, part: Numbers) -> tuple[Any, Numbers, npt.NDArray[np.float32]]:
        """Return how some images are shared out, and the image number of each descriptor; boxes stay in the store."""
        return self._shares(part), np.repeat(part, self._store.sizes[part]), np.zeros((0, 4), np.float32)

    def bags(self, part: Numbers) -> Store:
        """Return some images, as a view of the store."""
        return self._store.only([self._store.names[image] for image in part])

    def vectors(self) -> npt.NDArray[Any]:
        """Return the mean descriptor of each image; of very many images, only some features."""
        limits = self._voter._limits(self._store, self._images)
        return vectors_of(self._store, limits.features, limits.rows)

    def _shares(self, part: Numbers) -> list[list[Piece]]:
        return shared_out(self._numbers, part, self._store.sizes, self._voter._members())


class _PartedVotes(NeighbourVotes):
    """Votes of a bank that is on workers."""

    ask: Callable[[Asked, Sequence[Any]], list[Any]]
    shares: Sequence[Sequence[Piece]]
    store: Store

    @property
    def features(self) -> int:
        return len(self.arrays["mean"])

    def nearest(self, values: npt.NDArray[Any], k: int) -> list[tuple[Floats, Indices]]:
        asked = Asked("nearest", self.positions, self.power, self.arrays["mean"], values, k)
        answers = self.ask(asked, self.shares)
        found: list[list[tuple[Floats, Indices]]] = [[] for _ in range(self.classes)]
        for pieces, answer in zip(self.shares, answers, strict=True):
            for piece, (distances, places) in zip(pieces, answer or (), strict=True):
                found[piece.number].append((distances, places + piece.first))
        return [best_of(parts, len(values), k) for parts in found]

    def matches(self, bags: Bags, number: int) -> tuple[npt.NDArray[Any], npt.NDArray[Any], npt.NDArray[Any]] | None:
        values = with_positions(bags, slice(0, len(bags.values)), self.positions)
        distances, places = self.nearest(values, 1)[number]
        rows = np.flatnonzero(self.arrays["class"] == number)[places[:, 0]]
        images = self.arrays["image"][rows]
        rows -= np.searchsorted(self.arrays["image"], images)  # within their images
        boxes = np.empty((len(rows), 4), np.float32)
        for image in np.unique(images):
            own = images == image
            boxes[own] = self.store.load([image], self.store.dtype)[0].boxes[rows[own]]
        return images, boxes, distances[:, 0]

    def _measured_recall(self) -> float:
        raise PatchvoteError("the recall of a search is measured in one process, not on workers.")


class _PartedNBNN(NBNN):
    """NBNN whose bank is on the workers of a team."""

    _team: Team | None

    def partial_fit(self, X: Any, y: Any = None, classes: Any = None, sample_weight: Any = None) -> Self:
        raise PatchvoteError("a bank on workers cannot learn more images: fit it again with all of them.")

    def _ask(self, asked: Asked, own: Sequence[Any]) -> list[Any]:
        if self._team is None:
            raise PatchvoteError("the workers that held this bank have ended: use the voter within the block.")
        return self._team.ask(asked, own)

    def _members(self) -> int:
        return self._team.size if self._team is not None else 0

    def _in_memory(self, source: Bags | Store, more: int = 0, *, fitting: bool = True) -> Bags | Store:
        return source  # workers read it

    def _training(self, source: Any, images: Numbers, numbers: Numbers) -> Any:
        self._store = source
        return _OnWorkers(self, source, images, numbers)

    def _set_bank(self, values: Any, numbers: Numbers, images: Numbers, boxes: Any, mean: Any = None) -> None:
        """Take note which worker keeps which photos; they read them when they are asked."""
        self.class_, self.image_ = numbers, images
        self._check_enough()
        sums = self._ask(Asked("sum", self.positions_, self.power_), values)
        self.mean_ = self._mean(sum(one for one in sums if one is not None), len(images))
        arrays: dict[str, npt.NDArray[Any]] = {"mean": self.mean_, "class": numbers, "image": images}
        scorer = _PartedVotes(arrays, self._plain_settings(), len(self.classes_), bool(self.positions_))
        scorer.ask, scorer.shares, scorer.store = self._ask, values, self._store
        self._restored(scorer)

    def _limits(self, store: Store, images: Numbers, more: int = 0) -> Limits:
        """Return how much of the store is read at once here, where no bank is."""
        size = {"classes": len(self.classes_), "n_neighbors": self.n_neighbors}
        return limits(self.memory, rows=0, width=store.dim + 2, search="exact", **size)

    def _at_once(self) -> int:
        return chunk_rows(len(self.classes_))  # one question per block
