"""Voters that adapt to test photos of another domain, without their labels: the pooled image, and a voter of users.

The pooled image adapts in two ways: **gains** give every feature of the source the mean that it has in the target, as
a white balance does with colours, and **self-training** learns from the target's photos that are named with the largest
margins, the same share of every class.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.svm import LinearSVC

from patchvote import Adapted, MomentRidge
from patchvote.bags.bags import Bags
from patchvote.bags.moments import MomentBags
from patchvote.bags.store import Store

from .pooled import SCALES, Floats, blocks_of, decision_values, is_signed, means_at, side_by_side

_SHARES = (0.5, 0.8)  # of the target's photos that are learned from, by round
_SMALL = 0.01  # of the mean of all features: the gain of a feature weaker than that in both domains stays near 1


class AdaptedVoter(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A linear SVM on the power-normalised means of images, adapted to a target, maybe without gains or self-training.

    `scales` are those of `PooledSvm`, "all" for the mean of the whole bag; `rounds` is the number of rounds of
    self-training, at most 2.
    """

    def __init__(self, scales: str = "all", C: float = 0.3, gains: bool = True, rounds: int = 2) -> None:
        self.scales = scales
        self.C = C
        self.gains = gains
        self.rounds = rounds

    def fit(self, X: Bags | Store, y: Any, target: Sequence[Bags | Store], target_y: Sequence[Any]) -> Self:
        """Learn from labelled images of the source, and from images of the target in one or more parts."""
        self.signed_ = is_signed(X)
        source, there = self._means([X]), self._means(target)
        if self.gains:
            source = [_with_gains(*pair, signed=self.signed_) for pair in zip(source, there, strict=True)]
        vectors, target_vectors = side_by_side(source, self.signed_), side_by_side(there, self.signed_)
        labels, unknown = np.asarray(y), np.array([label is None for label in target_y])
        known = [label for label in target_y if label is not None]
        vectors, labels = np.concatenate([vectors, target_vectors[~unknown]]), np.append(labels, known)
        unlabelled = target_vectors[unknown]
        self.centre_ = vectors.mean(axis=0)
        self.length_ = np.sqrt(np.mean(np.square(vectors - self.centre_).sum(axis=1))) or np.float32(1)
        self.model_ = self._learned(vectors, labels)
        more, names = unlabelled[:0], labels[:0]
        for share in _SHARES[: self.rounds]:
            values = decision_values(self.model_, self._scaled(unlabelled))
            taken = surest(values, share)
            more, names = unlabelled[taken], self.model_.classes_[values.argmax(axis=1)[taken]]
            self.model_ = self._learned(np.concatenate([vectors, more]), np.concatenate([labels, names]))
        self.classes_ = self.model_.classes_
        return self

    def predict(self, X: Bags) -> npt.NDArray[Any]:
        """Return the predicted label of each image."""
        return np.asarray(self.model_.predict(self._scaled(self._vectors(X))))

    def _check_settings(self) -> None:
        if self.scales not in SCALES or self.rounds not in (0, 1, 2):
            raise ValueError(f"scales must be one of {', '.join(SCALES)}, and rounds 0, 1 or 2.")

    def _means(self, parts: Sequence[Bags | Store]) -> list[Floats]:
        by_block = [means_at(bags, self.scales) for part in parts for bags in blocks_of(part)]
        return [np.concatenate(blocks) for blocks in zip(*by_block, strict=True)]

    def _vectors(self, bags: Bags) -> Floats:
        return side_by_side(means_at(bags, self.scales), self.signed_)

    def _scaled(self, vectors: Floats) -> Floats:
        return np.asarray((vectors - self.centre_) / self.length_, np.float32)

    def _learned(self, vectors: Floats, labels: npt.NDArray[Any]) -> Any:
        return LinearSVC(C=self.C, random_state=0).fit(self._scaled(vectors), labels)


class AdaptedDefault(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """`patchvote.Adapted`: the default voter, adapted as for users. Stores tell the basis of their network."""

    def fit(self, X: Store, y: Any, target: Sequence[Store], target_y: Sequence[Any]) -> Self:
        """Learn from labelled images of both domains, and from the other images of the target."""
        voter = MomentRidge.default(0)
        there = MomentBags.joined([voter._moments(part, None) for part in target])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a refusal to adapt stands in the cell
            self.adapted_ = Adapted().fit(voter.fit(X, y), target=there, target_y=list(target_y))
        self.classes_, self.refusal_ = self.adapted_.classes_, self.adapted_.refusal_
        return self

    def predict(self, X: Bags) -> npt.NDArray[Any]:
        """Return the predicted label of each image."""
        return np.asarray(self.adapted_.predict(X))


class AdaptedVotes(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A voter of this experiment, adapted: features get the target's mean and deviation, then self-training follows.

    Nothing of it is particular to a voter, and a new one learns whole bags in every round.
    """

    def __init__(self, voter: str = "snbnl-paper", rounds: int = 2) -> None:
        self.voter = voter
        self.rounds = rounds

    def fit(self, X: Bags | Store, y: Any, target: Sequence[Bags | Store], target_y: Sequence[Any]) -> Self:
        """Learn from labelled images of both domains, and from the other images of the target."""
        from ..voters import make_voter  # which names this class

        there, unknown = _joined(target), np.array([label is None for label in target_y])
        known = np.array([label for label in target_y if label is not None], np.asarray(y).dtype)
        source, unlabelled = _with_statistics(_joined([X]), there), there[unknown]
        labelled = Bags.join([source, there[~unknown]]) if len(known) else source
        labels = np.append(np.asarray(y), known)
        self.voter_ = make_voter(self.voter).fit(labelled, labels)
        for share in _SHARES[: self.rounds]:
            scores = self.voter_._mean_votes(unlabelled)
            taken = surest(scores, share)
            names = self.voter_.classes_[scores.argmax(axis=1)[taken]]
            self.voter_ = make_voter(self.voter).fit(Bags.join([labelled, unlabelled[taken]]), np.append(labels, names))
        self.classes_ = self.voter_.classes_
        return self

    def predict(self, X: Bags) -> npt.NDArray[Any]:
        """Return the predicted label of each image."""
        return np.asarray(self.voter_.predict(X))


def _with_statistics(source: Bags, target: Bags) -> Bags:
    """Return the source with the mean and the deviation of the target in every feature."""
    values = np.array(source.values, np.float32)
    mean, deviation = (np.asarray(f(source.values, axis=0, dtype=np.float64), np.float32) for f in (np.mean, np.std))
    values -= mean
    values *= np.std(target.values, axis=0, dtype=np.float64).astype(np.float32) / np.maximum(deviation, 1e-6)
    values += np.mean(target.values, axis=0, dtype=np.float64).astype(np.float32)
    return Bags(values, source.offsets, source.boxes, source.level)


def _joined(parts: Sequence[Bags | Store]) -> Bags:
    return Bags.join([part if isinstance(part, Bags) else part.load()[0] for part in parts])


def _with_gains(source: Floats, target: Floats, signed: bool) -> Floats:
    """Return the means of the source, multiplied (or shifted, if signed) so that their mean is that of the target."""
    here, there = source.mean(axis=0), target.mean(axis=0)
    if signed:
        return np.asarray(source + (there - here), np.float32)
    offset = _SMALL * (here.mean() + there.mean()) / 2 or 1.0
    return np.asarray(source * ((there + offset) / (here + offset)), np.float32)


def surest(values: npt.NDArray[np.float64], share: float) -> npt.NDArray[np.int64]:
    """Return the images with the largest margins, the same share of every predicted class."""
    ranked, predicted = np.sort(values, axis=1), values.argmax(axis=1)
    margins, taken = ranked[:, -1] - ranked[:, -2], []
    for number in np.unique(predicted):
        rows = np.flatnonzero(predicted == number)
        best = rows[np.argsort(-margins[rows], kind="stable")]
        taken.append(best[: int(np.ceil(share * len(rows)))])
    return np.sort(np.concatenate(taken))
