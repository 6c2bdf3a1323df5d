"""What SNBNL and NBNL share: prototypes that are learned from standardised descriptors, and how they vote."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
import numpy.typing as npt
from sklearn.utils import check_random_state

from ...bags.bags import Bags
from ...bags.copies import copy_groups
from ...bags.store import Store
from ..base import FEWEST_TO_CALIBRATE, Voter
from ..labels import check_labels, hold_out, image_weights, labels_of
from ..votes import prototype_votes
from .minibatches import TrainingData


class PrototypeVoter(Voter):
    """Base of the voters with learned prototypes; subclasses give `_train` and their settings.

    Attributes
    ----------
    weights_ : array of shape (prototypes, classes, features)
        The prototypes, in the space of standardised features.
    mean_, scale_ : arrays
        A feature x is standardised to ``(x - mean_) * scale_``.
    history_ : list of dict
        What is known of each pass or round of the training.
    """

    prototypes: int
    q: float
    position_weight: float
    standardise: bool
    class_weight: Any
    calibration: float
    rejection: float
    block: int
    random_state: Any

    weights_: npt.NDArray[Any]
    history_: list[dict[str, Any]]

    # Settings that subclasses check: the smallest whole number, and the range of a number, that each may have.
    _whole: dict[str, int]
    _ranges: dict[str, tuple[float, float]]

    def _train(self, data: TrainingData, seed: int) -> None:
        """Make prototypes from nothing."""
        raise TypeError(f"{type(self).__name__} does not say how it learns.")

    # --- learning ---------------------------------------------------------------------------------------------------

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Learn prototypes from labelled images.

        Parameters
        ----------
        X : Bags, list of arrays, array, or Store
            The images. A store may be larger than memory.
        y : array of shape (images,), optional
            Their classes; may be left out for a store, which knows them.
        sample_weight : array of shape (images,), optional
            What each image counts.
        """
        self._check_settings()
        data = self._training_data(X, y, sample_weight)
        seeds = check_random_state(self.random_state).randint(2**31, size=3)
        self._standardise(data)
        self._not_calibrated()
        if self.calibration > 0 and len(data.images) >= FEWEST_TO_CALIBRATE:
            groups = copy_groups(data.means())
            keep, out = hold_out(data.images, data.labels, self.calibration, int(seeds[0]), groups)
            if len(out):
                self._train(data.only(keep), int(seeds[1]))
                means = self._mean_votes(self._images(data, out))
                self._calibrate(means, data.labels[out], self.rejection)
        self._train(data, int(seeds[1]))
        return self

    def _training_data(
        self,
        X: Any,
        y: Any,
        sample_weight: Any,
        learned: npt.NDArray[Any] | None = None,
        *,
        reset: bool = True,
    ) -> TrainingData:
        """Check images and labels, and set `classes_` to the classes `learned` before and those of `y`."""
        if isinstance(X, Store):
            y = labels_of(X, y)
            if not reset and X.dim != self.n_features_in_:
                raise ValueError(
                    f"the store has {X.dim} features a descriptor, but {self.n_features_in_} were learned."
                )
            self.n_features_in_ = X.dim
            source: Bags | Store = X
        else:
            if y is None:
                raise ValueError(f"{type(self).__name__} requires y to be passed, but the target y is None.")
            source = self._read(X, fitting=reset)
        labels = check_labels(y, len(source))
        known = np.unique(labels) if learned is None else np.union1d(learned, labels)
        if len(known) < 2:
            raise ValueError(f"{type(self).__name__} needs at least two classes, got one class: {known[0]!r}.")
        self.classes_, numbers = known, np.searchsorted(known, labels)
        weight = image_weights(known, numbers, labels, self.class_weight, sample_weight)
        data = TrainingData(source, numbers.astype(np.int64), weight, self.block)
        if not len(data.images):
            raise ValueError("no image has a weight above 0.")
        if reset:
            self.positions_ = data.positions and self.position_weight > 0
        data.positions, data.dim = self.positions_, source.dim + 2 * self.positions_
        return data

    def _standardise(self, data: TrainingData) -> None:
        self.mean_ = np.zeros(data.dim)
        self.scale_ = np.ones(data.dim)
        if self.standardise:
            moments = data.moments()
            self.mean_, self.scale_ = moments.mean, 1 / moments.deviation()
        if data.positions:
            self.scale_[-2:] *= self.position_weight

    def _images(self, data: TrainingData, images: npt.NDArray[np.int64]) -> Bags:
        return data.source.load(images)[0] if isinstance(data.source, Store) else data.source[images]

    # --- voting -----------------------------------------------------------------------------------------------------

    def _vote(self, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        return prototype_votes(values, self.weights_, self.mean_, self.scale_, self.q)

    # --- settings ---------------------------------------------------------------------------------------------------

    def _check_settings(self) -> None:
        name = type(self).__name__
        for setting, fewest in self._whole.items():
            value = getattr(self, setting)
            if not isinstance(value, (int, np.integer)) or isinstance(value, bool) or value < fewest:
                raise ValueError(f"{setting} of {name} must be a whole number of at least {fewest}, got {value!r}.")
        for setting, (least, most) in self._ranges.items():
            value = getattr(self, setting)
            if not isinstance(value, (int, float, np.number)) or isinstance(value, bool) or not least <= value <= most:
                raise ValueError(f"{setting} of {name} must be a number from {least:g} to {most:g}, got {value!r}.")
