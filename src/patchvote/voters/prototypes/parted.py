"""sNBNL on many workers: the gradient of every minibatch is computed in parts, where the descriptors are.

Each worker reads the photos that it owns from the store and keeps them. In every step this process draws the same
minibatch as one process would, sends each worker the row numbers of its descriptors and the prototypes, and adds up the
gradients in the order of the workers. So the result does not depend on which worker is faster, and differs from that of
one process by rounding only. If this process has a part of every bag in memory already (`thinning`), the workers read
the same part from the store.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ...bags.bags import Bags
from ...bags.shards import Entry
from ...bags.store import Store, Thinning
from ...utils.engine import Team, TeamEngine
from ..labels import labels_of
from ..power import raise_in_place
from ..votes import check_bags, with_positions
from .minibatches import Minibatch, TrainingData
from .snbnl import SNBNL
from .stoml3 import Stoml3

_Array = npt.NDArray[Any]


def fit_on_workers(
    voter: SNBNL,
    store: Store,
    y: Any = None,
    *,
    engine: TeamEngine,
    bags: Bags | None = None,
    thinning: Thinning | None = None,
) -> SNBNL:
    """Fit sNBNL on the workers of an engine, with the result of `voter.fit(store, y)` up to rounding.

    Parameters
    ----------
    voter : SNBNL
        Voter to fit. Its `memory` is that of this process and of each worker; its `checkpoint` is written here.
    store : Store
        Bags of the training images, which every worker has to see under the same path.
    y : array, optional
        Classes of the images; by default those of the store.
    engine : TeamEngine
        Engine that runs the workers.
    bags : Bags, optional
        What to learn from if this process has it in memory: all bags of the store, or the part that `thinning`
        chooses. The result is then that of `voter.fit(bags, y)`.
    thinning : Thinning, optional
        Choice of the descriptors in `bags`, which the workers repeat; all by default.

    Returns
    -------
    SNBNL
        The same voter, fitted.
    """
    with contextlib.ExitStack() as stack:
        parted = _PartedSNBNL(**voter.get_params(deep=False))
        parted._begin_team = lambda most: stack.enter_context(
            contextlib.closing(engine.team(GradientJob(store.path, store.entries, most, thinning)))
        )
        parted.fit(store if bags is None else bags, labels_of(store, y))
    del parted._begin_team, parted._team
    voter.__dict__.update(parted.__dict__)
    return voter


@dataclasses.dataclass(frozen=True)
class Standard:
    """How raw descriptors become those that the prototypes see.

    Parameters
    ----------
    mean, scale : arrays of shape (features,)
        Mean and factor of each feature.
    positions : bool
        Whether the centres of the boxes are the last two features.
    power : float
        Exponent of the power normalisation.
    """

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
    """The job of a worker that computes its part of every gradient.

    Parameters
    ----------
    path : Path
        Folder of the store.
    entries : list of Entry
        Training images, in order.
    most : int
        Descriptors that a worker keeps in memory.
    thinning : Thinning, optional
        Choice of the descriptors of each bag; all by default.
    """

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
