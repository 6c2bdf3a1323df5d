"""NBNN: Naive Bayes Nearest Neighbour, and what it shares with LocalNBNN.

Nothing is learned: every descriptor of the training images is kept. A descriptor votes for a class with minus its
squared distance to the nearest descriptor of that class, and the class with the largest mean vote (the smallest sum of
distances) names the image.

References
----------
Boiman, Shechtman and Irani, "In Defense of Nearest-Neighbor Based Image Classification", CVPR 2008.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from ..bags.bags import Bags
from ..bags.store import Store
from ..utils.arrays import to_float32
from ..utils.row_file import RowFile, blocks_of, temporary_rows
from ..utils.terminal import nearest
from .bank_votes import BankVotes, Limits, NeighbourVotes, limits, needed
from .base import Numbers, Voter, atomic
from .labels import check_weights
from .votes import check_bags, has_negative, has_positions, raised, resolved, with_positions

_ROWS = 4096  # descriptors that are normalised at once
# Images for calibration, about, and at least one per class: each costs a search, and more would hardly change the
# temperature.
_MOST_HELD_OUT = 50


@dataclasses.dataclass(frozen=True, eq=False)
class Descriptors:
    """Descriptors of images with positions, in memory or in a file, the image number and the box of each."""

    values: npt.NDArray[Any] | RowFile
    owner: Numbers
    boxes: npt.NDArray[np.float32]
    negative: bool = False  # whether a feature is negative

    def of(self, images: Numbers) -> Descriptors:
        """Return the descriptors of some images."""
        rows = np.flatnonzero(np.isin(self.owner, images))
        if len(rows) == len(self.owner):
            return self
        values = self.values.take(rows) if isinstance(self.values, RowFile) else self.values[rows]
        return Descriptors(values, self.owner[rows], self.boxes[rows], self.negative)


class BankVoter(Voter):
    """Base of NBNN and LocalNBNN: the bank of training descriptors, and the origin of each."""

    n_neighbors: int
    normalise: bool
    power: float | str
    position_weight: float
    search: str
    dtype: str
    random_state: Any

    _scorer: BankVotes
    power_: float
    values_: npt.NDArray[Any] | RowFile
    mean_: npt.NDArray[np.float32]
    class_: npt.NDArray[np.int64]
    image_: npt.NDArray[np.int64]
    boxes_: npt.NDArray[np.float32]

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Keep the descriptors of labelled images.

        Parameters
        ----------
        X : Bags, list of arrays, array, or Store
            Training images. A store may be larger than memory.
        y : array of shape (images,), optional
            Classes of the images; by default those of the store.
        sample_weight : array of shape (images,), optional
            Weights of the images; those of weight 0 are left out, all others count the same.
        """
        self._check_settings()
        source, labels = self._read_labelled(X, y, reset=True)
        numbers = self._set_classes(labels)
        images = np.flatnonzero(check_weights(sample_weight, len(source)) > 0)
        source = self._in_memory(source)
        self.positions_ = self.position_weight > 0 and self._has_positions(source, images)
        every = self._descriptors(source, images, numbers)
        self.power_ = resolved(self.power, self.power == "auto" and every.negative)

        def train(part: Numbers, _: str) -> None:
            chosen = every.of(part)
            self._set_bank(chosen.values, numbers[chosen.owner], chosen.owner, chosen.boxes)

        def scores(part: Numbers) -> npt.NDArray[Any]:
            held_out = source[part] if isinstance(source, Bags) else source.only([source.names[i] for i in part])
            return self._mean_votes(held_out)

        share = min(self.options.calibration, _MOST_HELD_OUT / len(images))
        self._train_and_calibrate(images, numbers, source, train, scores, share=share)
        return self

    @atomic
    def partial_fit(self, X: Any, y: Any = None, classes: Any = None, sample_weight: Any = None) -> Self:
        """Add more images, of any class; the result is that of `fit` with all of them.

        Parameters
        ----------
        X, y, sample_weight
            As in `fit`.
        classes : array, optional
            Ignored, since new classes may come at any time; accepted for scikit-learn's tools.
        """
        if not hasattr(self, "values_"):
            return self.fit(X, y, sample_weight)
        self._check_settings()
        source, labels = self._read_labelled(X, y, reset=False)
        known, before = self.classes_, self.values_
        numbers = self._set_classes(labels, known)
        part = np.flatnonzero(check_weights(sample_weight, len(source)) > 0)
        new = self._descriptors(self._in_memory(source, len(before), fitting=False), part, numbers, len(before))
        if isinstance(before, RowFile) or isinstance(new.values, RowFile):
            dtype = np.result_type(before.dtype, new.values.dtype)
            shape = len(before) + len(new.owner), before.shape[1]
            values: Any = temporary_rows(itertools.chain(blocks_of(before), blocks_of(new.values)), dtype, shape)
        else:
            values = np.concatenate([before, new.values])
        self._set_bank(
            values,
            np.concatenate([np.searchsorted(self.classes_, known)[self.class_], numbers[new.owner]]),
            np.concatenate([self.image_, new.owner + int(self.image_.max()) + 1]),
            np.concatenate([self.boxes_, new.boxes]),
        )
        return self

    def scorer(self) -> BankVotes:
        """Return the scorer, which holds the index of the bank."""
        self._check_fitted()
        self._scorer.memory = self.options.memory  # it may be changed at any time
        return self._scorer

    @property
    def recall_(self) -> float:
        """Share of the neighbours that the search finds: 1 if it is exact, otherwise measured on the bank."""
        self._check_fitted()
        return self._scorer.recall

    # --- training images, in memory or in a file --------------------------------------------------------------------

    def _in_memory(self, source: Bags | Store, more: int = 0, *, fitting: bool = True) -> Bags | Store:
        """Read a store if its bank, with `more` descriptors, fits in memory within the budget."""
        if isinstance(source, Bags) or needed(int(source.sizes.sum()) + more, source.dim + 2) > self.options.memory:
            return source
        return self._read(source.load(dtype=np.float32)[0], fitting=fitting)

    def _has_positions(self, source: Bags | Store, images: Numbers) -> bool:
        if isinstance(source, Bags):
            return has_positions(source)
        blocks = source.blocks(self._limits(source, images).rows, indices=images, dtype=source.dtype)
        return any(has_positions(bags) for bags, _ in blocks)  # as a rule, those of the first image tell

    def _descriptors(self, source: Bags | Store, images: Numbers, numbers: Numbers, more: int = 0) -> Descriptors:
        """Return the descriptors of images; those of a store are copied to a temporary file."""
        if isinstance(source, Bags):
            bags = source if len(images) == len(source) else source[images]
            values = with_positions(bags, slice(0, len(bags.values)), self.positions_).astype(self.dtype)
            return Descriptors(values, images[bags.owner], bags.boxes, has_negative(bags.values))
        owner = np.repeat(images, source.sizes[images])
        boxes = np.empty((len(owner), 4), np.float32)
        # The smallest type that keeps all digits that a bank of this type would have in memory.
        exact = np.result_type(source.dtype, np.float32 if self.positions_ else np.float16)
        dtype = np.dtype(np.float16) if self.dtype == "float16" else exact
        negative = False

        def parts() -> Iterator[npt.NDArray[Any]]:
            nonlocal negative
            done = 0
            size = self._limits(source, images, more).rows
            for bags, _ in source.blocks(size, indices=images, dtype=source.dtype):
                check_bags(bags)
                negative = negative or has_negative(bags.values)
                boxes[done : done + len(bags.values)] = bags.boxes
                done += len(bags.values)
                yield with_positions(bags, slice(0, len(bags.values)), True) if self.positions_ else bags.values

        rows = temporary_rows(parts(), dtype, (len(owner), source.dim + 2 * self.positions_))
        return Descriptors(rows, owner, boxes, negative)

    def _limits(self, store: Store, images: Numbers, more: int = 0) -> Limits:
        """Return how many descriptors of such a bank may be in memory if it is in a file."""
        rows, classes = int(store.sizes[images].sum()) + more, len(self.classes_)
        size = {"rows": rows, "width": store.dim + 2, "classes": classes, "n_neighbors": self.n_neighbors}
        return limits(self.options.memory, search=self.search, **size)

    def _at_once(self) -> int:
        scorer = self.scorer()
        return min(super()._at_once(), scorer.limits.queries) if scorer.in_file else super()._at_once()

    # --- the bank ---------------------------------------------------------------------------------------------------

    def _set_bank(
        self,
        values: npt.NDArray[Any] | RowFile,
        numbers: Numbers,
        images: Numbers,
        boxes: npt.NDArray[np.float32],
    ) -> None:
        """Set the bank, the mean of its descriptors, and the scorer that indexes it."""
        self.values_, self.class_, self.image_, self.boxes_ = values, numbers, images, boxes
        self.mean_ = (self._feature_sum(values) / len(values)).astype(np.float32)
        self._check_enough()
        self._restored(super().scorer())

    def _feature_sum(self, values: npt.NDArray[Any] | RowFile) -> npt.NDArray[np.float64]:
        """Return the sum of each feature after its power normalisation; 0 if descriptors are not normalised."""
        total = np.zeros(values.shape[1] - 2 * self.positions_)
        for start in range(0, len(values) if self.normalise else 0, _ROWS):
            rows = to_float32(values[start : start + _ROWS])[:, : len(total)]
            total += raised(rows, self.power_).sum(axis=0, dtype=np.float64)
        return total

    def _plain_settings(self) -> dict[str, Any]:
        """Return the settings, with the exponent that is used."""
        return super()._plain_settings() | ({"power": self.power_} if hasattr(self, "power_") else {})

    def _check_enough(self) -> None:
        """Refuse a class with fewer descriptors than the votes need."""

    def _restored(self, scorer: Any) -> None:
        self.power_ = scorer.power
        self._scorer = scorer


class NBNN(BankVoter):
    """Votes with minus the squared distance to the nearest training descriptor of each class.

    Parameters
    ----------
    n_neighbors : int, default 1
        Number of nearest descriptors of a class over which distances are averaged.
    normalise : bool, default True
        Whether the mean of the training descriptors is subtracted, and descriptors are scaled to length 1, before they
        are compared. The paper does neither. The common mean hides differences: on held-out training photos of
        Scene-15, 90.3 % of `dense` bags are classified correctly with both, 88.3 % with neither, 82.7 % with length 1
        alone.
    power : float or "auto", default 1
        Exponent of the power normalisation of features, which comes first: 1 changes nothing, as in the paper; 0.5
        takes square roots. "auto" is 0.5, or 1 if features are negative.
    position_weight : float, default 0
        Weight of the two position features, in 0..1, that are added to the descriptor.
    confidence : float, default 0
        Exponent of the weight of a descriptor's vote, the difference of its two largest votes; 0 gives all the same
        weight, as in the paper.
    search : {"exact", "pca"}, default "exact"
        Search for neighbours. "pca" is approximate; `recall_` is how often it finds the nearest. A bank that does not
        fit into `FitOptions.memory` is kept in a temporary file and read part by part in every search; votes are the
        same, and the exact search is then by brute force.
    dtype : {"float32", "float16"}, default "float32"
        Type of the bank; float16 takes half the memory, and more time.
    random_state : int or None, default 0
        Seed of the choice of held-out images: about 50 in all at most, and at least one per class.

    Attributes
    ----------
    recall_ : float
        Share of the nearest neighbours that the search finds: 1 for the exact search; for "pca", measured on
        descriptors of the bank against banks of other classes.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> bags = [rng.normal(loc=label, size=(20, 4)) for label in (0, 3) for _ in range(3)]
    >>> voter = NBNN(normalise=False).fit(bags, ["sea"] * 3 + ["land"] * 3)
    >>> voter.predict([np.full((5, 4), 3.0)])
    array(['land'], dtype='<U4')
    """

    scorer_class = NeighbourVotes
    description = "each part of a photo votes by its distance to the most similar part of each class"

    def __init__(
        self,
        n_neighbors: int = 1,
        *,
        normalise: bool = True,
        power: float | str = 1.0,
        position_weight: float = 0.0,
        confidence: float = 0.0,
        search: str = "exact",
        dtype: str = "float32",
        random_state: Any = 0,
    ) -> None:
        self.n_neighbors = n_neighbors
        self.normalise = normalise
        self.power = power
        self.position_weight = position_weight
        self.confidence = confidence
        self.search = search
        self.dtype = dtype
        self.random_state = random_state

    def matches(self, X: Any, label: Any) -> tuple[npt.NDArray[Any], npt.NDArray[Any], npt.NDArray[Any]]:
        """Return images, boxes and squared distances of the nearest training descriptors of the class `label`.

        One of each per descriptor of `X`; see `Scorer.matches`.
        """
        known = self.classes_.tolist()
        if label not in known:
            raise ValueError(f"label of matches must be a class, got {label!r}.{nearest(str(label), map(str, known))}")
        scorer: Any = self.scorer()
        found: tuple[Any, Any, Any] = scorer.matches(self._read(X), known.index(label))
        return found

    def _check_enough(self) -> None:
        counts = np.bincount(self.class_, minlength=len(self.classes_))
        if counts.min() < self.n_neighbors:
            label = self.classes_[counts.argmin()]
            raise ValueError(
                f"class {str(label)!r} has {counts.min()} descriptors, fewer than {self.n_neighbors} neighbours."
            )
