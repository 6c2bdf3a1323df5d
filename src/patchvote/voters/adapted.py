"""Adapted: a voter for photos of another domain (another camera, place, style) than those it learned from.

Photos of the new domain, the target, are available but have no labels. They are used in two ways:

- **Gains.** A network's features are stronger or weaker in another domain, as colours are under another lamp. Every
  feature of the source gets the gain that makes its mean equal to that of the target: a white balance of features.
  (Where features may be negative, their means are shifted instead.) The voter then learns features as they are in the
  target, and the target's photos are not changed. But a target that shows only mugs has the mean of mugs, whatever its
  camera. So a second set of gains is computed with the classes of the source weighted by their shares among the voter's
  predictions for the target. It is used if photos are then named with clearly larger margins.
- **Self-training.** The voter names the target's photos. Those with the largest margins, the same share of every class,
  become training images in addition to the source's, and the voter is fitted again; twice.

A target may also hold photos of none of the classes, and learning from its own mistakes would make a voter confidently
wrong about them. Therefore the unadapted voter's rejection stays in force: what it calls "none of these" remains so,
and gets no confident prediction (`veto`). Photos unlike all classes, whose largest probability is nearer to guessing
than to the threshold of rejection, are not used for gains and self-training. Where adapting looks unsafe (`doubts`), it
is not done.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from sklearn.base import clone
from sklearn.utils.validation import check_is_fitted, has_fit_parameter

from ..bags.bags import Bags
from ..bags.store import Store
from ..errors import PatchvoteError
from .bag_svm import BagSVM
from .base import Voter, joined
from .doubts import AdaptationWarning, collapsed, too_few, unlike
from .familiarity import Familiarity
from .labels import check_weights, known_labels
from .linear import LinearVotes
from .scorer import Scorer
from .self_training import Adaptation
from .veto import limited
from .votes import check_bags

_AT_ONCE = 50_000  # descriptors of a store that are held in memory at once


class _OfVoter:
    """The `scorer_class` of the voter that is adapted; for the class `Adapted`, that of its default."""

    def __get__(self, adapted: Adapted | None, owner: type[Adapted]) -> type[Scorer]:
        return LinearVotes if adapted is None else adapted._adapts.scorer_class


class Adapted(Voter):
    """Adapts a voter to another domain, with unlabelled photos of that domain.

    Parameters
    ----------
    voter : estimator, optional
        Voter to adapt; ``BagSVM(C=0.3)`` by default. Some of the labels of self-training are wrong, so it is
        regularised more than a voter for labelled photos. Its `calibration` decides whether photos can be rejected.
    target : Bags, list of arrays, array, or Store, optional
        Photos of the target if they are not passed to `fit`, for tools that only know `X` and `y`. Without a target,
        the voter is not adapted.
    shares : sequence of float, default (0.5, 0.8)
        Share of the target's photos, of every class, that becomes training images, for each round of self-training.
        Empty for no self-training.
    gains : bool, default True
        Whether features of the source get gains.
    insist : bool, default False
        Whether to adapt even where adapting looks unsafe, with all photos of the target: the caller guarantees that
        they show the voter's classes. Rejected photos are still reported as rejected.

    Attributes
    ----------
    voter_ : estimator
        The adapted voter, without the rejection of the unadapted one. Use it without this wrapper only where every
        photo shows one of the classes.
    unadapted_ : estimator
        The voter before adapting, whose rejection stays in force.
    rejected_ : array of shape (photos of the target,)
        Whether the unadapted voter rejects the photo.
    unlike_ : array of shape (photos of the target,)
        Whether the photo is rejected and unlike all classes; such photos are not used.
    refusal_ : str or None
        Reason why the target was not used, also given as an `AdaptationWarning`; `voter_` is then the unadapted voter.
    classes_ : array
        The classes, sorted.
    history_ : list of dict
        Record of each round: how many photos of the target were used, and how many predictions changed.
    familiarity_ : Familiarity or None
        Familiarity of photos of the target, for a model (see `familiarity`); None if the voter was not adapted, or too
        few photos have labels.

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

    scorer_class = _OfVoter()

    def __init__(
        self,
        voter: Any = None,
        *,
        target: Any = None,
        shares: Sequence[float] = (0.5, 0.8),
        gains: bool = True,
        insist: bool = False,
    ) -> None:
        self.voter = voter
        self.target = target
        self.shares = shares
        self.gains = gains
        self.insist = insist

    def fit(
        self,
        X: Any,
        y: Any = None,
        target: Any = None,
        target_y: Any = None,
        *,
        unadapted: Any = None,
        sample_weight: Any = None,
    ) -> Self:
        """Learn from labelled photos of the source and photos of the target.

        Parameters
        ----------
        X : Bags, list of arrays, array, or Store
            Photos of the source.
        y : array of shape (photos,), optional
            Classes of the source's photos; by default those of the store.
        target : Bags, list of arrays, array, or Store, optional
            Photos of the target; by default those passed to the constructor.
        target_y : sequence, optional
            Classes of the target's photos, None for a photo whose class is not known.
        unadapted : fitted estimator, optional
            Voter whose rejection stays in force; by default, `voter` fitted to the labelled photos.
        sample_weight : array of shape (photos,), optional
            Weights of the source's photos in the trainings; those of weight 0 are left out. Photos of the target have
            weight 1.
        """
        voter = BagSVM(C=0.3) if self.voter is None else self.voter
        if not isinstance(voter, Voter):
            raise ValueError(f"voter of Adapted must be a voter, such as BagSVM(), got {voter!r:.80}.")
        if isinstance(voter, Adapted):
            raise ValueError(f"voter of Adapted must not be adapted itself, got {voter!r:.80}.")
        if not all(isinstance(share, (int, float)) and 0 < share <= 1 for share in self.shares):
            raise ValueError(f"shares of Adapted must be numbers above 0, up to 1, got {self.shares!r}.")
        images, labels = self._read_labelled(X, y, reset=True)
        source, target = _bags(images, voter), self.target if target is None else target
        source, labels, weight = _weighted(voter, source, labels, sample_weight)
        self._set_classes(labels)
        self.history_: list[dict[str, Any]] = []
        self.familiarity_: Familiarity | None = None
        self.refusal_: str | None = None
        if target is None:
            if unadapted is None:
                unadapted = clone(voter).fit(source, labels, **({} if weight is None else {"sample_weight": weight}))
            self.voter_ = self.unadapted_ = unadapted
            self.rejected_ = self.unlike_ = np.zeros(0, bool)
        else:
            if isinstance(target, Store):
                self.check_store(target)
            photos = _bags(target, voter)
            if source.dim != photos.dim:
                raise ValueError(f"the source has {source.dim} features per descriptor, the target {photos.dim}.")
            has_label, target_labels = known_labels(target_y, len(photos), labels)
            parts = photos[has_label], target_labels, photos[~has_label]
            self._adapt(Adaptation(voter, source, labels, *parts, weight), photos, has_label, unadapted)
        self.classes_, self.positions_ = self.voter_.classes_, self.voter_.positions_
        self.temperature_, self.rejection_threshold_ = self.voter_.temperature_, self.voter_.rejection_threshold_
        return self

    def _adapt(self, adaptation: Adaptation, photos: Bags, has_label: npt.NDArray[np.bool_], unadapted: Any) -> None:
        self.unadapted_ = (
            adaptation.learn(adaptation.source, voter=adaptation.voter) if unadapted is None else unadapted
        )
        self.rejected_, self.unlike_ = _doubtful(self.unadapted_, photos)
        self.rejected_[has_label] = self.unlike_[has_label] = False
        if not self.insist:
            far = unlike(self.rejected_[~has_label], self.unlike_[~has_label])
            self.refusal_ = far or too_few(int(np.sum(~self.unlike_)))
        if self.refusal_ is None:
            left_out = self.unlike_[~has_label] & (not self.insist)
            self.voter_, self.history_, self.familiarity_ = adaptation.run(
                self.unadapted_, left_out, self.gains, self.shares, agreeing=self.insist
            )
            if not left_out.all() and not self.insist:
                before, after = (voter.predict(adaptation.unknown) for voter in (self.unadapted_, self.voter_))
                self.refusal_ = collapsed(before[~left_out], after[~left_out])
        if self.refusal_ is not None:
            self.voter_, self.history_, self.familiarity_ = self.unadapted_, [], None
            warnings.warn(self.refusal_, AdaptationWarning, stacklevel=3)

    # --- what a model needs -----------------------------------------------------------------------------------------

    @property
    def _adapts(self) -> Voter:
        """Voter that is adapted."""
        return BagSVM(C=0.3) if self.voter is None else self.voter

    @property
    def kind(self) -> str:
        """Kind of the voter that is adapted; its model is of that kind, with a veto."""
        return self._adapts.kind

    @property
    def means_only(self) -> bool:  # type: ignore[override]
        """Whether the voter uses only the mean of every bag."""
        return bool(self._adapts.means_only)

    def uncalibrated(self) -> Self:
        """Return an unfitted copy whose voter holds no images out."""
        copy: Self = clone(self)
        copy.set_params(voter=self._adapts.uncalibrated())
        return copy

    def check_for_model(self) -> None:
        """Refuse a target, whose rejections an `ImageClassifier` would not calibrate, and what the voter refuses."""
        if self.target is not None:
            raise PatchvoteError(
                "an ImageClassifier adapts its voter itself: pass the photos of the target to its fit(target=…), and "
                "none to Adapted."
            )
        self._adapts.check_for_model()

    def remember(self, bags: Bags, numbers: npt.NDArray[np.int64], rng: np.random.Generator) -> None:
        """Keep a sample of the training images, as the voter does."""
        self.voter_.remember(bags, numbers, rng)

    @property
    def steps_(self) -> int:
        """Number of steps of the training, where the voter's consists of steps."""
        return int(getattr(self.voter_, "steps_", 0))

    def scorer(self) -> Scorer:
        """Return the scorer, with the veto of the unadapted voter.

        Raises
        ------
        PatchvoteError
            If the voter was adapted and its scorer cannot store a veto.
        """
        check_is_fitted(self)
        scorer: Scorer = self.voter_.scorer()
        if self.voter_ is self.unadapted_:
            return scorer
        columns = np.searchsorted(self.classes_, self.unadapted_.classes_)
        limit, temperature = self.unadapted_.rejection_threshold_, self.unadapted_.temperature_
        return scorer.with_veto(self.unadapted_.scorer(), temperature, limit, columns)

    def _check_settings(self) -> None:
        if self.voter is not None:
            self.voter._check_settings()

    # --- predicting, as the voter does ------------------------------------------------------------------------------

    def votes(self, X: Any) -> npt.NDArray[Any]:
        """Return the vote of every descriptor for every class."""
        check_is_fitted(self)
        return np.asarray(self.voter_.votes(X))

    def _mean_votes(self, X: Any) -> npt.NDArray[Any]:
        check_is_fitted(self)
        return joined([np.asarray(self.voter_._mean_votes(bags)) for bags in self._blocks(X)])

    def predict_proba(self, X: Any) -> npt.NDArray[Any]:
        """Return the probability of each class, for each bag.

        A bag that the unadapted voter rejects has no class that reaches the threshold of rejection (see `veto`).
        """
        check_is_fitted(self)
        return joined([self._probability(bags) for bags in self._blocks(X)])

    def _probability(self, bags: Bags) -> npt.NDArray[Any]:
        before, probability = self.unadapted_.predict_proba(bags), self.voter_.predict_proba(bags)
        if self.voter_ is self.unadapted_:
            return np.asarray(probability)
        limit, threshold = self.unadapted_.rejection_threshold_, self.voter_.rejection_threshold_
        columns = np.searchsorted(self.classes_, self.unadapted_.classes_)
        return limited(probability, before, limit, threshold, columns)


def _doubtful(voter: Any, bags: Bags) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
    """Return which bags a voter rejects, and which of these are nearer to guessing than to the threshold."""
    probability = voter.predict_proba(bags)
    confidence, guess, threshold = probability.max(axis=1), 1 / probability.shape[1], voter.rejection_threshold_
    return confidence < threshold, confidence < (guess + threshold) / 2


def _bags(X: Any, voter: Any) -> Bags:
    """Read bags, as small as the voter can do with; a store is read block by block."""
    if isinstance(X, Store):
        return Bags.join([_condensed(bags, voter) for bags, _ in X.blocks(_AT_ONCE)])
    return _condensed(Bags.of(X), voter)


def _condensed(bags: Bags, voter: Any) -> Bags:
    check_bags(bags)
    condensed: Bags = voter.condensed(bags)
    return condensed


def _weighted(
    voter: Voter, source: Bags, labels: npt.NDArray[Any], sample_weight: Any
) -> tuple[Bags, npt.NDArray[Any], npt.NDArray[np.float64] | None]:
    """Leave out photos of weight 0; return the weights of the others, or None if they are equal."""
    weight = check_weights(sample_weight, len(source))
    if (weight == 0).any():
        source, labels, weight = source[weight > 0], labels[weight > 0], weight[weight > 0]
    if (weight == 1).all():
        return source, labels, None
    if not has_fit_parameter(voter, "sample_weight"):
        raise ValueError(f"{type(voter).__name__} takes no sample_weight: weights of its photos must be 0 or 1.")
    return source, labels, weight
