"""SNBNL trained on the workers of an engine, for stores larger than the memory of one machine.

Every worker keeps the photos that it owns. In every step this process draws the same minibatch as one process would,
sends each worker the row numbers of its descriptors and the prototypes, and adds up the gradients in the order of the
workers, so that the result differs from that of one process by rounding only.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..bags.bags import Bags
from ..bags.shards import Entry
from ..bags.store import Store, Thinning
from ..utils.engine import Team, TeamEngine
from .labels import labels_of
from .minibatches import Block, Floats, Numbers, Standard, TrainingData
from .snbnl import SNBNL
from .stoml3 import Stoml3
from .votes import check_bags


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


class _Reader:
    """Gathers descriptors of photos of a store, and keeps their bags until there are more descriptors than `most`."""

    def __init__(self, store: Store, most: int, thinning: Thinning | None = None) -> None:
        self._store, self._most, self._thinning = store, most, thinning
        self._bags: dict[int, Bags] = {}
        self._descriptors = 0

    def gathered(self, images: Numbers, rows: Numbers, standard: Standard) -> Floats:
        """Return the descriptors with these numbers in these images, standardised."""
        x = np.empty((len(rows), len(standard.mean)), standard.mean.dtype)
        order = np.argsort(images, kind="stable")
        for same in np.split(order, np.flatnonzero(np.diff(images[order])) + 1):
            x[same] = standard.gathered(self._bag(int(images[same[0]])), rows[same])
        return x

    def _bag(self, image: int) -> Bags:
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

    def start(self) -> Callable[[Any, Any], tuple[float, Floats] | None]:
        """Open the store; return the function that computes the loss and gradient of some descriptors."""
        store = Store.open(self.path).only([entry.name for entry in self.entries])
        reader = _Reader(store, self.most, self.thinning)

        def part(shared: tuple[Floats, float, Standard], own: Any) -> tuple[float, Floats] | None:
            weights, q, standard = shared
            images, rows, labels, share = own
            if not len(rows):
                return None
            return Stoml3(weights, q, 0.0).gradient(reader.gathered(images, rows, standard), labels, share)

        return part


@dataclasses.dataclass(frozen=True, eq=False)
class _Rows:
    """Descriptors of a minibatch, by number: image, and row in the image. As an array, they are read."""

    images: Numbers
    rows: Numbers
    standard: Standard
    source: Bags | Store

    def __len__(self) -> int:
        return len(self.rows)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Floats:
        if isinstance(self.source, Bags):
            return self.standard.gathered(self.source, self.source.offsets[self.images] + self.rows)
        return _Reader(self.source, len(self)).gathered(self.images, self.rows, self.standard)


@dataclasses.dataclass(frozen=True)
class _NumberedBlock(Block):
    """A block of which only the numbers of descriptors are known here, with the first one of each image."""

    firsts: Numbers


class _PartedData(TrainingData):
    """Training data of which only the numbers of descriptors are drawn here."""

    def _drawn(self, parts: list[Numbers]) -> Iterator[Block]:
        for part in [self.images] if self._is_one_block else parts:  # one in an order that depends on no pass
            sizes = self.source.sizes[part]
            image, firsts = np.repeat(part, sizes), np.repeat(np.cumsum(sizes) - sizes, sizes)
            yield _NumberedBlock(None, image, np.arange(len(image)), firsts)

    def _gathered(self, block: Any, rows: Numbers, standard: Standard, out: Floats) -> Any:
        return _Rows(block.image[rows], rows - block.firsts[rows], standard, self.source)


class _PartedStoml3(Stoml3):
    """STOML3 whose gradients are sums over the workers of a team."""

    team: Team

    def gradient(self, x: Any, labels: Any, share: Any) -> tuple[float, Floats]:
        owner = x.images % self.team.size
        parts = [np.flatnonzero(owner == number) for number in range(self.team.size)]
        own = [(x.images[part], x.rows[part], labels[part], share[part]) for part in parts]
        replies = [one for one in self.team.ask((self.weights, self.q, x.standard), own) if one is not None]
        total = replies[0][1].copy()
        for _, gradient in replies[1:]:
            total += gradient
        return sum(loss for loss, _ in replies), total


class _PartedSNBNL(SNBNL):
    """SNBNL whose steps are made by a team, which begins when it is known how much a worker may keep."""

    data_class = _PartedData
    _begin_team: Callable[[int], Team]
    _team: Team

    def _training_data(self, X: Any, *what: Any, **more: Any) -> TrainingData:
        data = super()._training_data(X, *what, **more)
        self._team = self._begin_team(data.limits.whole)
        return data

    def _learner(self, weights: Floats, step: int = 0) -> Stoml3:
        learner = _PartedStoml3(weights, self.q, self.alpha, self.curvature, step)
        learner.team = self._team
        return learner
