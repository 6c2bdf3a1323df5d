"""Adapted: a voter for photos of another domain (another camera, place, style) than those it learned from.

Photos of the new domain, the target, are at hand but have no labels. Two things are done with them:

- **Gains.** A network's features are stronger or weaker in another domain, as colours are under another lamp. Every
  feature of the source gets the gain that makes its mean that of the target: a white balance of features. (Where
  features may be negative, their means are shifted instead.) The voter then learns in the target's own terms, and the
  target's photos need no change at all. But a target of nothing but mugs has the mean of mugs, whatever its camera. So
  gains are also tried with the source's classes in the shares in which the voter finds them in the target, and are
  taken so where photos are then named with clearly more confidence.
- **Self-training.** The voter names the target's photos; those it is surest of, the same share of every class, become
  training images beside the source's, and it learns anew; twice.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
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

_LOOKS = 2  # at the target, for the shares of its classes
_AS_SURE = 0.95  # of the confidence with found shares: with less, the source's own shares are not the target's
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
        whole, known = unknown.means().mean(axis=0, dtype=np.float64), unknown[:0]
        given = labels[:0]
        if target_y is not None:
            has = np.array([label is not None for label in target_y])
            if len(has) != len(unknown):
                raise ValueError(f"the target has {len(unknown)} photos, but {len(has)} labels.")
            if has.any():
                given = check_labels(np.array([label for label in target_y if label is not None]), int(has.sum()))
                known, unknown = unknown[has], unknown[~has]
        all_labels = np.concatenate([labels, given])

        def learn(source: Bags) -> Voter:
            return clone(voter).fit(_join(source, known), all_labels)  # type: ignore[no-any-return]

        self.voter_ = learn(source)
        if self.gains:
            self.voter_, source = self._with_gains(source, labels, unknown, given, whole, learn)
        source, labels = _join(source, known), all_labels
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

    def _with_gains(
        self,
        source: Bags,
        labels: npt.NDArray[Any],
        unknown: Bags,
        given: npt.NDArray[Any],
        whole: npt.NDArray[np.float64],
        learn: Callable[[Bags], Voter],
    ) -> tuple[Voter, Bags]:
        """Return what learns from the source with gains, and that source.

        Of two accounts of the target, that its classes have the source's shares or those that are found there, the
        first is taken unless photos are clearly more surely named under the second.
        """
        alike = _moved(source, labels, labels, whole)
        first = learn(alike)
        if not len(unknown):
            return first, alike
        second, other = self.voter_, source
        for _ in range(_LOOKS):
            other = _moved(source, labels, np.concatenate([given, second.predict(unknown)]), whole)
            second = learn(other)
        sure, surer = (float(_lead(voter._mean_votes(unknown)).mean()) for voter in (first, second))
        return (second, other) if sure < _AS_SURE * surer else (first, alike)

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


def _join(source: Bags, known: Bags) -> Bags:
    return Bags.join([source, known]) if len(known) else source


def _moved(source: Bags, labels: npt.NDArray[Any], found: npt.NDArray[Any], there: npt.NDArray[np.float64]) -> Bags:
    """Give the source's features the means that they have in the target.

    Every photo counts the same, however many descriptors it has, and every class as often as it is found there.

    Parameters
    ----------
    source, labels
        Photos and their classes.
    found : array
        Classes that were found in the target, a photo each.
    there : array of shape (features,)
        The target's means.
    """
    means = source.means()
    classes, counts = np.unique(found[np.isin(found, labels)], return_counts=True)
    by_class = [means[labels == label].mean(axis=0, dtype=np.float64) for label in classes]
    here = np.average(by_class, axis=0, weights=counts) if by_class else means.mean(axis=0, dtype=np.float64)
    if (source.values < 0).any() or (there < 0).any():
        values = source.values + (there - here)
    else:
        little = _SMALL * (here.mean() + there.mean()) / 2 or 1.0
        values = source.values * ((there + little) / (here + little))
    return Bags(values.astype(np.float32), source.offsets, source.boxes, source.level)


def _lead(means: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return by how much the first class of each photo leads the second."""
    first = np.sort(means, axis=1)
    return np.asarray(first[:, -1] - first[:, -2])


def _surest(means: npt.NDArray[Any], share: float) -> npt.NDArray[np.int64]:
    """Return the photos whose first class leads the second by most: the same share of every class."""
    lead, names = _lead(means), means.argmax(axis=1)
    taken: list[int] = []
    for number in np.unique(names):
        own = np.flatnonzero(names == number)
        best = own[np.argsort(-lead[own], kind="stable")]
        taken.extend(best[: int(np.ceil(share * len(own)))].tolist())
    return np.array(sorted(taken), dtype=np.int64)
