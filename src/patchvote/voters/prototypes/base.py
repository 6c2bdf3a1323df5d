"""What SNBNL and NBNL share: prototypes that are learned from standardised descriptors."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
import numpy.typing as npt
from sklearn.utils import check_random_state

from ...bags.bags import Bags
from ...bags.store import Store
from ..base import Voter, joined
from ..labels import image_weights
from ..outputs import scores_of
from ..power import resolved
from ..scorer import Scorer
from ..settings import MEMORY
from .blocks import Limits, limits
from .minibatches import TrainingData


class PrototypeVoter(Voter):
    """Base of the voters with learned prototypes; subclasses define `_train` and their settings.

    Attributes
    ----------
    weights_ : array of shape (prototypes, classes, features)
        The prototypes, in the space of standardised features.
    power_ : float
        Exponent of the power normalisation of features that is used.
    mean_, scale_ : arrays
        Mean and factor of each feature after the power normalisation: x is standardised to ``(x - mean_) * scale_``.
    history_ : list of dict
        Record of each pass or round of the final training.
    """

    n_prototypes: int
    q: float
    power: float | str
    position_weight: float
    confidence: float
    standardise: bool
    class_weight: Any
    calibration: float
    rejection: float
    memory: float
    block: int | None
    batch_size: int
    random_state: Any

    power_: float
    weights_: npt.NDArray[Any]
    mean_: npt.NDArray[np.float64]
    scale_: npt.NDArray[np.float64]
    history_: list[dict[str, Any]]

    def _train(self, data: TrainingData, seed: int, training: str) -> None:
        """Train prototypes from scratch; `training` is the purpose, "calibration" or "final"."""
        raise TypeError(f"{type(self).__name__} does not define _train.")

    # --- learning ---------------------------------------------------------------------------------------------------

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Learn prototypes from labelled images.

        Parameters
        ----------
        X : Bags, list of arrays, array, or Store
            Training images. A store may be larger than memory.
        y : array of shape (images,), optional
            Classes of the images; by default those of the store.
        sample_weight : array of shape (images,), optional
            Weights of the images; those of weight 0 are left out.
        """
        self._check_settings()
        data = self._training_data(X, y, sample_weight)
        seeds = check_random_state(self.random_state).randint(2**31, size=3)
        self._standardise(data)
        self._begin(data, seeds)

        def train(images: npt.NDArray[np.int64], training: str) -> None:
            self._train(data if training == "final" else data.only(images), int(seeds[1]), training)

        def scores(images: npt.NDArray[np.int64]) -> npt.NDArray[Any]:
            return self._scores(data, images)

        images, share = data.images, self.calibration
        self._train_and_calibrate(images, data.labels, share, data.vectors, train, scores, int(seeds[0]))
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
        source, labels = self._read_labelled(X, y, reset=reset)
        numbers = self._set_classes(labels, learned)
        weight = image_weights(self.classes_, numbers, self.class_weight, sample_weight)
        data = TrainingData(source, numbers, weight, self._limits(source))
        if reset:
            self.power_ = resolved(self.power, self.power == "auto" and data.has_negative_features())
            self.positions_ = data.positions and self.position_weight > 0
        data.positions, data.dim, data.power = self.positions_, source.dim + 2 * self.positions_, self.power_
        return data

    def _standardise(self, data: TrainingData) -> None:
        self.mean_ = np.zeros(data.dim)
        self.scale_ = np.ones(data.dim)
        if self.standardise:
            moments = data.moments()
            self.mean_, self.scale_ = moments.mean, 1 / moments.deviation()
        if data.positions:
            self.scale_[-2:] *= self.position_weight

    def _limits(self, source: Bags | Store) -> Limits:
        """Return how many descriptors of a store may be in memory; bags are there already."""
        if isinstance(source, Bags):
            return Limits(len(source.values), len(source.values))
        problem = MEMORY(self.memory)
        if problem is not None:
            raise ValueError(f"memory of {type(self).__name__}{problem}.")
        return limits(
            self.memory,
            self.block,
            dim=source.dim,
            itemsize=np.dtype(source.dtype).itemsize,
            prototypes=self.n_prototypes,
            classes=len(self.classes_),
            batch_size=self.batch_size,
            votes=self._holds_out(),
        )

    def _holds_out(self) -> bool:
        """Whether images are held out and classified during the training."""
        return self.calibration > 0

    def _scores(self, data: TrainingData, images: npt.NDArray[np.int64]) -> npt.NDArray[Any]:
        """Return the mean votes of some images; those of a store are read in small blocks."""
        scorer = self.scorer()
        return joined([scores_of(scorer, bags) for bags in data.bags(images)])

    def _begin(self, data: TrainingData, seeds: npt.NDArray[np.int64]) -> None:
        """Prepare the trainings of a fit; called once the features are standardised."""

    def _plain_settings(self) -> dict[str, Any]:
        """Return the settings, with the exponent that is used."""
        return super()._plain_settings() | ({"power": self.power_} if hasattr(self, "power_") else {})

    def _restored(self, scorer: Scorer) -> None:
        self.power = self.power_ = float(scorer.settings.get("power", 1.0))
        self.steps_, self.n_iter_, self.history_ = 0, 0, []
