"""Fits on the workers of an engine, for stores larger than the memory of one machine.

sNBNL: every worker keeps the photos that it owns. In every step this process draws the same minibatch as one process
would, sends each worker the row numbers of its descriptors and the prototypes, and adds up the gradients in the order
of the workers, so that the result differs from that of one process by rounding only.

NBNN: every worker keeps the descriptors of some photos and answers the distances to them, which this process merges.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from ..bags.bags import Bags
from ..bags.shards import Entry
from ..bags.store import Store, Thinning
from ..errors import PatchvoteError
from ..utils.engine import Team, TeamEngine
from .bank_votes import Limits, NeighbourVotes, limits
from .base import Numbers
from .labels import labels_of
from .minibatches import Minibatch, TrainingData
from .nbnn import NBNN, Descriptors
from .search import Floats, Indices, best_of
from .snbnl import SNBNL
from .stoml3 import Stoml3
from .votes import check_bags, chunk_rows, raise_in_place, with_positions

_Array = npt.NDArray[Any]


def fit_snbnl(
    voter: SNBNL,
    store: Store,
    y: Any = None,
    *,
    engine: TeamEngine,
    bags: Bags | None = None,
    thinning: Thinning | None = None,
) -> SNBNL:
    """Fit sNBNL on the workers of an engine, with the result of `voter.fit(store, y)` up to rounding.

    Every worker has to see the store under the same path. The budget of memory is that of this process and of each
    worker; the checkpoint is written here. If this process has `bags` in memory already, all of the store or the part
    that `thinning` chooses, they are what is learned.
    """
    with contextlib.ExitStack() as stack:
        parted = _PartedSNBNL(**voter.get_params(deep=False))
        parted.options = voter.options
        parted._begin_team = lambda most: stack.enter_context(
            contextlib.closing(engine.team(GradientJob(store.path, store.entries, most, thinning)))
        )
        parted.fit(store if bags is None else bags, labels_of(store, y))
    del parted._begin_team, parted._team
    voter.__dict__.update(parted.__dict__)
    return voter


@dataclasses.dataclass(frozen=True)
class Standard:
    """How raw descriptors become those that the prototypes see."""

    mean: _Array
    scale: _Array
    positions: bool
    power: float

    def gathered(self, bag_of: Callable[[int], Bags], images: _Array, rows: _Array) -> _Array:
        """Return the descriptors with these numbers in these images."""
        x = np.empty((len(rows), len(self.mean)), self.mean.dtype)
        order = np.argsort(images, kind="stable")
        for same in np.split(order, np.flatnonzero(np.diff(images[order])) + 1):
            x[same] = with_positions(bag_of(int(images[same[0]])), rows[same], self.positions)
        raise_in_place(x[:, : x.shape[1] - 2 * self.positions], self.power)
        x -= self.mean
        x *= self.scale
        return x


@dataclasses.dataclass(frozen=True, eq=False)
class Rows:
    """Descriptors of a minibatch, by number: image, and row in the image. As an array, they are read."""

    images: _Array
    rows: _Array
    standard: Standard
    source: Bags | Store

    def __len__(self) -> int:
        return len(self.rows)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> _Array:
        source = self.source
        bag_of = _Kept(source, len(self)).bag if isinstance(source, Store) else source.__getitem__
        return self.standard.gathered(bag_of, self.images, self.rows)


class _Kept:
    """Bags that were read from a store; all are dropped when there are more descriptors than `most`."""

    def __init__(self, store: Store, most: int, thinning: Thinning | None = None) -> None:
        self._store, self._most, self._thinning = store, most, thinning
        self._bags: dict[int, Bags] = {}
        self._descriptors = 0

    def bag(self, image: int) -> Bags:
        if image not in self._bags:
            if self._descriptors > self._most:
                self._bags, self._descriptors = {}, 0
            bag = self._store.load([image], self._store.dtype)[0]
            check_bags(bag)
            self._bags[image] = bag if self._thinning is None else self._thinning.part(bag, image)
            self._descriptors += len(self._bags[image].values)
        return self._bags[image]


@dataclasses.dataclass(frozen=True)
class GradientJob:
    """The job of a worker that computes its part of every gradient."""

    path: Path
    entries: Sequence[Entry]
    most: int
    thinning: Thinning | None = None
    name: str = "fit snbnl"

    def start(self) -> Callable[[Any, Any], tuple[float, _Array] | None]:
        """Open the store; return the function that computes the loss and gradient of some descriptors."""
        kept = _Kept(Store.open(self.path).only([entry.name for entry in self.entries]), self.most, self.thinning)

        def part(shared: tuple[_Array, float, Standard], own: Any) -> tuple[float, _Array] | None:
            weights, q, standard = shared
            images, rows, labels, share = own
            if not len(rows):
                return None
            x = standard.gathered(kept.bag, images, rows)
            return Stoml3(weights, q, 0.0).gradient(x, labels, share)

        return part


class _PartedStoml3(Stoml3):
    """STOML3 whose gradients are sums over the workers of a team."""

    team: Team

    def gradient(self, x: Any, labels: Any, share: Any) -> tuple[float, _Array]:
        owner = x.images % self.team.size
        parts = [np.flatnonzero(owner == number) for number in range(self.team.size)]
        own = [(x.images[part], x.rows[part], labels[part], share[part]) for part in parts]
        replies = [one for one in self.team.ask((self.weights, self.q, x.standard), own) if one is not None]
        total = replies[0][1].copy()
        for _, gradient in replies[1:]:
            total += gradient
        return sum(loss for loss, _ in replies), total


class _PartedData(TrainingData):
    """Training data of which only the numbers of descriptors are drawn here."""

    @classmethod
    def of(cls, data: TrainingData) -> _PartedData:
        parted = cls(data.source, data.labels, data.weight, data.limits)
        parted.__dict__.update(data.__dict__)
        return parted

    def only(self, images: npt.NDArray[np.int64]) -> TrainingData:
        return _PartedData.of(super().only(images))

    def minibatches(
        self, rng: np.random.Generator, size: int, mean: _Array, scale: _Array, skip: int = 0
    ) -> Iterator[Minibatch]:
        standard = Standard(mean.astype(self.dtype), scale.astype(self.dtype), self.positions, self.power)
        parts = self._parts(rng.permutation(self.images))
        if self.descriptors <= self.limits.whole:
            parts = [self.images]  # a single block, in an order that does not depend on the pass
        for part in parts:
            sizes = self.source.sizes[part]
            image, starts = np.repeat(part, sizes), np.cumsum(sizes) - sizes
            place = np.arange(len(image)) - np.repeat(starts, sizes)
            order, count = rng.permutation(len(image)), self._minibatches_of(part, size)
            for chosen in np.array_split(order, count)[skip:]:
                images = image[chosen]
                x: Any = Rows(images, place[chosen], standard, self.source)
                yield x, self.labels[images], self.weight[images].astype(self.dtype)
            skip = max(0, skip - count)


class _PartedSNBNL(SNBNL):
    """SNBNL whose steps are made by a team, which begins when it is known how much a worker may keep."""

    _begin_team: Callable[[int], Team]
    _team: Team

    def _training_data(self, X: Any, *what: Any, **more: Any) -> TrainingData:
        data = super()._training_data(X, *what, **more)
        self._team = self._begin_team(data.limits.whole)
        return _PartedData.of(data)

    def _learner(self, weights: _Array, step: int = 0) -> Stoml3:
        learner = _PartedStoml3(weights, self.q, self.alpha, self.curvature, step)
        learner.team = self._team
        return learner


# --- NBNN -------------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def fit_nbnn(voter: NBNN, store: Store, y: Any = None, *, engine: TeamEngine) -> Iterator[NBNN]:
    """Fit NBNN on the workers of an engine; within the block, the voter answers as `voter.fit(store, y)` does.

    The bank is on the workers, which end with the block, so that no model can be made of it.
    """
    settings = voter.get_params(deep=False)
    with contextlib.closing(engine.team(BankJob(store.path, store.entries, settings, voter.options.memory))) as team:
        parted = _PartedNBNN(**settings)
        parted.options, parted._team = voter.options, team
        try:
            yield parted.fit(store, y)
        finally:
            parted._team = None


@dataclasses.dataclass(frozen=True)
class Question:
    """What all workers are asked: whether a feature is "negative", the "sum" of the features, or the "nearest"."""

    what: str
    positions: bool
    power: float = 1.0
    mean: _Array = dataclasses.field(default_factory=lambda: np.zeros(0, np.float32))
    values: _Array = dataclasses.field(default_factory=lambda: np.zeros((0, 0), np.float32))
    k: int = 1


Share = tuple[Numbers, Numbers]  # numbers of the photos that a worker keeps, sorted by class, and their class numbers


def shares_of(numbers: Numbers, images: Numbers, sizes: Numbers, workers: int) -> list[Share]:
    """Assign photos, sorted by class, to workers, about as many descriptors to each.

    Examples
    --------
    >>> shares = shares_of(np.array([1, 0, 1, 0]), np.arange(4), np.array([5, 5, 5, 5]), 2)
    >>> [(images.tolist(), numbers.tolist()) for images, numbers in shares]
    [([1, 3], [0, 0]), ([0, 2], [1, 1])]
    """
    order = images[np.argsort(numbers[images], kind="stable")]
    middle = np.cumsum(sizes[order]) - sizes[order] / 2
    owner = (middle * workers / max(1, int(sizes[order].sum()))).astype(np.int64)
    return [(order[owner == worker], numbers[order[owner == worker]]) for worker in range(workers)]


@dataclasses.dataclass(frozen=True)
class BankJob:
    """The job of a worker that keeps the descriptors of some photos within a budget of memory."""

    path: Path
    entries: Sequence[Entry]
    settings: Mapping[str, Any]
    memory: float
    name: str = "nbnn"

    def start(self) -> Callable[[Question, Share], Any]:
        """Open the store; return the function that answers about the descriptors of a share."""
        # A share may have fewer descriptors of a class than neighbours are asked for; this process merges them.
        voter = NBNN(**{**self.settings, "n_neighbors": 1}).set_options(memory=self.memory)
        return _Held(Store.open(self.path).only([entry.name for entry in self.entries]), voter).answer


class _Held:
    """The descriptors of the share that a worker was asked about last."""

    def __init__(self, store: Store, voter: NBNN) -> None:
        self.voter, self._store = voter, store
        self._read_as: Any = None
        self._indexed_as: Any = None

    def answer(self, asked: Question, share: Share) -> Any:
        """Answer a question about a share, which is read if it is another than before."""
        images, numbers = share
        if not len(images):
            return None
        voter, key = self.voter, (asked.positions, images.tobytes())
        if key != self._read_as:
            store = self._store.only([self._store.names[image] for image in images])
            present, local = np.unique(numbers, return_inverse=True)
            voter.classes_, voter.n_features_in_, voter.positions_ = present, store.dim, asked.positions
            self._bank = voter._descriptors(voter._in_memory(store), np.arange(len(store)), local)
            self._numbers, self._read_as, self._indexed_as = local[self._bank.owner], key, None
        voter.power_ = asked.power
        if asked.what == "negative":
            return self._bank.negative
        if asked.what == "sum":
            return voter._feature_sum(self._bank.values)
        if (indexed_as := (asked.power, asked.mean.tobytes())) != self._indexed_as:
            arrays: dict[str, Any] = {"values": self._bank.values, "class": self._numbers, "mean": asked.mean}
            settings = voter._plain_settings()
            voter._restored(NeighbourVotes(arrays, settings, len(voter.classes_), asked.positions))
            self._indexed_as = indexed_as
        scorer: Any = voter.scorer()
        return scorer.nearest(asked.values, asked.k)


class _OnWorkers:
    """Training images whose descriptors are on workers; see `nbnn.Descriptors`."""

    def __init__(self, voter: _PartedNBNN, store: Store, images: Numbers, numbers: Numbers) -> None:
        self._voter, self._store, self._images, self._numbers = voter, store, images, numbers

    @property
    def negative(self) -> bool:
        """Whether a feature is negative."""
        answers = self._voter._ask(Question("negative", self._voter.positions_), self._shares(self._images))
        return any(answer is True for answer in answers)

    def of(self, images: Numbers) -> Descriptors:
        """Return the shares of the workers instead of descriptors; boxes stay in the store."""
        shares: Any = self._shares(images)
        return Descriptors(shares, np.repeat(images, self._store.sizes[images]), np.zeros((0, 4), np.float32))

    def _shares(self, images: Numbers) -> list[Share]:
        team = self._voter._team
        return shares_of(self._numbers, images, self._store.sizes, team.size if team is not None else 0)


class _PartedVotes(NeighbourVotes):
    """Votes of a bank that is on workers."""

    ask: Callable[[Question, Sequence[Any]], list[Any]]
    shares: Sequence[Share]
    store: Store
    _rotation = None

    @property
    def features(self) -> int:
        return len(self.arrays["mean"])

    def nearest(self, values: _Array, k: int) -> list[tuple[Floats, Indices]]:
        asked = Question("nearest", self.positions, self.power, self.arrays["mean"], values, k)
        found: list[list[tuple[Floats, Indices]]] = [[] for _ in range(self.classes)]
        before = np.zeros(self.classes, np.int64)  # descriptors of each class on earlier workers
        for (images, numbers), answer in zip(self.shares, self.ask(asked, self.shares), strict=True):
            for number, (distances, places) in zip(np.unique(numbers).tolist(), answer or (), strict=True):
                found[number].append((distances, places + before[number]))
            np.add.at(before, numbers, self.store.sizes[images])
        return [best_of(parts, len(values), k) for parts in found]

    def matches(self, bags: Bags, number: int) -> tuple[_Array, _Array, _Array] | None:
        values = with_positions(bags, slice(0, len(bags.values)), self.positions)
        distances, places = self.nearest(values, 1)[number]
        rows = self._class_rows(number)[places[:, 0]]
        images = self.arrays["image"][rows]
        rows = rows - np.searchsorted(self.arrays["image"], images)  # within their images
        boxes = np.empty((len(rows), 4), np.float32)
        for image in np.unique(images):
            same = images == image
            boxes[same] = self.store.load([image], self.store.dtype)[0].boxes[rows[same]]
        return images, boxes, distances[:, 0]

    def _measured_recall(self) -> float:
        raise PatchvoteError("the recall of a search is measured in one process, not on workers.")


class _PartedNBNN(NBNN):
    """NBNN whose bank is on the workers of a team."""

    _team: Team | None

    def partial_fit(self, X: Any, y: Any = None, classes: Any = None, sample_weight: Any = None) -> Self:
        raise PatchvoteError("a bank on workers cannot learn more images: fit it again with all of them.")

    def _ask(self, asked: Question, shares: Sequence[Any]) -> list[Any]:
        if self._team is None:
            raise PatchvoteError("the workers that held this bank have ended: use the voter within the block.")
        return self._team.ask(asked, shares)

    def _in_memory(self, source: Bags | Store, more: int = 0, *, fitting: bool = True) -> Bags | Store:
        return source  # workers read it

    def _descriptors(self, source: Any, images: Numbers, numbers: Numbers, more: int = 0) -> Any:
        self._store = source
        return _OnWorkers(self, source, images, numbers)

    def _set_bank(self, values: Any, numbers: Numbers, images: Numbers, boxes: Any) -> None:
        """Note which worker keeps which photos; they read them when they are asked."""
        self.class_, self.image_ = numbers, images
        self._check_enough()
        sums = self._ask(Question("sum", self.positions_, self.power_), values)
        self.mean_ = (sum(one for one in sums if one is not None) / len(images)).astype(np.float32)
        arrays: dict[str, _Array] = {"mean": self.mean_, "class": numbers, "image": images}
        scorer = _PartedVotes(arrays, self._plain_settings(), len(self.classes_), bool(self.positions_))
        scorer.ask, scorer.shares, scorer.store = self._ask, values, self._store
        self._restored(scorer)

    def _limits(self, store: Store, images: Numbers, more: int = 0) -> Limits:
        """Return how much of the store is read at once here, where no bank is."""
        size = {"classes": len(self.classes_), "n_neighbors": self.n_neighbors}
        return limits(self.options.memory, rows=0, width=store.dim + 2, search="exact", **size)

    def _at_once(self) -> int:
        return chunk_rows(len(self.classes_))  # one question per block
