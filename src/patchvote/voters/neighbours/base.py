"""What NBNN and LocalNBNN share: a bank of training descriptors, and the origin of each."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
import numpy.typing as npt
from sklearn.utils.validation import check_is_fitted

from ...bags.bags import Bags
from ...bags.store import Store
from ..base import Voter
from ..labels import check_weights
from ..power import raised, resolved
from ..scorer import Scorer
from ..votes import has_positions, with_positions
from .votes import BankVotes, comparable

_ROWS = 4096  # descriptors that are normalised at once
_MOST_HELD_OUT = 50  # images for calibration: each costs a search, and more would hardly change the temperature


class BankVoter(Voter):
    """Base of NBNN and LocalNBNN: the bank of training descriptors, and the origin of each.

    Attributes
    ----------
    values_ : array of shape (n, features)
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

    normalise: bool
    power: float | str
    position_weight: float
    confidence: float
    search: str
    dtype: str
    calibration: float
    rejection: float
    random_state: Any

    power_: float
    values_: npt.NDArray[Any]
    mean_: npt.NDArray[np.float32]
    class_: npt.NDArray[np.int64]
    image_: npt.NDArray[np.int64]
    boxes_: npt.NDArray[np.float32]

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Keep the descriptors of labelled images.

        Parameters
        ----------
        X : Bags, list of arrays, array, or Store
            Training images.
        y : array of shape (images,), optional
            Classes of the images; by default those of the store.
        sample_weight : array of shape (images,), optional
            Weights of the images; those of weight 0 are left out, all others count the same.
        """
        self._check_settings()
        bags, labels = self._bags_and_labels(X, y, reset=True)
        numbers = self._set_classes(labels)
        images = np.flatnonzero(check_weights(sample_weight, len(bags)) > 0)
        self.positions_ = self.position_weight > 0 and has_positions(bags)
        self.power_ = resolved(self.power, self.power == "auto" and bool((bags.values < 0).any()))

        def train(part: npt.NDArray[np.int64], _: str) -> None:
            training = bags if len(part) == len(bags) else bags[part]
            self._set_bank(*self._descriptors(training, numbers[part], part))

        def scores(part: npt.NDArray[np.int64]) -> npt.NDArray[Any]:
            return self._mean_votes(bags[part])

        share = min(self.calibration, _MOST_HELD_OUT / len(images))
        self._train_and_calibrate(images, numbers, share, bags.means, train, scores)
        return self

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
        bags, labels = self._bags_and_labels(X, y, reset=False)
        known = self.classes_
        numbers = self._set_classes(labels, known)
        self.class_ = np.searchsorted(self.classes_, known)[self.class_]
        images = np.arange(len(bags)) + int(self.image_.max()) + 1
        part = check_weights(sample_weight, len(bags)) > 0
        before: tuple[npt.NDArray[Any], ...] = self.values_, self.class_, self.image_, self.boxes_
        after: tuple[npt.NDArray[Any], ...] = self._descriptors(bags[part], numbers[part], images[part])
        self._set_bank(*(np.concatenate([old, new]) for old, new in zip(before, after, strict=True)))
        return self

    def scorer(self) -> Scorer:
        """Return the scorer, which holds the index of the bank."""
        check_is_fitted(self)
        return self._scorer

    def _bags_and_labels(self, X: Any, y: Any, *, reset: bool) -> tuple[Bags, npt.NDArray[Any]]:
        source, labels = self._read_labelled(X, y, reset=reset)
        if isinstance(source, Store):
            source = self._read(source.load(dtype=np.float32)[0], fitting=reset)
        return source, labels

    def _descriptors(
        self, bags: Bags, numbers: npt.NDArray[Any], images: npt.NDArray[np.int64]
    ) -> tuple[npt.NDArray[Any], npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.float32]]:
        values = with_positions(bags, slice(0, len(bags.values)), self.positions_)
        return values.astype(self.dtype), numbers[bags.owner].astype(np.int64), images[bags.owner], bags.boxes

    def _comparable(self, values: npt.NDArray[Any]) -> npt.NDArray[np.float32]:
        weight = self.position_weight if self.positions_ else None
        return comparable(values, self.mean_ if self.normalise else None, weight, self.power_)

    def _set_bank(
        self,
        values: npt.NDArray[Any],
        numbers: npt.NDArray[np.int64],
        images: npt.NDArray[np.int64],
        boxes: npt.NDArray[np.float32],
    ) -> None:
        """Set the bank, and index it for the search."""
        self.values_, self.class_, self.image_, self.boxes_ = values, numbers, images, boxes
        self.mean_ = np.zeros(values.shape[1] - 2 * self.positions_, np.float32)
        if self.normalise:
            self.mean_ = self._mean_feature(values)
        self._condense()
        scorer = super().scorer()
        self._restored(scorer)

    def _mean_feature(self, values: npt.NDArray[Any]) -> npt.NDArray[np.float32]:
        """Return the mean of the features after their power normalisation."""
        total = np.zeros(len(self.mean_))
        for start in range(0, len(values), _ROWS):
            rows = values[start : start + _ROWS, : len(total)].astype(np.float32)
            total += raised(rows, self.power_).sum(axis=0, dtype=np.float64)
        return (total / len(values)).astype(np.float32)

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
        check_is_fitted(self)
        return self._scorer.recall
