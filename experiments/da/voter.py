"""DA-NBNN: NBNN for photos of another domain, with metrics that are learned while the training photos change.

In every round one metric per class is learned from the training photos (`metrics`), and all photos of the target
are named by their distances to the classes. Then, per class, the target's photos that are named with the largest
margins enter the training photos with these labels, and as many photos of the source, those farthest from their class,
leave. A photo of the target that is later named otherwise leaves again. Labelled photos of the target never leave.

The authors' code was not available. Decided here: neighbours are nearest in the Euclidean metric of all features, so
that one search per round is enough; rounds use a random part of every bag; metrics act on the leading principal
features, and keep their trace; the margin is a share of the mean lead that training photos have in the Euclidean
metric; a fixed number of photos per class is exchanged, in few rounds, and two labelled photos of every class stay.

References
----------
Tommasi and Caputo, "Frustratingly Easy NBNN Domain Adaptation", ICCV 2013.
Wang, Hu and Chia, "Image-to-Class Distance Metric Learning for Image Classification", ECCV 2010.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator, ClassifierMixin

from patchvote.bags.bags import Bags
from patchvote.bags.store import Store
from patchvote.voters.bank_votes import comparable
from patchvote.voters.search import Bank, PcaBank, Rotation

from .metrics import ImageToClass, change_of, learn_metrics
from .neighbours import ClassNeighbours

_SEARCH_FEATURES = 128  # leading features that the search "pca" uses; with no more features, the search is exact
_SAMPLE = 20_000  # descriptors from which the rotation is learned
_ROWS = 16_384  # descriptors that are read at once
_FEWEST_LABELLED = 2  # photos of every class that stay: one, and another to compare it with


class DANBNN(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """NBNN with learned metrics, adapted to another domain with unlabelled photos of that domain.

    At most `exchanged` photos per class enter, and leave, in a round; rounds learn from at most `n_descriptors` of a
    photo. `balance` weighs the margins against the distances to the own classes; the `margin` is a share of the mean
    lead that training photos have in the Euclidean metric of the first round. With `max_iter` 0, metrics are Euclidean.
    """

    def __init__(
        self,
        rounds: int = 2,
        *,
        exchanged: int = 10,
        n_descriptors: int | None = 72,
        n_components: int = 64,
        balance: float = 0.5,
        margin: float = 0.1,
        max_iter: int = 10,
        search: str = "pca",
    ) -> None:
        self.rounds = rounds
        self.exchanged = exchanged
        self.n_descriptors = n_descriptors
        self.n_components = n_components
        self.balance = balance
        self.margin = margin
        self.max_iter = max_iter
        self.search = search

    def fit(self, X: Any, y: Any, target: Any = None, target_y: Any = None) -> Self:
        """Learn from labelled photos of the source and photos of the target, whose classes are None if not known."""
        source, labels = _bags(X), np.asarray(y)
        parts = [source] if target is None else [source, _bags(target)]
        there = list(target_y) if target_y is not None else [None] * (len(parts[1]) if len(parts) > 1 else 0)
        has_label = np.array([label is not None for label in there], bool)
        target_labels = np.array([label for label in there if label is not None], labels.dtype)
        self.classes_ = np.unique(np.concatenate([labels, target_labels]))
        self.n_features_in_ = source.dim
        members = np.full(len(labels) + len(has_label), -1)
        known = np.concatenate([np.ones(len(labels), bool), has_label])
        members[known] = np.searchsorted(self.classes_, np.concatenate([labels, target_labels]))
        neighbours = self._prepare(parts, known)
        source_photos = np.arange(len(members)) < len(labels)
        members = self._run(neighbours, members, source_photos, ~known)
        self.source_members_, self.target_members_ = members[source_photos], members[~source_photos]
        self._keep_banks(parts, members)
        return self

    def predict(self, X: Any) -> npt.NDArray[Any]:
        """Return the nearest class of each photo."""
        nearest = np.argmin(self.distances(X), axis=1)
        return np.asarray(self.classes_[nearest])

    def distances(self, X: Any) -> npt.NDArray[np.float64]:
        """Return the distance of each photo to each class, ``(photos, classes)``."""
        bags = _bags(X)
        result = np.empty((len(bags.values), len(self.classes_)), np.float32)
        for start in range(0, len(result), _ROWS):
            rows = slice(start, start + _ROWS)
            queries = self._rotation(comparable(bags.values[rows], self.mean_))
            for number, (bank, head) in enumerate(self._banks):
                near, found = bank.nearest(queries) if isinstance(bank, PcaBank) else bank.nearest(queries.values)
                apart = queries.head[:, : head.shape[1]] - head[found[:, 0]]
                result[rows, number] = near[:, 0] + change_of(apart, self.metrics_[number])
        return np.asarray(bags.means(result), np.float64)

    # --- training ---------------------------------------------------------------------------------------------------

    def _prepare(self, parts: Sequence[Bags], known: npt.NDArray[np.bool_]) -> ClassNeighbours:
        """Normalise descriptors as NBNN does, by those of labelled photos, and prepare the search."""
        self.mean_ = _mean_descriptor(parts, known)
        thin = _thinned(parts, self.n_descriptors)
        values = comparable(thin.values, self.mean_)
        labelled = np.flatnonzero(known[thin.owner])
        chosen = np.random.default_rng(0).choice(labelled, size=min(_SAMPLE, len(labelled)), replace=False)
        self._rotation = Rotation(values[np.sort(chosen)], _SEARCH_FEATURES)
        self.components_ = self._rotation.axes[:, : self.n_components]
        self._how = self.search if self.n_features_in_ > _SEARCH_FEATURES else "exact"
        return ClassNeighbours(values, thin.owner, len(self.classes_), self._rotation, self._how)

    def _run(
        self,
        neighbours: ClassNeighbours,
        members: npt.NDArray[np.int64],
        source: npt.NDArray[np.bool_],
        unknown: npt.NDArray[np.bool_],
    ) -> npt.NDArray[np.int64]:
        """Learn metrics and exchange training photos, round by round; return the last training photos."""
        self.history_: list[dict[str, Any]] = []
        margin: float | None = None
        while True:
            neighbours.update(members)
            training = np.flatnonzero(members >= 0)
            euclidean = neighbours.photo_distances()
            if margin is None:
                margin = self.margin * _mean_lead(euclidean[training], members[training])
            scatter = neighbours.scatter(training, self.n_components)
            photos = ImageToClass(euclidean[training], scatter, members[training], self.balance, margin)
            self.metrics_, objectives = learn_metrics(photos, self.max_iter)
            self.history_.append(
                {
                    "source": int(np.sum(members[source] >= 0)),
                    "target": int(np.sum(members[unknown] >= 0)),
                    "objective": (objectives[0], objectives[-1]),
                }
            )
            if len(self.history_) > self.rounds:
                return members
            distances = neighbours.photo_distances(self.metrics_)
            following = exchange(distances, members, source, unknown, self.exchanged)
            if (following == members).all():
                return members
            members = following

    def _keep_banks(self, parts: Sequence[Bags], members: npt.NDArray[np.int64]) -> None:
        """Keep all descriptors of the last training photos, indexed for the search."""
        self._banks = []
        for number in range(len(self.classes_)):
            chosen = Bags.join(_selected(parts, members == number))
            values = comparable(chosen.values, self.mean_)
            bank = PcaBank(values, self._rotation) if self._how == "pca" else Bank(values)
            self._banks.append((bank, self._rotation(values).head[:, : self.n_components]))


def _bags(X: Any) -> Bags:
    """Return bags, also of a store, or of a list of parts that are bags or stores."""
    parts = [X] if isinstance(X, (Bags, Store)) else X
    if not all(isinstance(part, (Bags, Store)) for part in parts):
        return Bags.of(X)
    return Bags.join([part if isinstance(part, Bags) else part.load()[0] for part in parts])


def _selected(parts: Sequence[Bags], mask: npt.NDArray[np.bool_]) -> list[Bags]:
    """Return the selected photos of each part; the mask covers all parts, one after the other."""
    ends = np.cumsum([len(part) for part in parts])
    return [part[chosen] for part, chosen in zip(parts, np.split(mask, ends[:-1]), strict=True)]


def _mean_descriptor(parts: Sequence[Bags], mask: npt.NDArray[np.bool_]) -> npt.NDArray[np.float32]:
    """Return the mean of all descriptors of the selected photos."""
    chosen = [part for part in _selected(parts, mask) if len(part)]
    total = sum(part.values.sum(axis=0, dtype=np.float64) for part in chosen)
    return np.asarray(total / sum(len(part.values) for part in chosen), np.float32)


def _thinned(parts: Sequence[Bags], most: int | None) -> Bags:
    """Return all photos with at most `most` descriptors each."""
    if most is None:
        return Bags.join(parts)
    thin = []
    for seed, part in enumerate(parts):
        limits = itertools.pairwise(part.offsets.tolist())
        rows = [_random_rows(start, stop, most, seed, photo) for photo, (start, stop) in enumerate(limits)]
        offsets = np.cumsum([0, *(len(chosen) for chosen in rows)])
        thin.append(Bags(part.values[np.concatenate(rows)], offsets))
    return Bags.join(thin)


def _mean_lead(distances: npt.NDArray[np.float64], numbers: npt.NDArray[np.int64]) -> float:
    """Return how much farther the other classes are than the own class, on average."""
    own = distances[np.arange(len(numbers)), numbers]
    others = (distances.sum(axis=1) - own) / (distances.shape[1] - 1)
    return max(0.0, float(np.mean(others - own)))


def _random_rows(start: int, stop: int, most: int, seed: int, photo: int) -> npt.NDArray[np.int64]:
    """Choose at most `most` of the rows from `start` to `stop` of one photo, the first row always among them."""
    if stop - start <= most:
        return np.arange(start, stop)
    others = np.random.default_rng([seed, photo]).choice(np.arange(start + 1, stop), most - 1, replace=False)
    return np.concatenate([[start], np.sort(others)])


def exchange(
    distances: npt.NDArray[np.float64],
    members: npt.NDArray[np.int64],
    source: npt.NDArray[np.bool_],
    unknown: npt.NDArray[np.bool_],
    most: int,
) -> npt.NDArray[np.int64]:
    """Return the training photos of the next round: sure photos of the target enter, distant ones of the source leave.

    `members` are class numbers, -1 for photos that are not trained on; per class, at most `most` photos enter.
    """
    named, ranked = distances.argmin(axis=1), np.sort(distances, axis=1)
    lead, following = ranked[:, 1] - ranked[:, 0], members.copy()
    following[unknown & (named != members)] = -1
    outside = unknown & (members < 0)
    for number in range(distances.shape[1]):
        surest = _first(np.flatnonzero(outside & (named == number)), -lead, most)
        labelled = int(np.sum((members == number) & ~unknown))
        leaving = max(0, min(len(surest), labelled - _FEWEST_LABELLED))
        farthest = _first(np.flatnonzero(source & (members == number)), -distances[:, number], leaving)
        following[surest], following[farthest] = number, -1
    return following


def _first(photos: npt.NDArray[np.int64], order: npt.NDArray[np.float64], count: int) -> npt.NDArray[np.int64]:
    """Return the photos with the smallest numbers in `order`."""
    return photos[np.argsort(order[photos], kind="stable")[:count]]
