"""Baselines with one vector per image and a simple classifier.

`WholeImageSvm`, `WholeImageLogistic` and `WholeImageNearestMean` take the descriptor of the whole image, `MeanSvm` the
mean of all descriptors of the bag.
"""

from __future__ import annotations

import abc
from collections.abc import Iterator
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import pairwise_distances
from sklearn.model_selection import GridSearchCV, StratifiedKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import Normalizer
from sklearn.svm import LinearSVC

from ...bags.bags import Bags
from ...bags.store import Store
from ...voters.bag_svm import pooled
from ...voters.votes import softmax
from .probabilities import Probabilities, calibrated, decision_values

Floats = npt.NDArray[np.float32]
# Candidates of C, for vectors of length 1. Cross-validation on the training images chooses one; the middle one is used
# where a class has a single image.
_STRENGTHS = {"svm": (1.0, 3.0, 10.0), "logistic": (10.0, 100.0, 1000.0)}
_BLOCK_DESCRIPTORS = 50_000  # read from a store at once: 256 MB with 1,280 features as float32


def blocks_of(images: Bags | Store) -> Iterator[Bags]:
    """Yield bags that are in memory unchanged, and those of a store block by block."""
    if isinstance(images, Bags):
        yield images
        return
    for bags, _ in images.blocks(_BLOCK_DESCRIPTORS):
        yield bags


def means_of(images: Bags | Store) -> Bags:
    """Return bags with one descriptor each, the mean: some voters use nothing else."""
    return pooled(images) if isinstance(images, Store) else Bags.of(images.means())


class PooledClassifier(Probabilities, ClassifierMixin, BaseEstimator, abc.ABC):  # type: ignore[misc]
    """A simple classifier of one vector per image, normalised to length 1.

    Standardised features gave 1 to 2 points less on Scene-15.

    Parameters
    ----------
    random_state : int, default 0
        Seed of the folds and of the choice of held-out images.
    calibration : float, default 0
        Share of the images held out to set the temperature of the probabilities and the threshold of rejection, in a
        separate training. With 0, or fewer than 50 images, the temperature is 1.
    rejection : float, default 0.05
        Share of the correctly classified held-out images that may be rejected as "none of these".
    """

    def __init__(self, random_state: int = 0, calibration: float = 0.0, rejection: float = 0.05) -> None:
        self.random_state = random_state
        self.calibration = calibration
        self.rejection = rejection

    def fit(self, X: Bags | Store, y: Any) -> Self:
        """Learn from labelled images; of a store, at most one block is in memory at a time."""
        self._prepare(X)
        vectors, labels = self._vectors(X), np.asarray(y)
        held_out = self.calibration, self.rejection, self.random_state
        self.temperature_, self.rejection_threshold_ = calibrated(self._learned, vectors, labels, *held_out)
        self.model_ = self._learned(vectors, labels)
        self.classes_ = self.model_.classes_
        return self

    def _learned(self, vectors: Floats, labels: npt.NDArray[Any]) -> Any:
        """Return a classifier trained on vectors, with settings that cross-validation chooses."""
        model, grid = self._classifier()
        model = make_pipeline(Normalizer(), model)
        fewest = int(np.unique(labels, return_counts=True)[1].min())
        if grid and fewest > 1:
            folds = StratifiedKFold(min(3, fewest), shuffle=True, random_state=self.random_state)
            model = GridSearchCV(model, {f"{model.steps[1][0]}__{key}": value for key, value in grid.items()}, cv=folds)
        return model.fit(vectors, labels)

    def _classifier(self) -> tuple[Any, dict[str, tuple[float, ...]]]:
        """Return the classifier, and the settings among which cross-validation in training chooses."""
        strengths = _STRENGTHS["svm"]
        return LinearSVC(C=strengths[1], random_state=0), {"C": strengths}

    def predict(self, X: Bags) -> npt.NDArray[Any]:
        """Return the predicted label of each image."""
        return np.asarray(self.model_.predict(self._vectors(X)))

    def predict_proba(self, X: Bags) -> npt.NDArray[Any]:
        """Return the probability of each class, for each image."""
        return softmax(decision_values(self.model_, self._vectors(X)) / self.temperature_)

    def _prepare(self, images: Bags | Store) -> None:
        """Learn from the training images how to compute the vector of an image."""

    def _vectors(self, images: Bags | Store) -> Floats:
        """Return one vector per image."""
        return np.concatenate([self._vectors_of_block(bags) for bags in blocks_of(images)])

    @abc.abstractmethod
    def _vectors_of_block(self, bags: Bags) -> Floats:
        """Return one vector per image of a block."""


class WholeImageSvm(PooledClassifier):
    """The descriptor of the whole image (level 0), and a linear SVM."""

    def _vectors_of_block(self, bags: Bags) -> Floats:
        whole = bags.values[bags.level == 0]
        if len(whole) != len(bags):
            raise ValueError(f"{len(bags)} bags have {len(whole)} descriptors of a whole image; each needs one.")
        return np.asarray(whole, np.float32)


class WholeImageLogistic(WholeImageSvm):
    """The descriptor of the whole image, and logistic regression."""

    def _classifier(self) -> tuple[Any, dict[str, tuple[float, ...]]]:
        strengths = _STRENGTHS["logistic"]
        return LogisticRegression(C=strengths[1], max_iter=1000), {"C": strengths}


class WholeImageNearestMean(WholeImageSvm):
    """The descriptor of the whole image, and the class whose mean is nearest."""

    def _classifier(self) -> tuple[Any, dict[str, tuple[float, ...]]]:
        return _NearestMean(), {}


class _NearestMean(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """The class whose mean is nearest; that of scikit-learn divides by 0 where every class has one image."""

    def fit(self, X: Floats, y: npt.NDArray[Any]) -> Self:
        self.classes_ = np.unique(y)
        self.means_ = np.stack([X[y == label].mean(axis=0) for label in self.classes_])
        return self

    def decision_function(self, X: Floats) -> npt.NDArray[Any]:
        return np.asarray(-pairwise_distances(X, self.means_))

    def predict(self, X: Floats) -> npt.NDArray[Any]:
        return np.asarray(self.classes_[self.decision_function(X).argmax(axis=1)])


class MeanSvm(PooledClassifier):
    """The mean of all descriptors of an image, and a linear SVM."""

    def _vectors_of_block(self, bags: Bags) -> Floats:
        return np.asarray(bags.means(), np.float32)
