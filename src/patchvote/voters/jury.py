"""Jury: parts that vote one by one, and the bag as a whole, heard together.

Parts that are trained one by one (`SNBNL`) know more of scenes; the bag that is trained as a whole (`BagSVM`) needs
fewer images and is less disturbed by another background. Which of them to believe depends on the images. A jury holds
some images out, asks both, and takes the mixture of their scores with the smallest log loss; then both learn from all
images. The score of a member is a mean of votes of descriptors, so the jury's score is one, too: its evidence adds up.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from sklearn.base import clone
from sklearn.utils.validation import check_is_fitted

from ..bags.bags import Bags
from ..bags.copies import copy_groups
from ..bags.store import Store
from .bag_svm import BagSVM, pooled
from .base import Candidate, Voter
from .calibration import fit_temperature, threshold_for
from .jury_votes import JuryVotes
from .labels import check_weights, hold_out
from .prototypes.snbnl import SNBNL
from .scorer import Scorer
from .votes import softmax

_SHARES = np.linspace(0, 1, 11)  # of the parts in the mixture, among which held-out images choose
_MANY_IMAGES = 400  # from here on, images are held out once; with fewer, three times
_ROUNDS = 3

Numbers = npt.NDArray[np.int64]


class Jury(Voter):
    """Joins the votes of parts and the vote of the bag, in a mixture that held-out images choose.

    Parameters
    ----------
    bag : BagSVM, optional
        Voter of the bag; ``BagSVM()`` by default.
    parts : SNBNL, optional
        Voter of the parts; by default `SNBNL` with roots of features and weights of parts.
    validation_fraction : float, default 0.2
        Share of the images held out to set the mixture, the temperature and the threshold of rejection, in trainings of
        their own. With 0, or where no image can be held out, both members count the same, at the temperature 1.
    rejection : float, default 0.05
        Share of the correctly classified held-out images that may be rejected as "none of these".
    random_state : int, default 0
        Seed of the choice of held-out images. Members have their own.

    Attributes
    ----------
    bag_, parts_ : estimators
        The members, fitted to all images.
    balance_ : array of shape (2,)
        Weights of the scores of `bag_` and `parts_`.
    share_ : float
        Share of the parts in the mixture, from 0 to 1.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> bags = [rng.random((20, 4)) + np.eye(4)[label] for label in (0, 1) for _ in range(10)]
    >>> jury = Jury(parts=SNBNL(2)).fit(bags, ["sea"] * 10 + ["land"] * 10)
    >>> jury.predict([np.eye(4)[[0, 0]]])
    array(['sea'], dtype='<U4')
    """

    scorer_class = JuryVotes

    balance_: npt.NDArray[np.float64]
    share_: float

    def __init__(
        self,
        bag: Any = None,
        parts: Any = None,
        *,
        validation_fraction: float = 0.2,
        rejection: float = 0.05,
        random_state: Any = 0,
    ) -> None:
        self.bag = bag
        self.parts = parts
        self.validation_fraction = validation_fraction
        self.rejection = rejection
        self.random_state = random_state

    @classmethod
    def candidates(cls, seed: int) -> list[Candidate]:
        """Return one candidate, whose members are the first candidates of their kinds."""
        bag, parts = (member.candidates(seed)[0].voter for member in (BagSVM, SNBNL))
        return [
            Candidate(
                "the mean of two methods, one for the parts of a photo and one for the whole",
                cls(bag, parts, random_state=seed),
            )
        ]

    # --- learning ---------------------------------------------------------------------------------------------------

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Learn from labelled images.

        Parameters
        ----------
        X : Bags, list of arrays, array, or Store
            Training images.
        y : array of shape (images,), optional
            Classes of the images; by default those of the store.
        sample_weight : array of shape (images,), optional
            Weights of the images; those of weight 0 are left out.
        """
        self._check_settings()
        source, labels = self._read_labelled(X, y, reset=True)
        numbers = self._set_classes(labels)
        weight = check_weights(sample_weight, len(source))
        held_out = self._held_out(source, labels, numbers, weight)
        self._set_mixture(*held_out)
        self.bag_, self.parts_ = self._trained(source, labels, weight)
        self.positions_ = self.parts_.positions_
        return self

    def _members(self) -> tuple[BagSVM, SNBNL]:
        """Return unfitted members; none is calibrated, since the jury is."""
        bag = BagSVM() if self.bag is None else self.bag
        parts = SNBNL(power="auto", confidence=0.5) if self.parts is None else self.parts
        if not isinstance(bag, BagSVM) or not isinstance(parts, SNBNL):
            raise ValueError(f"a Jury joins a BagSVM and an SNBNL, got {bag!r:.60} and {parts!r:.60}.")
        return bag.uncalibrated(), parts.uncalibrated()

    def _trained(self, source: Bags | Store, labels: npt.NDArray[Any], weight: npt.NDArray[Any]) -> tuple[Any, Any]:
        bag, parts = (member.fit(source, labels, weight) for member in self._members())
        return bag, parts

    def _held_out(
        self, source: Bags | Store, labels: npt.NDArray[Any], numbers: Numbers, weight: npt.NDArray[Any]
    ) -> tuple[list[npt.NDArray[Any]], Numbers]:
        """Return the scores of both members for images that they have not seen, and the class numbers of these."""
        images = np.flatnonzero(weight > 0)
        scores: list[list[npt.NDArray[Any]]] = [[], []]
        expected: list[Numbers] = []
        groups = copy_groups(pooled(source).values if isinstance(source, Store) else source.means())
        for number in range(1 if len(images) >= _MANY_IMAGES else _ROUNDS):
            keep, out = hold_out(images, numbers, self.validation_fraction, self._seed() + number, groups)
            if not len(out):
                break
            part = np.zeros(len(weight))
            part[keep] = weight[keep]
            unseen = source.load(out)[0] if isinstance(source, Store) else source[out]
            for member, found in zip(self._trained(source, labels, part), scores, strict=True):
                found.append(member._mean_votes(unseen))
            expected.append(numbers[out])
        none = np.zeros(0, np.int64)
        return [np.concatenate(found) for found in scores if found], np.concatenate(expected) if expected else none

    def _set_mixture(self, scores: list[npt.NDArray[Any]], expected: Numbers) -> None:
        """Set the weights of the members, the temperature and the threshold."""
        self.temperature_, self.rejection_threshold_, self.share_ = 1.0, 0.0, 0.5
        self.balance_ = np.array([0.5, 0.5])
        if not scores:
            return
        sharpness = [1 / fit_temperature(one, expected) for one in scores]
        log_scores = [one * factor for one, factor in zip(scores, sharpness, strict=True)]
        losses = []
        for share in _SHARES:
            mixed = (1 - share) * log_scores[0] + share * log_scores[1]
            temperature = fit_temperature(mixed, expected)
            probability = softmax(mixed / temperature)[np.arange(len(expected)), expected]
            losses.append((float(-np.log(np.maximum(probability, 1e-12)).mean()), float(share), temperature))
        _, self.share_, self.temperature_ = min(losses)
        self.balance_ = np.array([1 - self.share_, self.share_]) * sharpness
        mixed = sum(weight * one for weight, one in zip(self.balance_, scores, strict=True))
        self.rejection_threshold_ = threshold_for(softmax(mixed / self.temperature_), expected, self.rejection)

    # --- what a model needs -----------------------------------------------------------------------------------------

    def scorer(self) -> Scorer:
        """Return the scorer, which holds the arrays of both members."""
        check_is_fitted(self)
        arrays: dict[str, npt.NDArray[Any]] = {"balance": self.balance_}
        for part, member in (("bag", self.bag_), ("parts", self.parts_)):
            arrays |= {f"{part}_{name}": array for name, array in member.scorer().arrays.items()}
        return JuryVotes(arrays, self._plain_settings(), len(self.classes_), bool(self.positions_))

    @classmethod
    def from_scorer(
        cls, scorer: Scorer, classes: Sequence[str], temperature: float = 1.0, threshold: float = 0.0
    ) -> Self:
        """Restore the fitted jury and its members."""
        if not isinstance(scorer, JuryVotes):
            raise TypeError(f"a jury cannot be made from {type(scorer).__name__}.")
        bag = BagSVM.from_scorer(scorer.members["bag"], classes)
        parts = SNBNL.from_scorer(scorer.members["parts"], classes)
        own = {name: value for name, value in scorer.settings.items() if name not in ("bag", "parts")}
        jury = cls(clone(bag), clone(parts), **own)
        jury.bag_, jury.parts_, jury.classes_, jury.n_features_in_ = bag, parts, bag.classes_, scorer.features
        jury.balance_ = np.asarray(scorer.arrays["balance"], np.float64)
        jury.positions_, jury.temperature_, jury.rejection_threshold_ = scorer.positions, temperature, threshold
        return jury

    def remember(self, bags: Bags, numbers: Numbers, rng: np.random.Generator) -> None:
        """Let the members keep what they need to learn more."""
        for member in (self.bag_, self.parts_):
            member.remember(bags, numbers, rng)

    def learn_more(
        self, bags: Bags, labels: npt.NDArray[Any], seen: Mapping[str, int], rng: np.random.Generator
    ) -> None:
        """Let both members learn new images; the mixture stays."""
        members = copy.copy(self.bag_), copy.copy(self.parts_)  # if the second fails, the first has learned nothing
        for member in members:
            member.learn_more(bags, labels, seen, rng)
        self.bag_, self.parts_ = members
        self.classes_ = self.bag_.classes_

    @property
    def can_learn_more(self) -> bool:
        """Whether more images can be learned: the parts have to remember some of the old ones."""
        return hasattr(getattr(self, "parts_", None), "memory_values_")

    @property
    def steps_(self) -> int:
        """Number of steps of the parts' training."""
        return int(self.parts_.steps_)

    @steps_.setter
    def steps_(self, steps: int) -> None:
        self.parts_.steps_ = steps

    def _plain_settings(self) -> dict[str, Any]:
        """Return the settings that a model file stores; those of the members in tables of their own."""
        bag, parts = (self.bag_, self.parts_) if hasattr(self, "bag_") else self._members()
        members = {"bag": bag._plain_settings(), "parts": parts._plain_settings()}
        own = {"validation_fraction": self.validation_fraction, "rejection": self.rejection}
        return {**members, **own, "random_state": self._stored_seed()}

    def _stored_seed(self) -> int | None:
        return int(self.random_state) if isinstance(self.random_state, (int, np.integer)) else None
