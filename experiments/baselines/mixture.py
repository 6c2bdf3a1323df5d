"""Several voters together: the sum of their calibrated log probabilities, with weights from left-out answers."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
import numpy.typing as npt
from scipy.optimize import minimize
from scipy.special import log_softmax
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.model_selection import StratifiedGroupKFold

from patchvote.bags.bags import Bags
from patchvote.bags.copies import copy_groups
from patchvote.bags.store import Store
from patchvote.voters.votes import fit_temperature

from .pooled import chosen

_FOLDS = 3


class Mixture(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """The `voters`, joined by plus signs; their temperatures and weights have the least log loss of left-out photos."""

    def __init__(self, voters: str = "default+nbnn+snbnl-paper") -> None:
        self.voters = voters

    def fit(self, X: Bags | Store, y: Any) -> Self:
        """Learn from labelled images, in folds and then from all of them."""
        from ..voters import make_voter  # which names this class

        names = self.voters.split("+")
        self.classes_, numbers = np.unique(y, return_inverse=True)
        answers = np.empty((len(names), len(numbers), len(self.classes_)))
        folds = StratifiedGroupKFold(_FOLDS, shuffle=True, random_state=0)
        for keep, out in folds.split(numbers, numbers, copy_groups(X)):
            for place, name in enumerate(names):
                made = make_voter(name).fit(chosen(X, keep), numbers[keep])
                answers[place, out] = made._mean_votes(chosen(X, out))
        self.temperatures_ = np.array([fit_temperature(one, numbers) for one in answers])
        known = log_softmax(answers / self.temperatures_[:, None, None], axis=2)

        def loss(weights: npt.NDArray[np.float64]) -> float:
            mixed = log_softmax(np.tensordot(weights, known, axes=1), axis=1)
            return -float(mixed[np.arange(len(numbers)), numbers].mean())

        start = np.full(len(names), 1 / len(names))
        self.weights_ = minimize(loss, start, bounds=[(0, None)] * len(names)).x
        self.made_ = [make_voter(name).fit(X, numbers) for name in names]
        return self

    def predict(self, X: Bags) -> npt.NDArray[Any]:
        """Return the predicted label of each image."""
        answers = np.stack([voter._mean_votes(X) for voter in self.made_]) / self.temperatures_[:, None, None]
        return np.asarray(
            self.classes_[np.tensordot(self.weights_, log_softmax(answers, axis=2), axes=1).argmax(axis=1)]
        )
