"""Adapted: a voter for photos of another domain (another camera, place, style) than those it learned from.

Photos of the new domain, the target, are at hand but have no labels. Two things are done with them:

- **Gains.** A network's features are stronger or weaker in another domain, as colours are under another lamp. Every
  feature of the source gets the gain that makes its mean that of the target: a white balance of features. (Where
  features may be negative, their means are shifted instead.) The voter then learns in the target's own terms, and the
  target's photos need no change at all.
- **Self-training.** The voter names the target's photos; those it is surest of, the same share of every class, become
  training images beside the source's, and it learns anew; twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.utils.validation import check_is_fitted

from .bag_svm import BagSVM
from .bags import Bags
from .labels import check_labels
from .store import Store
from .voter import Voter
from .voting import NONE, check_bags

_SMALL = 0.01  # of the mean feature: what is weaker than that in both domains keeps its gain near 1


class Adapted(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Makes a voter fit for another domain, from photos of it that have no labels.

    Parameters
    ----------
    voter : estimator, optional
        What learns; ``BagSVM(C=0.3)`` by default. Some of the labels that it gives itself will be wrong, so it is
        held tighter than where all are right.
    shares : sequence of float, default (0.5, 0.8)
        A round of self-training each: the share of the target's photos, of every class, that becomes training images.
        Empty for none.
    gains : bool, default True
        Whether features of the source get gains.

    Attributes
    ----------
    voter_ : estimator
        What was learned; it may be used without this wrapper.
    classes_ : array
        The classes, sorted.
    history_ : list of dict
        Of each round, how many photos of the target were taken, and how many were named otherwise than before.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> photos = [rng.random((20, 3)) + np.eye(3)[label] for label in (0, 1) for _ in range(20)]
    >>> labels = ["sea"] * 20 + ["land"] * 20
    >>> reddish = [photo * [1.0, 6.0, 1.0] for photo in photos]
    >>> float(np.mean(BagSVM().fit(photos, labels).predict(reddish) == labels))
    0.5
    >>> float(np.mean(Adapted().fit(photos, labels, reddish).predict(reddish) == labels))
    1.0
    """

    def __init__(self, voter: Any = None, *, shares: Sequence[float] = (0.5, 0.8), gains: bool = True) -> None:
        self.voter = voter
        self.shares = shares
        self.gains = gains

    def fit(self, X: Any, y: Any, target: Any, target_y: Any = None) -> Self:
        """Learn from labelled photos of the source and photos of the target.

        Parameters
        ----------
        X : Bags, list of arrays, array, or Store
            Photos of the source.
        y : array of shape (photos,)
            Their classes.
        target : Bags, list of arrays, array, or Store
            Photos of the target.
        target_y : sequence, optional
            Their classes where they are known, and None where they are not.
        """
        voter = BagSVM(C=0.3) if self.voter is None else self.voter
        if not all(isinstance(share, (int, float)) and 0 < share <= 1 for share in self.shares):
            raise ValueError(f"shares of Adapted must be numbers above 0, up to 1, got {self.shares!r}.")
        source, unknown = _bags(X, voter), _bags(target, voter)
        if source.dim != unknown.dim:
            raise ValueError(f"the source has {source.dim} features a descriptor, the target {unknown.dim}.")
        labels = check_labels(y, len(source))
        if self.gains:
            source = _moved(source, unknown)
        if target_y is not None:
            known = np.array([label is not None for label in target_y])
            if len(known) != len(unknown):
                raise ValueError(f"the target has {len(unknown)} photos, but {len(known)} labels.")
            if known.any():
                given = np.array([label for label in target_y if label is not None])
                labels = np.concatenate([labels, check_labels(given, int(known.sum()))])
                source, unknown = Bags.join([source, unknown[known]]), unknown[~known]
        self.voter_: Voter = clone(voter).fit(source, labels)
        self.history_: list[dict[str, Any]] = []
        before: npt.NDArray[Any] | None = None
        for share in self.shares if len(unknown) else ():
            means = self.voter_._mean_votes(unknown)
            names, taken = self.voter_.classes_[means.argmax(axis=1)], _surest(means, share)
            changed = 0 if before is None else int(np.sum(names != before))
            self.history_.append({"share": share, "taken": len(taken), "changed": changed})
            more = Bags.join([source, unknown[taken]])
            self.voter_ = clone(voter).fit(more, np.concatenate([labels, names[taken]]))
            before = names
        self.classes_ = self.voter_.classes_
        return self

    # --- answering, as the voter does -------------------------------------------------------------------------------

    def votes(self, X: Any) -> npt.NDArray[Any]:
        """Return the vote of every descriptor for every class."""
        check_is_fitted(self)
        return self.voter_.votes(X)

    def decision_function(self, X: Any) -> npt.NDArray[Any]:
        """Return the mean vote of each bag."""
        check_is_fitted(self)
        return self.voter_.decision_function(X)

    def predict(self, X: Any) -> npt.NDArray[Any]:
        """Name photos of the target."""
        check_is_fitted(self)
        return self.voter_.predict(X)

    def predict_proba(self, X: Any) -> npt.NDArray[Any]:
        """Return the probability of each class, for each bag."""
        check_is_fitted(self)
        return self.voter_.predict_proba(X)

    def predict_or_none(self, X: Any, none: Any = NONE) -> npt.NDArray[Any]:
        """Name each bag, or say `none` where no class is likely enough."""
        check_is_fitted(self)
        return self.voter_.predict_or_none(X, none)


def _bags(X: Any, voter: Any) -> Bags:
    """Read bags; for a voter that looks at their means alone, one descriptor a bag is all that is kept."""
    bags = X.load()[0] if isinstance(X, Store) else Bags.of(X)
    check_bags(bags)
    return Bags.of(bags.means()) if isinstance(voter, BagSVM) else bags


def _moved(source: Bags, target: Bags) -> Bags:
    """Give the source's features the means of the target's; every photo counts the same, however many descriptors."""
    here, there = (bags.means().mean(axis=0, dtype=np.float64) for bags in (source, target))
    if (source.values < 0).any() or (target.values < 0).any():
        values = source.values + (there - here)
    else:
        little = _SMALL * (here.mean() + there.mean()) / 2 or 1.0
        values = source.values * ((there + little) / (here + little))
    return Bags(values.astype(np.float32), source.offsets, source.boxes, source.level)


def _surest(means: npt.NDArray[Any], share: float) -> npt.NDArray[np.int64]:
    """Return the photos whose first class leads the second by most: the same share of every class."""
    first, names = np.sort(means, axis=1), means.argmax(axis=1)
    lead = first[:, -1] - first[:, -2]
    taken: list[int] = []
    for number in np.unique(names):
        own = np.flatnonzero(names == number)
        best = own[np.argsort(-lead[own], kind="stable")]
        taken.extend(best[: int(np.ceil(share * len(own)))].tolist())
    return np.array(sorted(taken), dtype=np.int64)
