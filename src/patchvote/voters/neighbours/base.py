"""What NBNN and LocalNBNN share: a bank of training descriptors, and the origin of each.

A store whose bank does not fit into the budget of memory is copied to a temporary file, which is searched part by part
(`in_parts`); nothing else differs.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from ...bags.bags import Bags
from ...bags.store import Store
from ...utils.arrays import to_float32
from ...utils.row_file import RowFile, blocks_of, temporary_rows
from ..atomic import atomic
from ..base import Numbers, Voter
from ..labels import check_weights
from ..power import raised, resolved
from ..scorer import Scorer
from ..settings import MEMORY
from ..votes import has_positions
from .in_parts import IN_PARTS, Limits, limits, needed
from .training import Bank, InFile, InMemory, StoreRows, store_has_positions
from .votes import BankVotes, comparable

_ROWS = 4096  # descriptors that are normalised at once
# Images for calibration, about, and at least one per class: each costs a search, and more would hardly change the
# temperature.
_MOST_HELD_OUT = 50


class BankVoter(Voter):
    """Base of NBNN and LocalNBNN: the bank of training descriptors, and the origin of each.

    Attributes
    ----------
    values_ : array of shape (n, features), or RowFile
        Descriptors of the bank as given, with positions; in a condensed bank, normalised centres.
    power_ : float
        Exponent of the power normalisation of features that is used.
    mean_ : array of shape (features,)
        Mean of the bank's descriptors after the power normalisation, subtracted before they are scaled to length 1;
        0 if they are not scaled.
    class_ : array of shape (n,)
        Class number of each descriptor.
    image_ : array of shape (n,)
        Number of the training image of each descriptor, in the order in which images were given.
    boxes_ : array of shape (n, 4)
        Box of each descriptor in its image.
    recall_ : float
        Share of the neighbours that the search finds: 1 for the exact search, measured for the others.
    """

    n_neighbors: int
    normalise: bool
    power: float | str
    position_weight: float
    confidence: float
    search: str
    dtype: str
    calibration: float
    rejection: float
    memory: float
    random_state: Any

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
        training = self._training(source, images, numbers)
        self.power_ = resolved(self.power, self.power == "auto" and training.negative)

        def train(part: Numbers, _: str) -> None:
            values, owner, boxes = training.bank(part)
            self._set_bank(values, numbers[owner], owner, boxes)

        def scores(part: Numbers) -> npt.NDArray[Any]:
            return self._mean_votes(training.bags(part))

        share = min(self.calibration, _MOST_HELD_OUT / len(images))
        self._train_and_calibrate(images, numbers, share, training.vectors, train, scores)
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
        known = self.classes_
        numbers = self._set_classes(labels, known)
        part = np.flatnonzero(check_weights(sample_weight, len(source)) > 0)
        values, owner, boxes = self._with_more(source, part)
        self._set_bank(
            values,
            np.concatenate([np.searchsorted(self.classes_, known)[self.class_], numbers[owner]]),
            np.concatenate([self.image_, owner + int(self.image_.max()) + 1]),
            np.concatenate([self.boxes_, boxes]),
        )
        return self

    def scorer(self) -> BankVotes:
        """Return the scorer, which holds the index of the bank."""
        self._check_fitted()
        self._scorer.memory = self.memory  # it may be changed at any time
        return self._scorer

    # --- training images, in memory or in a file --------------------------------------------------------------------

    def _in_memory(self, source: Bags | Store, more: int = 0, *, fitting: bool = True) -> Bags | Store:
        """Read a store if its bank, with `more` descriptors, fits in memory within the budget."""
        if isinstance(source, Bags) or not self._fits(source, more):
            return source
        return self._read(source.load(dtype=np.float32)[0], fitting=fitting)

    def _has_positions(self, source: Bags | Store, images: Numbers) -> bool:
        if isinstance(source, Bags):
            return has_positions(source)
        return store_has_positions(source, images, self._limits(source, images))

    def _training(self, source: Bags | Store, images: Numbers, numbers: Numbers) -> InMemory | InFile:
        """Prepare the training images; the descriptors of a store are copied to a temporary file."""
        if isinstance(source, Bags):
            return InMemory(source, self.positions_, self.dtype)
        self._check_largest_class(source, int(np.bincount(numbers[images], source.sizes[images]).max()))
        rows = StoreRows(source, images, self.positions_, self.dtype, self._limits(source, images))
        return InFile(rows, temporary_rows(rows, rows.dtype, (len(rows), source.dim + 2 * self.positions_)))

    def _with_more(self, source: Bags | Store, images: Numbers) -> Bank:
        """Return the descriptors of the bank and of more images, and the image numbers and boxes of the latter."""
        before = self.values_
        source = self._in_memory(source, len(before), fitting=False)
        if isinstance(source, Bags):
            values, owner, boxes = InMemory(source, self.positions_, self.dtype).bank(images)
            if not isinstance(before, RowFile):
                return np.concatenate([before, values]), owner, boxes
            parts: Iterable[npt.NDArray[Any]] = [values]
            dtype = values.dtype
        else:
            limits = self._limits(source, images, len(before))
            parts = rows = StoreRows(source, images, self.positions_, self.dtype, limits)
            owner, boxes, dtype = rows.owner, rows.boxes, rows.dtype
        shape = len(before) + len(owner), before.shape[1]
        both = itertools.chain(blocks_of(before), parts)
        return temporary_rows(both, np.result_type(before.dtype, dtype), shape), owner, boxes

    def _fits(self, store: Store, more: int = 0) -> bool:
        """Whether a bank of the images of a store, and of `more` descriptors, fits in memory within the budget."""
        problem = MEMORY(self.memory)
        if problem is not None:
            raise ValueError(f"memory of {type(self).__name__}{problem}.")
        return needed(int(store.sizes.sum()) + more, store.dim + 2) <= self.memory

    def _limits(self, store: Store, images: Numbers, more: int = 0) -> Limits:
        """Return how many descriptors of such a bank may be in memory if it is in a file.

        Raises
        ------
        ValueError
            The bank cannot be searched in a file, or not within the budget.
        """
        rows, width = int(store.sizes[images].sum()) + more, store.dim + 2
        if self.search not in IN_PARTS:
            raise ValueError(
                f"memory must be at least {math.ceil(needed(rows, width)):,} megabytes for the search {self.search!r}, "
                f"whose index of {rows:,} descriptors is in memory, got {self.memory:g}. Or search 'exact' or 'pca'."
            )
        return limits(
            self.memory,
            rows=rows,
            width=width,
            classes=len(self.classes_),
            n_neighbors=self.n_neighbors,
            search=self.search,
        )

    def _check_largest_class(self, store: Store, descriptors: int) -> None:
        """Refuse a class with so many descriptors that they cannot be read at once, where that is needed."""

    def _at_once(self) -> int:
        scorer = self.scorer()
        return min(super()._at_once(), scorer.limits.queries) if scorer.in_file else super()._at_once()

    # --- the bank ---------------------------------------------------------------------------------------------------

    def _comparable(self, values: npt.NDArray[Any]) -> npt.NDArray[np.float32]:
        weight = self.position_weight if self.positions_ else None
        return comparable(values, self.mean_ if self.normalise else None, weight, self.power_)

    def _set_bank(
        self,
        values: npt.NDArray[Any] | RowFile,
        numbers: Numbers,
        images: Numbers,
        boxes: npt.NDArray[np.float32],
        mean: npt.NDArray[np.float32] | None = None,
    ) -> None:
        """Set the bank, and index it for the search; by default, `mean_` is that of its descriptors."""
        self.values_, self.class_, self.image_, self.boxes_ = values, numbers, images, boxes
        self.mean_ = self._mean(self._feature_sum(values), len(values)) if mean is None else mean
        self._condense()
        scorer = super().scorer()
        self._restored(scorer)

    def _feature_sum(self, values: npt.NDArray[Any] | RowFile) -> npt.NDArray[np.float64]:
        """Return the sum of each feature after its power normalisation; 0 if descriptors are not normalised."""
        total = np.zeros(values.shape[1] - 2 * self.positions_)
        for start in range(0, len(values) if self.normalise else 0, _ROWS):
            rows = to_float32(values[start : start + _ROWS])[:, : len(total)]
            total += raised(rows, self.power_).sum(axis=0, dtype=np.float64)
        return total

    @staticmethod
    def _mean(total: npt.NDArray[np.float64], count: int) -> npt.NDArray[np.float32]:
        return (total / count).astype(np.float32)

    def _plain_settings(self) -> dict[str, Any]:
        """Return the settings, with the exponent that is used."""
        return super()._plain_settings() | ({"power": self.power_} if hasattr(self, "power_") else {})

    def _condense(self) -> None:
        """Replace the bank by fewer descriptors, if so set."""

    def _restored(self, scorer: Scorer) -> None:
        if not isinstance(scorer, BankVotes):
            raise TypeError(f"{type(self).__name__} cannot vote with {type(scorer).__name__}.")
        self.power_ = scorer.power
        self._scorer = scorer

    @property
    def recall_(self) -> float:
        """Share of the neighbours that the search finds."""
        self._check_fitted()
        return self._scorer.recall
