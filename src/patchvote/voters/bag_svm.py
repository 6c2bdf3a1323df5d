"""BagSVM: linear votes, trained on the bag as a whole.

The paper relaxes its objective from the mean vote of a bag to single descriptors, and so trains every descriptor to
name its image by itself. Here the relaxation is undone: a linear SVM learns from one vector a bag (`pooling`), and its
score is shared out among the descriptors, exactly. It needs no more than the mean of every training image, so that it
trains in a fraction of a second, works with one image a class, and learns more images later as if they had been there
at first.
"""

from __future__ import annotations

from typing import Any, Self

import numpy as np
import numpy.typing as npt
from sklearn.svm import LinearSVC
from sklearn.utils.validation import check_is_fitted

from ..bags.bags import Bags
from ..bags.copies import copy_groups
from ..bags.store import Store
from .base import FEWEST_TO_CALIBRATE, Voter
from .labels import check_labels, hold_out, labels_of
from .pooling import ROOT, bag_vectors, shared_votes
from .votes import check_bags

_AT_ONCE = 50_000  # descriptors of a store in memory


class BagSVM(Voter):
    """Votes with a linear function of every descriptor, learned from the means of the bags.

    Parameters
    ----------
    C : float, default 1
        Strength of the fit, for vectors whose mean squared length is 1: smaller regularises more.
    power : float or "auto", default "auto"
        Of the features of a bag's mean: 0.5 takes roots, 1 leaves them. "auto" takes roots unless a mean is negative.
    class_weight : dict, "balanced" or None
        As in scikit-learn; weights of the classes.
    calibration : float, default 0.2
        Share of the images held out to set the temperature of the probabilities and the threshold of rejection, by a
        training of its own. 0 leaves the temperature at 1, as do fewer than 50 images.
    rejection : float, default 0.05
        Share of the rightly named held-out images that "none of these" may cost.
    random_state : int, default 0
        Seed of the choice of held-out images and of the solver.

    Attributes
    ----------
    classes_ : array
        The classes, sorted.
    linear_ : array of shape (classes, features)
        Weights of the score of a bag's vector.
    bias_ : array of shape (classes,)
        Added to it.
    power_ : float
        The power that was taken.
    vectors_ : array of shape (images, features)
        Means of the training images, from which more can be learned.
    class_ : array of shape (images,)
        Numbers of their classes.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> bags = [rng.random((20, 4)) + np.eye(4)[label] for label in (0, 1) for _ in range(10)]
    >>> labels = ["sea"] * 10 + ["land"] * 10
    >>> voter = BagSVM().fit(bags, labels)
    >>> voter.predict([np.eye(4)[[0, 2]]])
    array(['sea'], dtype='<U4')
    >>> votes = voter.votes(bags[:1])  # of every descriptor; their mean is the bag's score
    >>> bool(np.isclose(votes[:, 1].mean() - votes[:, 0].mean(), voter.decision_function(bags[:1])[0], atol=1e-5))
    True
    """

    positions_ = False  # where a descriptor looks plays no part in the mean

    def __init__(
        self,
        C: float = 1.0,
        *,
        power: float | str = "auto",
        class_weight: Any = None,
        calibration: float = 0.2,
        rejection: float = 0.05,
        random_state: int = 0,
    ) -> None:
        self.C = C
        self.power = power
        self.class_weight = class_weight
        self.calibration = calibration
        self.rejection = rejection
        self.random_state = random_state

    # --- learning ---------------------------------------------------------------------------------------------------

    def fit(self, X: Any, y: Any = None) -> Self:
        """Learn from labelled images.

        Parameters
        ----------
        X : Bags, list of arrays, array, or Store
            The images. A store may be larger than memory: its means are what is held.
        y : array of shape (images,), optional
            Their classes; may be left out for a store, which knows them.
        """
        self._check_settings()
        means, labels, signed = self._means_and_labels(X, y, reset=True)
        self.power_ = (1.0 if signed else ROOT) if self.power == "auto" else float(self.power)
        self.classes_, numbers = np.unique(labels, return_inverse=True)
        self._not_calibrated()
        if len(self.classes_) < 2:
            raise ValueError(f"BagSVM needs at least two classes, got one class: {self.classes_[0]!r}.")
        if self.calibration > 0 and len(means) >= FEWEST_TO_CALIBRATE:
            images, groups = np.arange(len(means)), copy_groups(means)
            keep, out = hold_out(images, numbers, self.calibration, self.random_state, groups)
            if len(out):
                self._learn(means[keep], numbers[keep])
                self._calibrate(self._scores(means[out]), numbers[out], self.rejection)
        self._learn(means, numbers)
        return self

    def partial_fit(self, X: Any, y: Any = None, classes: Any = None) -> Self:
        """Learn more images, of any class; the result is that of learning all of them at once.

        Probabilities keep the temperature that they have.

        Parameters
        ----------
        X, y
            As in `fit`.
        classes : array, optional
            Not needed, since classes may come at any time; there for scikit-learn's tools.
        """
        if not hasattr(self, "vectors_"):
            return self.fit(X, y)
        self._check_settings()
        means, labels, signed = self._means_and_labels(X, y, reset=False)
        if signed and self.power == "auto" and self.power_ != 1:
            raise ValueError("features are negative, those learned before are not: are they of one kind?")
        known = np.union1d(self.classes_, labels)
        before = np.searchsorted(known, self.classes_)[self.class_]
        self.classes_ = known
        numbers = np.concatenate([before, np.searchsorted(known, labels)])
        self._learn(np.concatenate([self.vectors_, means]), numbers)
        return self

    def _learn(self, means: npt.NDArray[np.float32], numbers: npt.NDArray[np.int64]) -> None:
        self.vectors_, self.class_ = means, numbers.astype(np.int64)
        vectors = bag_vectors(means, self.power_)
        centre = vectors.mean(axis=0)
        vectors -= centre
        size = float(np.sqrt(np.square(vectors).sum(axis=1).mean())) or 1.0
        vectors /= size
        weight = _by_number(self.class_weight, self.classes_)
        solver = LinearSVC(C=self.C, class_weight=weight, random_state=self.random_state, max_iter=10_000)
        solver.fit(vectors, numbers)
        there = solver.classes_
        linear, bias = solver.coef_, solver.intercept_
        if len(there) == 2:  # one function tells two classes apart: half of it is for one, half against the other
            linear, bias = np.concatenate([-linear, linear]) / 2, np.concatenate([-bias, bias]) / 2
        self.linear_ = np.zeros((len(self.classes_), vectors.shape[1]))
        self.bias_ = np.full(len(self.classes_), -1.0)
        self.linear_[there] = linear / size
        self.bias_[there] = bias - self.linear_[there] @ centre

    # --- voting -----------------------------------------------------------------------------------------------------

    def votes(self, X: Any) -> npt.NDArray[Any]:
        """Return the vote of every descriptor for every class, ``(descriptors, classes)``.

        What a descriptor says depends on its bag: of each feature it gets the share that it contributed to the mean.
        """
        check_is_fitted(self)
        return shared_votes(self._read(X), self.linear_, self.bias_, self.power_)

    def _mean_votes(self, X: Any) -> npt.NDArray[Any]:
        check_is_fitted(self)
        return self._scores(self._read(X).means())

    def _scores(self, means: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
        return np.asarray(bag_vectors(means, self.power_) @ self.linear_.T + self.bias_)

    # --- reading ----------------------------------------------------------------------------------------------------

    def _means_and_labels(
        self, X: Any, y: Any, *, reset: bool
    ) -> tuple[npt.NDArray[np.float32], npt.NDArray[Any], bool]:
        """Return the mean of each bag, its label, and whether any mean is negative."""
        if isinstance(X, Store):
            y = labels_of(X, y)
            labels = check_labels(y, len(X))
            if not reset and X.dim != self.n_features_in_:
                raise ValueError(
                    f"the store has {X.dim} features a descriptor, but {self.n_features_in_} were learned."
                )
            self.n_features_in_ = X.dim
            means = np.asarray(pooled(X).values, np.float32)
            return means, labels, bool((means < 0).any())
        if y is None:
            raise ValueError("BagSVM requires y to be passed, but the target y is None.")
        bags = self._read(X, fitting=reset)
        means = bags.means().astype(np.float32)
        return means, check_labels(y, len(bags)), bool((means < 0).any())

    def _check_settings(self) -> None:
        for setting, least, most in (("C", 1e-12, 1e12), ("calibration", 0, 0.9), ("rejection", 0, 1)):
            value = getattr(self, setting)
            if not isinstance(value, (int, float, np.number)) or isinstance(value, bool) or not least <= value <= most:
                raise ValueError(f"{setting} of BagSVM must be a number from {least:g} to {most:g}, got {value!r}.")
        number = isinstance(self.power, (int, float, np.number)) and not isinstance(self.power, bool)
        if self.power != "auto" and not (number and 0 < float(self.power) <= 1):
            raise ValueError(f"power of BagSVM must be 'auto' or a number above 0, up to 1, got {self.power!r}.")


def _by_number(class_weight: Any, classes: npt.NDArray[Any]) -> Any:
    """Return weights of classes by their numbers, where they were given by name."""
    if not isinstance(class_weight, dict):
        return class_weight
    return {number: class_weight.get(label, 1.0) for number, label in enumerate(classes.tolist())}


def pooled(store: Store) -> Bags:
    """Read a store as bags of one descriptor each, their means, which is all that `BagSVM` looks at."""
    means, done = np.empty((len(store), store.dim), np.float32), 0
    for bags, _ in store.blocks(_AT_ONCE, dtype=store.dtype):
        check_bags(bags)
        means[done : done + len(bags)] = bags.means()
        done += len(bags)
    return Bags.of(means)
