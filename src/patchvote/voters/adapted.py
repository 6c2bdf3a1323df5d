"""Adapted: a voter for photos of another camera, place or style, learned with unlabelled photos of that domain.

The vectors of each domain are centred at the mean of that domain, so that the regression does not see what all photos
of a domain share: light, sharpness, background. Then the voter learns from its own answers (self-training): the photos
that it names with the largest leads, the same share of every class, become training photos, and the regression is
solved again; twice. All of it happens on one Gram matrix of both domains.

The mean of a domain also depends on how often it shows each class, so the source is centred for the target's shares of
classes where those differ (`with_shares`). A target may also hold photos of none of the classes. What the unadapted
voter rejects stays rejected, whatever the adapted one says, and photos about which it is not confident take no part.
Where few take part, or the answers collapse onto fewer classes, the voter is not adapted.
"""

from __future__ import annotations

import warnings
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from ..bags.moments import MomentBags
from ..bags.store import Store
from ..utils.terminal import counted
from .base import Voter
from .labels import known_labels
from .moment_ridge import MomentRidge, Vectors
from .moment_votes import MomentVotes
from .ridge import Ridge
from .scorer import Scorer
from .votes import NONE, fit_temperature

Floats = npt.NDArray[Any]
Numbers = npt.NDArray[np.int64]

_SHARES = (0.5, 0.8)  # of the target's photos, of every class, that become training photos, round by round
_LEAST_ALPHA = 0.1  # some of the labels of self-training are wrong; from 0.03 to 0.3, six changes of camera were alike
_MOST_PHOTOS = 2_000  # of the target that are learned from: more bring time, not accuracy
_FEWEST = 10  # photos of the target; fewer do not tell another camera from chance
_LEAST_PART = 0.1  # share of the target that takes part; of photos of another camera, 0.2 or more did
# Least ratio of the variety of answers after and before: 0.80 or more with another camera, 0.53 or less in a collapse.
_LEAST_VARIETY = 2 / 3
_MOST_CHANGED = 1 / 3  # of the confident answers: 0.02 with another camera, 0.89 in a target of one class of ten
# With a smaller ratio of leads, the shares of classes in the target are estimated. On pairs of Amazon, Webcam and
# Caltech it was 0.99 or more where both domains showed all classes, and 0.88 or less where the target showed half of
# them; of photos of one class in ten, 94 % or more are then named rightly, instead of a quarter.
_LEAD_RATIO = 0.95
_SHARE_ROUNDS = 2  # of estimating them
_TRUSTED = 0.5  # share of the target about which the voter is confident, from which on its answers tell the shares
_OFTEN = 0.05  # share of the photos from which on a class counts as found

_WHAT_TO_DO = (
    "so the model answers as it was learned; if the photos do show its classes, insist (--insist, or insist=True), or "
    "teach it some of them with `patchvote add`."
)


class AdaptationWarning(UserWarning):
    """A voter was not adapted, because adapting looked unsafe."""


class Adapted(Voter):
    """Adapts `MomentRidge` to another domain, with unlabelled photos of that domain.

    Parameters
    ----------
    insist : bool, default False
        Whether to adapt with all photos of the target even where that looks unsafe: the caller guarantees that they
        show the voter's classes. The unadapted voter then rejects none of them.

    Attributes
    ----------
    unadapted_ : MomentRidge
        The voter before adapting, which decides what is rejected.
    rejected_ : array of shape (photos of the target,)
        Whether the unadapted voter rejects the photo.
    refusal_ : str or None
        Reason why the voter was not adapted, also given as an `AdaptationWarning`; it then answers as before.
    taken_ : int
        Number of photos of the target that were learned from in the last round.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> photos = [rng.random((20, 3)) + np.eye(3)[label] for label in (0, 1) for _ in range(20)]
    >>> labels = ["sea"] * 20 + ["land"] * 20
    >>> reddish = [photo * [1.0, 3.0, 1.0] for photo in photos]
    >>> float(np.mean(MomentRidge().fit(photos, labels).predict(reddish) == labels))
    0.85
    >>> float(np.mean(Adapted(insist=True).fit(photos, labels, reddish).predict(reddish) == labels))
    1.0
    """

    scorer_class = MomentVotes

    def __init__(self, *, insist: bool = False) -> None:
        self.insist = insist

    def fit(
        self,
        X: Any,
        y: Any = None,
        target: Any = None,
        target_y: Any = None,
        *,
        rejected: npt.NDArray[np.bool_] | None = None,
    ) -> Self:
        """Learn from labelled photos of the source and photos of the target; without a target, as the voter does.

        Parameters
        ----------
        X, y
            Photos of the source and their classes; or as X, instead of both, a fitted `MomentRidge`.
        target : Bags, list of arrays, array, or Store, optional
            Photos of the target.
        target_y : sequence, optional
            Classes of the target's photos, None for a photo whose class is not known.
        rejected : array of shape (photos of the target,), optional
            Whether the photo is "none of these" without adapting; by default, as `predict_or_none` says.
        """
        unadapted = X if isinstance(X, MomentRidge) else MomentRidge.default(0).fit(X, y)
        self.unadapted_, self.classes_, self.n_features_in_ = unadapted, unadapted.classes_, unadapted.n_features_in_
        self.linear_, self.bias_, self.temperature_ = unadapted.linear_, unadapted.bias_, unadapted.temperature_
        self.rejection_threshold_ = unadapted.rejection_threshold_
        self.refusal_: str | None = None
        self.taken_, self.adapted_ = 0, False
        self.rejected_ = np.zeros(0, bool)
        if target is not None:
            photos = unadapted._moments(
                target if isinstance(target, Store) else self._read(target), unadapted.learned().basis
            )
            self._adapt(photos, target_y, rejected)
        return self

    def _adapt(self, photos: MomentBags, target_y: Any, rejected: npt.NDArray[np.bool_] | None) -> None:
        known, labels = known_labels(target_y, len(photos), self.classes_)
        if len(unlearned := np.setdiff1d(labels, self.classes_)):
            raise ValueError(f"the target has a label {str(unlearned[0])!r}, which no photo of the source has.")
        confident = self.unadapted_.predict_proba(photos).max(axis=1) >= self.unadapted_.rejection_threshold_
        self.rejected_ = (~confident if rejected is None else rejected) & ~known
        named = confident & ~self.rejected_
        part = named if named.sum() >= max(_FEWEST, _LEAST_PART * len(photos)) else confident
        # Labelled photos of every class tell that the target shows them: then all of its photos take part.
        shown = len(np.unique(labels)) == len(self.classes_)
        used = np.flatnonzero(part | known | shown | self.insist)
        before = self.unadapted_.predict(photos)
        cautious = not self.insist and not known.any()  # labels of the target tell that it shows the classes
        if cautious:
            self.refusal_ = _unsafe(self.rejected_, confident)
        if self.refusal_ is None:
            numbers = np.full(len(photos), -1)
            numbers[known] = np.searchsorted(self.classes_, labels)
            self._learn(photos, numbers, used, bool(np.mean(confident) >= _TRUSTED))
            after, asked = self.predict(photos), used[~known[used]]
            if not self.insist and len(asked):
                self.refusal_ = collapsed(before[asked], after[asked])
            if cautious and self.refusal_ is None:
                self.refusal_ = overturned(before[named], after[named])
        if self.refusal_ is not None:
            self.refusal_ = f"not adapted: {self.refusal_}, {_WHAT_TO_DO}"
            self.linear_, self.bias_ = self.unadapted_.linear_, self.unadapted_.bias_
            self.temperature_, self.taken_, self.adapted_ = self.unadapted_.temperature_, 0, False
            warnings.warn(self.refusal_, AdaptationWarning, stacklevel=4)

    def _learn(self, photos: MomentBags, numbers: Numbers, used: Numbers, trusted: bool) -> None:
        """Learn from the source and the used photos of the target, whose numbers are -1 where they are not known."""
        if len(used) > _MOST_PHOTOS:
            used = np.sort(np.random.default_rng(0).permutation(used)[:_MOST_PHOTOS])
        target, unknown = photos.rows(used), np.flatnonzero(numbers[used] < 0)
        domains = _Domains(self.unadapted_, target, numbers[used])
        scores = domains.with_shares(self.unadapted_._mean_votes(target) if trusted else None)
        for share in _SHARES:
            taken = unknown[surest(scores[unknown], share)]
            scores, self.taken_ = domains.solved(taken, scores[taken].argmax(axis=1)), len(taken)
        self.linear_, self.bias_, self.temperature_ = domains.linear()
        self.adapted_ = True

    # --- what a model needs -----------------------------------------------------------------------------------------

    def scorer(self) -> Scorer:
        """Return the scorer, with the linear function of the unadapted voter, which decides what is rejected."""
        self._check_fitted()
        before = self.unadapted_.scorer()
        if not self.adapted_:
            return before
        arrays = {name: before.arrays[name] for name in ("offset", "directions")}
        arrays |= {"linear": self.linear_, "bias": self.bias_}
        if not self.insist:
            temperature = self.unadapted_.temperature_
            arrays["unadapted_linear"] = (before.arrays["linear"] / temperature).astype(np.float32)
            arrays["unadapted_bias"] = before.arrays["bias"] / temperature
        return MomentVotes(arrays, before.settings, before.classes)

    def check_for_model(self) -> None:
        """Refuse to be the voter of a classifier, which adapts its voter itself."""
        raise ValueError("an ImageClassifier adapts its voter itself: pass photos of the target to fit(target=...).")

    def predict_or_none(self, X: Any, none: Any = NONE) -> npt.NDArray[Any]:
        """Return the class of each bag, or `none` where the unadapted voter rejects it."""
        labels = self.predict(X).astype(object)
        if self.insist and self.adapted_:
            return np.asarray(labels)
        labels[self.unadapted_.predict_proba(X).max(axis=1) < self.unadapted_.rejection_threshold_] = none
        return np.asarray(labels)


class _Domains:
    """Source and target on one Gram matrix, each centred at its own mean."""

    def __init__(self, source: MomentRidge, target: MomentBags, numbers: Numbers) -> None:
        bags, count = source.learned(), len(source.class_)
        weight = source.solved_.ridge.weight
        self.vectors = Vectors.of(
            MomentBags.joined([bags, target]), np.append(weight, np.zeros(len(target))), source.layout
        )
        self.labels, self.classes = np.concatenate([source.class_, numbers]), len(source.classes_)
        self.alpha = max(float(source.alphas_.min()), _LEAST_ALPHA)
        self.source = np.arange(count)
        self.groups = np.concatenate([source.folds_, count + np.arange(len(target))])
        self.is_target = np.arange(len(self.labels)) >= count
        # Rows of `means` weigh the photos of the mean of the source and of that of the target.
        self.means = np.zeros((2, len(self.labels)))
        self.means[1, count:] = 1 / len(target)
        self.products = self.vectors.products().astype(np.float64)
        self._centre(weight)

    def with_shares(self, scores: Floats | None) -> Floats:
        """Centre the source for the shares of classes in the target, and learn from labelled photos alone.

        The mean of a domain depends on the shares of its classes. They are those of the source, unless shares that are
        estimated from scores of the target's photos, if there are any to trust, give these clearly larger leads.
        Returns new scores.
        """
        none, weight, known = np.zeros(0, np.int64), self.means[0, self.source].copy(), self.labels[self.is_target]
        own = self.labels[self.source]
        same = self.solved(none, none)
        if scores is None:
            return same
        for _ in range(_SHARE_ROUNDS):
            found = np.bincount(np.where(known < 0, scores.argmax(axis=1), known), minlength=self.classes)
            self._centre(weight * (found / np.bincount(own, weight, self.classes))[own])
            scores = self.solved(none, none)
        if leads(same).mean() < _LEAD_RATIO * leads(scores).mean():
            return scores
        self._centre(weight)
        return self.solved(none, none)

    def _centre(self, weight: npt.NDArray[np.float64]) -> None:
        """Centre each domain at its mean: the source with these weights of its photos."""
        self.means[0, self.source] = weight / weight.sum()
        domain = self.is_target.astype(int)
        to_means = (self.means @ self.products)[domain]
        between = (self.means @ self.products @ self.means.T)[np.ix_(domain, domain)]
        self.gram = self.products - to_means - to_means.T + between

    def solved(self, taken: Numbers, answers: Numbers) -> Floats:
        """Learn from all labelled photos and from some of the target with these answers; return the target's scores."""
        labels = self.labels.copy()
        labels[len(self.source) + taken] = answers
        self.rows = np.flatnonzero(labels >= 0)
        own = labels[self.rows]
        weight = (1 / np.bincount(own, minlength=self.classes))[own]
        weight /= weight.mean()
        self.ridge = Ridge.solve(self.gram[np.ix_(self.rows, self.rows)], np.eye(self.classes)[own], weight)
        self.dual = self.ridge.coefficients(self.alpha)
        products = self.gram[np.ix_(self.is_target, self.rows)]
        share = weight / weight.sum()
        centre = share @ self.gram[np.ix_(self.rows, self.rows)]
        return np.asarray((products - centre) @ self.dual + self.ridge.intercept)

    def linear(self) -> tuple[npt.NDArray[np.float32], Floats, float]:
        """Return the linear function of moments, its intercepts, and the temperature of the last solution."""
        coefficients = np.zeros((len(self.labels), self.classes + 1))
        coefficients[self.rows, :-1] = self.dual
        coefficients[self.rows, -1] = self.ridge.weight / self.ridge.weight.sum()
        for domain, photos in enumerate((~self.is_target, self.is_target)):
            coefficients -= np.outer(self.means[domain], coefficients[photos].sum(axis=0))
        coefficients[:, -1] += self.means[1]
        sums = self.vectors.sums(coefficients)
        linear, mean = self.vectors.function(sums[:-1]), sums[-1]
        left_out = self.ridge.left_out(self.alpha, self.groups[self.rows])[: len(self.source)]
        asked = ~np.isnan(left_out[:, 0])
        own = self.labels[self.source]
        temperature = fit_temperature(left_out[asked], own[asked]) if asked.any() else self.alpha
        return linear, self.ridge.intercept - linear.astype(np.float64) @ mean, temperature


def leads(scores: Floats) -> Floats:
    """Return the lead of each photo: the largest score less the second largest."""
    ranked = np.sort(scores, axis=1)
    return np.asarray(ranked[:, -1] - ranked[:, -2])


def surest(scores: Floats, share: float) -> Numbers:
    """Return the photos with the largest leads, the same share of every predicted class."""
    lead, predicted, taken = leads(scores), scores.argmax(axis=1), [np.zeros(0, np.int64)]
    for number in np.unique(predicted):
        rows = np.flatnonzero(predicted == number)
        best = rows[np.argsort(-lead[rows], kind="stable")]
        taken.append(best[: int(np.ceil(share * len(rows)))])
    return np.sort(np.concatenate(taken))


def _unsafe(rejected: npt.NDArray[np.bool_], confident: npt.NDArray[np.bool_]) -> str | None:
    """Return why photos must not be adapted to, before any training: few of them take part."""
    count, least = int(confident.sum()), max(_FEWEST, _LEAST_PART * len(confident))
    if not len(confident) or count >= least:
        return None
    return (
        f"the model as it was learned is confident about {count:,} of {counted(len(confident), 'photo')}, too few to "
        f'tell another camera from photos of other things ({int(rejected.sum()):,} are "none of these")'
    )


def collapsed(before: npt.NDArray[Any], after: npt.NDArray[Any]) -> str | None:
    """Return a message if the answers collapse onto fewer classes, or None.

    They do if their variety, the exponential of the entropy of the classes' shares, falls to less than two thirds, or
    if two classes vanish that were found often.
    """
    names, counts = np.unique(before, return_counts=True)
    vanished = np.setdiff1d(names[counts >= _OFTEN * len(before)], after)
    if len(vanished) < 2 and variety(after) >= _LEAST_VARIETY * variety(before):
        return None
    left, counts = np.unique(after, return_counts=True)
    often = str(left[counts.argmax()])
    return (
        f"adapting would name {counts.max():,} of the {len(after):,} photos {often!r}, where the model as it was "
        f"learned finds {len(names):,} classes among them"
    )


def overturned(before: npt.NDArray[Any], after: npt.NDArray[Any]) -> str | None:
    """Return a message if answers change that the unadapted voter is confident about, or None.

    They do where the target shows one class of many: centred at its own mean, it looks like all of them.
    """
    changed = int((before != after).sum())
    if changed <= max(1, _MOST_CHANGED * len(before)):
        return None
    return f"adapting would change {changed:,} of {len(before):,} answers that the model as learned is confident about"


def variety(names: npt.NDArray[Any]) -> float:
    """Return the effective number of classes: the exponential of the entropy of their shares."""
    _, counts = np.unique(names, return_counts=True)
    share = counts / counts.sum()
    return float(np.exp(-np.sum(share * np.log(share))))
