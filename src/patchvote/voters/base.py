"""What all voters share: reading bags, turning votes into labels and probabilities, and saying "none of these".

A voter gives every descriptor a vote for every class. The decision value of a bag is the mean of its votes; the largest
names the bag. Probabilities are the softmax of the decision values at a temperature, and a bag is rejected when its
largest probability is below a threshold; both are set on held-out images.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.optimize import minimize_scalar
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from ..bags.bags import Bags
from .votes import NONE, check_bags, mean_votes, softmax, votes_in_chunks

Floats = npt.NDArray[np.float32]

# With fewer images, what is held out says too little: probabilities keep the temperature 1.
FEWEST_TO_CALIBRATE = 50


class Voter(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Base of the estimators that vote; subclasses give `_vote` and `fit`.

    Attributes
    ----------
    classes_ : array
        The classes, sorted.
    n_features_in_ : int
        Features of a descriptor.
    temperature_ : float
        Of the softmax that turns decision values into probabilities.
    rejection_threshold_ : float
        Bags whose largest probability is smaller are "none of these".
    """

    classes_: npt.NDArray[Any]
    positions_: bool

    # --- what a subclass gives --------------------------------------------------------------------------------------

    def _vote(self, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Give the votes ``(n, classes)`` of descriptors, positions appended where `positions_` says so."""
        raise TypeError(f"{type(self).__name__} does not say how a descriptor votes.")

    # --- what users call --------------------------------------------------------------------------------------------

    def votes(self, X: Any) -> npt.NDArray[Any]:
        """Return the vote of every descriptor for every class.

        Parameters
        ----------
        X : Bags, list of arrays, or array
            The bags.

        Returns
        -------
        array of shape (descriptors, classes)
            Descriptors of all bags, one bag after the other.
        """
        check_is_fitted(self)
        chunks = votes_in_chunks(self._read(X), self.positions_, self._vote)
        return np.concatenate([votes for _, votes in chunks])

    def decision_function(self, X: Any) -> npt.NDArray[Any]:
        """Return the mean vote of each bag: ``(bags, classes)``, or for two classes the second's minus the first's."""
        means = self._mean_votes(X)
        return means[:, 1] - means[:, 0] if len(self.classes_) == 2 else means

    def predict(self, X: Any) -> npt.NDArray[Any]:
        """Name the class with the largest mean vote, for each bag."""
        best = np.argmax(self._mean_votes(X), axis=1)
        return np.asarray(self.classes_[best])

    def predict_proba(self, X: Any) -> npt.NDArray[Any]:
        """Return the probability of each class, for each bag."""
        means = self._mean_votes(X)
        return softmax(means / self.temperature_)

    def predict_or_none(self, X: Any, none: Any = NONE) -> npt.NDArray[Any]:
        """Name each bag, or say `none` where no class is likely enough."""
        probability = self.predict_proba(X)
        labels = self.classes_[np.argmax(probability, axis=1)].astype(object)
        labels[probability.max(axis=1) < self.rejection_threshold_] = none
        return np.asarray(labels)

    # --- reading bags -----------------------------------------------------------------------------------------------

    def _read(self, X: Any, *, fitting: bool = False) -> Bags:
        """Turn anything that means bags into checked `Bags`."""
        if not _means_bags(X):
            array = validate_data(self, X, reset=fitting, dtype=[np.float32, np.float64, np.float16])
            return Bags.of(array)
        bags = Bags.of(X)
        check_bags(bags)
        if fitting:
            self.n_features_in_ = bags.dim
        elif bags.dim != self.n_features_in_:
            raise ValueError(
                f"bags have {bags.dim} features a descriptor, but {type(self).__name__} is expecting "
                f"{self.n_features_in_} features as input. Were they extracted with the same network?"
            )
        return bags

    def _mean_votes(self, X: Any) -> npt.NDArray[Any]:
        check_is_fitted(self)
        return mean_votes(self._read(X), self.positions_, self._vote)

    # --- probabilities ----------------------------------------------------------------------------------------------

    def _calibrate(self, means: npt.NDArray[Any], labels: npt.NDArray[np.int64], rejection: float) -> None:
        """Set temperature and threshold from the mean votes of held-out images and the numbers of their classes."""
        self.temperature_ = fit_temperature(means, labels)
        probability = softmax(means / self.temperature_)
        right = probability.argmax(axis=1) == labels
        sure = probability.max(axis=1)[right]
        self.rejection_threshold_ = float(np.quantile(sure, rejection)) if len(sure) else 0.0

    def _not_calibrated(self) -> None:
        self.temperature_, self.rejection_threshold_ = 1.0, 0.0

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.three_d_array = False
        return tags


def _means_bags(X: Any) -> bool:
    if isinstance(X, Bags) or (isinstance(X, list) and not X):
        return True
    if not isinstance(X, Sequence) or isinstance(X, (str, bytes)) or not len(X):
        return isinstance(X, np.ndarray) and X.dtype == object and X.ndim == 1 and len(X) > 0 and _is_bag(X[0])
    return _is_bag(X[0])


def _is_bag(item: Any) -> bool:
    array = isinstance(item, np.ndarray) or hasattr(item, "__array__")  # tensors of torch are arrays, too
    return isinstance(item, Bags) or (array and item.ndim == 2)


def fit_temperature(means: npt.NDArray[Any], labels: npt.NDArray[np.int64]) -> float:
    """Find the temperature at which the softmax of `means` gives `labels` the smallest log loss.

    Of n images, all named rightly, one would not conclude that every other will be: labels count as right with a
    probability of (n + 1) / (n + 2), as Platt (1999) has it, or the temperature would go to 0.
    """
    gap = means - means.max(axis=1, keepdims=True)
    scale = max(float(np.abs(gap).mean()), 1e-12)
    doubt = 1 / (len(labels) + 2)

    def loss(log_temperature: float) -> float:
        shifted = gap / (scale * np.exp(log_temperature))
        right = shifted[np.arange(len(labels)), labels]
        wrong = (shifted.sum(axis=1) - right) / max(1, shifted.shape[1] - 1)
        told = (1 - doubt) * right + doubt * wrong
        return float(np.mean(np.log(np.exp(shifted).sum(axis=1)) - told))

    best = minimize_scalar(loss, bounds=(-8.0, 8.0), method="bounded")
    return float(scale * np.exp(best.x))


def temperature_for(votes: npt.NDArray[Any], confidence: float, least: float) -> float:
    """Find the smallest temperature, from `least` on, at which the mean confidence is no larger than `confidence`.

    Parameters
    ----------
    votes : array of shape (images, classes)
        Mean votes.
    confidence : float
        The largest mean of the largest probabilities.
    least : float
        The smallest temperature.
    """
    low, high = 0.0, float(np.log(1000.0))  # of the logarithm of the factor; beyond, all classes are equally likely

    def mean_confidence(log_factor: float) -> float:
        return float(softmax(votes / (least * np.exp(log_factor))).max(axis=1).mean())

    if mean_confidence(low) <= confidence:
        return least
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (middle, high) if mean_confidence(middle) > confidence else (low, middle)
    return float(least * np.exp(high))
