"""BagSVM: linear votes, trained on the bag as a whole.

The paper relaxes its objective from the mean vote of a bag to single descriptors, and so trains every descriptor to
name its image by itself. Here the relaxation is undone: a linear SVM learns from one vector per bag (`pooling`), and
its score is distributed exactly over the descriptors. It needs only the mean of every training image. So it trains in a
fraction of a second, works with one image per class, and learning more images later gives the same result as learning
all of them at once.
"""

from __future__ import annotations

import copy
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from sklearn.base import clone

from ..bags.bags import Bags
from ..bags.keep import has_parts
from ..bags.store import Store
from . import veto
from .atomic import atomic
from .base import Candidate, ToAdapt, Voter
from .labels import check_weights
from .linear import LinearVotes
from .linear_svm import fit_linear
from .pooling import bag_vectors
from .power import resolved
from .scorer import Scorer
from .votes import check_bags

# Stronger regularisation than usual, since adapted votes learn from labels that they predicted themselves.
_MAX_ADAPTED_C = 0.3
_HELD_OUT = 0.2  # share of the labelled photos on which the probabilities of an adapted model are calibrated
_AT_ONCE = 50_000  # descriptors of a store that are held in memory at once


class BagSVM(Voter):
    """Votes with a linear function of every descriptor, learned from the means of the bags.

    Parameters
    ----------
    C : float, default 1
        Inverse strength of the regularisation, for vectors whose mean squared length is 1.
    power : float or "auto", default "auto"
        Exponent of the power normalisation of a bag's mean: 0.5 takes square roots, 1 changes nothing. "auto" is 0.5,
        or 1 if any mean is negative.
    class_weight : dict, "balanced" or None
        Weights of the classes, as in scikit-learn.
    calibration : float, default 0.2
        Share of the images held out to set the temperature of the probabilities and the threshold of rejection, in a
        separate training. With 0, or fewer than 50 images, the temperature is 1.
    rejection : float, default 0.05
        Share of the correctly classified held-out images that may be rejected as "none of these".
    random_state : int, default 0
        Seed of the choice of held-out images and of the solver.

    Attributes
    ----------
    classes_ : array
        The classes, sorted.
    linear_ : array of shape (classes, features)
        Weights of the linear score of a bag's vector.
    bias_ : array of shape (classes,)
        Intercepts of the linear score.
    power_ : float
        Exponent of the power normalisation that is used.
    vectors_ : array of shape (images, features)
        Means of the training images, kept to learn more images later.
    class_ : array of shape (images,)
        Class numbers of the training images.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> bags = [rng.random((20, 4)) + np.eye(4)[label] for label in (0, 1) for _ in range(10)]
    >>> labels = ["sea"] * 10 + ["land"] * 10
    >>> voter = BagSVM().fit(bags, labels)
    >>> voter.predict([np.eye(4)[[0, 2]]])
    array(['sea'], dtype='<U4')
    >>> votes = voter.votes(bags[:1])  # one per descriptor; their mean is the bag's score
    >>> bool(np.isclose(votes[:, 1].mean() - votes[:, 0].mean(), voter.decision_function(bags[:1])[0], atol=1e-5))
    True
    """

    scorer_class = LinearVotes
    means_only = True
    positions_ = False  # the mean does not depend on positions

    linear_: npt.NDArray[Any]
    bias_: npt.NDArray[Any]
    vectors_: npt.NDArray[Any]
    class_: npt.NDArray[np.int64]
    weight_: npt.NDArray[np.float64]

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

    @classmethod
    def candidates(cls, seed: int) -> list[Candidate]:
        """Return two strengths of the regularisation.

        Every class has the same weight, however many photos it has: of a new class of 20 photos beside old ones of 100,
        a tenth more photos are recognised, and overall more photos are classified correctly.
        """
        return [
            Candidate(
                _in_words(strength),
                cls(strength, class_weight="balanced", calibration=0, random_state=seed),
            )
            for strength in (1.0, 10.0)
        ]

    # --- learning ---------------------------------------------------------------------------------------------------

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Learn from labelled images.

        Parameters
        ----------
        X : Bags, list of arrays, array, or Store
            Training images. A store may be larger than memory: only its means are held.
        y : array of shape (images,), optional
            Classes of the images; by default those of the store.
        sample_weight : array of shape (images,), optional
            Weights of the images; those of weight 0 are left out.
        """
        self._check_settings()
        means, labels = self._means_and_labels(X, y, reset=True)
        numbers = self._set_classes(labels)
        weight = check_weights(sample_weight, len(means))
        images = np.flatnonzero(weight > 0)
        signed = bool((means[images] < 0).any())
        self.power_ = resolved(self.power, signed)

        def train(part: npt.NDArray[np.int64], _: str) -> None:
            self._learn(means[part], numbers[part], weight[part])

        def scores(part: npt.NDArray[np.int64]) -> npt.NDArray[Any]:
            return self.scorer().scores(Bags.of(means[part]))

        self._train_and_calibrate(images, numbers, self.calibration, lambda: means, train, scores)
        return self

    @atomic
    def partial_fit(self, X: Any, y: Any = None, classes: Any = None, sample_weight: Any = None) -> Self:
        """Learn more images, of any class; the result is that of learning all of them at once.

        The temperature of the probabilities stays as it is.

        Parameters
        ----------
        X, y, sample_weight
            As in `fit`.
        classes : array, optional
            Ignored, since new classes may come at any time; accepted for scikit-learn's tools.
        """
        if not hasattr(self, "vectors_"):
            return self.fit(X, y, sample_weight)
        self._check_settings()
        means, labels = self._means_and_labels(X, y, reset=False)
        if (means < 0).any() and self.power == "auto" and self.power_ != 1:
            raise ValueError(
                "features are negative, but those learned before are not. Were they extracted with the same network?"
            )
        weight = check_weights(sample_weight, len(means))
        before = self.classes_
        numbers = self._set_classes(labels, before)
        old = np.searchsorted(self.classes_, before)[self.class_]
        learned = getattr(self, "weight_", np.ones(len(old)))
        if veto.is_there(kept := self.scorer().arrays):
            self.unadapted_class_ = veto.carried_over(kept, before, self.classes_)["unadapted_class"]
        self._learn(
            np.concatenate([self.vectors_, means[weight > 0]]),
            np.concatenate([old, numbers[weight > 0]]),
            np.concatenate([learned, weight[weight > 0]]),
        )
        return self

    def for_target(self) -> Self:
        """Return the voter that adapting trains, with stronger regularisation."""
        voter: Self = clone(self)
        voter.set_params(C=min(self.C, _MAX_ADAPTED_C))
        return voter

    def to_adapt(self) -> ToAdapt:
        """Return what adapting takes: the means of the training images, and stronger regularisation."""
        voter = self.for_target().set_params(calibration=_HELD_OUT)
        words = _in_words(voter.C)
        weight = getattr(self, "weight_", None)
        return ToAdapt(Bags.of(self.vectors_), self.classes_[self.class_], voter, self._unadapted(), words, weight)

    def _unadapted(self) -> BagSVM:
        """Return the voter whose rejections remain valid: for a model that was adapted before, the original one."""
        if not hasattr(self, "unadapted_linear_"):
            return self
        kept, original = self.scorer().arrays, copy.copy(self)
        original.linear_, original.bias_ = kept["unadapted_linear"], kept["unadapted_bias"]
        original.classes_ = self.classes_[kept["unadapted_class"]]
        original.temperature_, original.rejection_threshold_ = 1.0, float(kept["unadapted_threshold"][0])
        for name in veto.ARRAYS:
            delattr(original, f"{name}_")
        return original

    def _learn(
        self, means: npt.NDArray[np.float32], numbers: npt.NDArray[np.int64], weight: npt.NDArray[np.float64]
    ) -> None:
        self.vectors_, self.class_ = means, numbers.astype(np.int64)
        vectors = bag_vectors(means, self.power_)
        equal = bool((weight == 1).all())
        if not equal:
            self.weight_ = weight
        elif hasattr(self, "weight_"):
            del self.weight_
        centre = np.average(vectors, axis=0, weights=None if equal else weight)
        vectors -= centre
        lengths = np.square(vectors).sum(axis=1)
        size = float(np.sqrt(np.average(lengths, weights=None if equal else weight))) or 1.0
        vectors /= size
        linear, bias = fit_linear(vectors, numbers, self.classes_, self.C, self.class_weight, weight, self._seed())
        self.linear_ = linear / size
        self.bias_ = bias - self.linear_ @ centre

    def _means_and_labels(self, X: Any, y: Any, *, reset: bool) -> tuple[npt.NDArray[np.float32], npt.NDArray[Any]]:
        """Return the mean of each bag, and its label."""
        source, labels = self._read_labelled(X, y, reset=reset)
        means = pooled(source).values if isinstance(source, Store) else source.means()
        return np.asarray(means, np.float32), labels

    # --- settings ---------------------------------------------------------------------------------------------------

    def _plain_settings(self) -> dict[str, Any]:
        """Return the settings, with the exponent that is used."""
        return super()._plain_settings() | ({"power": self.power_} if hasattr(self, "power_") else {})

    def _restored(self, scorer: Scorer) -> None:
        self.power_ = float(scorer.settings["power"])


def pooled(store: Store) -> Bags:
    """Read a store as bags of one descriptor each, the mean of the bag, which is all that `BagSVM` uses.

    Of a store that keeps something computed from the bags, the first row of each is their mean.
    """
    means, done = np.empty((len(store), store.dim), np.float32), 0
    for bags, _ in store.blocks(_AT_ONCE, dtype=store.dtype):
        check_bags(bags)
        means[done : done + len(bags)] = bags.means() if has_parts(store.keep) else bags.values[bags.offsets[:-1]]
        done += len(bags)
    return Bags.of(means)


def _in_words(strength: float) -> str:
    return (
        f"each part of a photo votes by its features (linear SVM, C = {strength:g}: how closely it follows the "
        "training photos)"
    )
