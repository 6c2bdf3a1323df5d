"""The product as a voter of a protocol: its automatic choice, made on held-out training images."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator, ClassifierMixin, clone

from ...bags.bags import Bags
from ...bags.copies import copy_groups
from ...bags.store import Store
from ...models.choose import choose
from ...models.fit import candidates_for
from .pooled import means_of
from .probabilities import Probabilities


class Product(Probabilities, ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """`ImageClassifier(voter="auto")` on bags: settings and calibration come from held-out training images.

    Parameters
    ----------
    budget : float, default 60
        Seconds that the choice of settings may take.
    """

    def __init__(self, budget: float = 60.0) -> None:
        self.budget = budget

    def fit(self, X: Bags | Store, y: Any) -> Self:
        """Choose settings on held-out images, then learn from all images."""
        self.classes_, numbers = np.unique(np.asarray(y), return_inverse=True)
        means, candidates = means_of(X), candidates_for("auto", 0)
        bags: Bags | Store = X
        if all(candidate.voter.means_only for candidate in candidates):
            bags = means
        elif isinstance(X, Store) and not all(candidate.voter.reads_store for candidate in candidates):
            bags = X.load()[0]
        choice = choose(candidates, bags, numbers, budget=self.budget, groups=copy_groups(means.values))
        self.voter_ = clone(choice.candidate.voter).fit(bags, self.classes_[numbers])
        self.voter_.temperature_, self.voter_.rejection_threshold_ = choice.temperature, choice.threshold
        self.rejection_threshold_ = choice.threshold
        return self

    def predict(self, X: Bags) -> npt.NDArray[Any]:
        """Return the predicted label of each image."""
        return np.asarray(self.voter_.predict(X))

    def predict_proba(self, X: Bags) -> npt.NDArray[Any]:
        """Return the probability of each class, for each image."""
        return np.asarray(self.voter_.predict_proba(X))
