"""The product as voters of a protocol: its automatic choice, and its adaptation to another domain."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator, ClassifierMixin, clone

from ...bags.bags import Bags
from ...bags.store import Store
from ...models.choose import choose
from ...models.fit import candidates_for
from ...voters.adapted import Adapted
from ...voters.bag_svm import BagSVM
from ...voters.prototypes.snbnl import SNBNL
from .pooled import blocks_of, means_of
from .scales import at_scale, check_scales, levels_of


class Product(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """`ImageClassifier(voter="auto")` on bags: settings are chosen on held-out training images.

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
        means = means_of(X)
        choice = choose(candidates_for("auto", 0), means, numbers, budget=self.budget)
        self.voter_ = clone(choice.candidate.voter).fit(means, self.classes_[numbers])
        return self

    def predict(self, X: Bags) -> npt.NDArray[Any]:
        """Return the predicted label of each image."""
        return np.asarray(self.voter_.predict(X))


class AdaptedVoter(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """`Adapted`, with settings that a name in a table can include.

    Parameters
    ----------
    voter : {"bag-svm", "snbnl"}, default "bag-svm"
        Kind of voter that is adapted.
    scales : {"bag", "whole", "first", "last"}, default "bag"
        The descriptors that it sees: all of the bag, or those of one scale (see `scales`): "bag-svm" with one of these
        is the pooled image at that resolution, adapted in the same way.
    C : float, default 0.3
        Inverse regularisation strength of "bag-svm".
    gains : bool, default True
        Whether the features of the source are rescaled by gains.
    rounds : int, default 2
        Rounds of self-training.
    """

    def __init__(
        self,
        voter: str = "bag-svm",
        *,
        scales: str = "bag",
        C: float = 0.3,
        gains: bool = True,
        rounds: int = 2,
    ) -> None:
        self.voter = voter
        self.scales = scales
        self.C = C
        self.gains = gains
        self.rounds = rounds

    def fit(self, X: Bags | Store, y: Any, target: Sequence[Bags | Store], target_y: Any) -> Self:
        """Learn from labelled images of the source, and from images of the target in one or more parts."""
        self._check_settings()
        if self.voter == "bag-svm":  # it uses only means, which take a hundredth of the memory
            parts, voter = [self._means(part) for part in (X, *target)], BagSVM(self.C, calibration=0)
        else:
            parts = [self._seen(part.load()[0] if isinstance(part, Store) else part) for part in (X, *target)]
            voter = SNBNL(calibration=0)
        adapted = Adapted(voter, gains=self.gains, shares=Adapted().shares[: self.rounds])
        self.adapted_ = adapted.fit(parts[0], y, Bags.join(parts[1:]), target_y)
        return self

    def predict(self, X: Bags) -> npt.NDArray[Any]:
        """Return the predicted label of each image."""
        return np.asarray(self.adapted_.predict(self._seen(X)))

    def _seen(self, bags: Bags) -> Bags:
        """Return the bags with the descriptors that the voter sees."""
        if self.scales == "bag":
            return bags
        return at_scale(bags, levels_of(self.scales, int(bags.level.max()))[0])

    def _means(self, images: Bags | Store) -> Bags:
        """Return bags of one descriptor each: the mean of what the voter sees."""
        return Bags.of(np.concatenate([self._seen(bags).means() for bags in blocks_of(images)]))

    def _check_settings(self) -> None:
        check_scales(self.scales, ("bag", "whole", "first", "last"))
        if self.voter not in ("bag-svm", "snbnl") or self.rounds not in (0, 1, 2):
            raise ValueError(f"voter must be bag-svm or snbnl, and rounds 0, 1 or 2; got {self.voter}, {self.rounds}.")
