"""Learning from a target: gains, self-training on the voter's own predictions, and calibration."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.base import clone

from ..bags.bags import Bags
from ..bags.copies import copy_groups
from .calibration import FEWEST_TO_CALIBRATE, fit_temperature, temperature_for, threshold_for
from .familiarity import REJECTION, Familiarity, HeldOut
from .gains import moved
from .labels import hold_out
from .votes import softmax

_SHARE_ROUNDS = 2  # times that the shares of the target's classes are estimated
_MARGIN_RATIO = 0.95  # with a smaller ratio of margins, estimated shares of classes replace those of the source
_HELD_OUT = 0.2  # share of the labelled photos that is held out to calibrate probabilities


@dataclasses.dataclass(frozen=True, eq=False)
class Adaptation:
    """Photos of two domains, and the voter that learns from them.

    Parameters
    ----------
    voter : estimator
        Voter to adapt.
    source : Bags
        Photos of the source.
    labels : array of shape (photos of the source,)
        Classes of the source's photos.
    known : Bags
        Photos of the target whose classes are known.
    known_labels : array
        Classes of the photos in `known`.
    unknown : Bags
        Photos of the target whose classes are not known.
    weight : array of shape (photos of the source,), optional
        Weights of the source's photos; all others have weight 1.
    """

    voter: Any
    source: Bags
    labels: npt.NDArray[Any]
    known: Bags
    known_labels: npt.NDArray[Any]
    unknown: Bags
    weight: npt.NDArray[np.float64] | None = None

    def run(
        self,
        unadapted: Any,
        left_out: npt.NDArray[np.bool_],
        gains: bool,
        shares: Sequence[float],
        *,
        agreeing: bool = False,
    ) -> tuple[Any, list[dict[str, Any]], Familiarity | None]:
        """Adapt the voter; return it, a record per round of self-training, and the familiarity of photos.

        Parameters
        ----------
        unadapted : fitted estimator
            The voter before adapting.
        left_out : array of shape (unknown photos,)
            Whether a photo is not used.
        gains : bool
            Whether features of the source get gains.
        shares : sequence of float
            Share of the photos of every class that is used, for each round.
        agreeing : bool, default False
            Whether to limit the mean confidence to the share of photos for which both voters agree.
        """
        voter, source = self._with_gains(unadapted, ~left_out) if gains else (self.learn(self.source), self.source)
        history: list[dict[str, Any]] = []
        taken, names = np.zeros(0, np.int64), voter.classes_[:0]
        before: npt.NDArray[Any] | None = None
        for share in shares if len(self.unknown) else ():
            votes = voter._mean_votes(self.unknown)
            named, taken = voter.classes_[votes.argmax(axis=1)], surest(votes, share)
            taken = taken[~left_out[taken]]
            names = named[taken]
            changed = 0 if before is None else int(np.sum(named != before))
            history.append({"share": share, "taken": len(taken), "changed": changed})
            voter, before = self.learn(source, taken, names), named
        familiarity = None
        if getattr(self.voter, "calibration", 0):
            familiarity = self._calibrate(voter, unadapted, source, taken, names, agreeing)
        return voter, history, familiarity

    def learn(
        self,
        source: Bags,
        taken: npt.NDArray[np.int64] | None = None,
        names: npt.NDArray[Any] | None = None,
        *,
        keep: npt.NDArray[np.int64] | None = None,
        voter: Any = None,
    ) -> Any:
        """Fit the voter to labelled photos, and to photos of the target with predicted classes.

        Parameters
        ----------
        source : Bags
            Photos of the source, with or without gains.
        taken : array of int, optional
            Indices of the unlabelled photos to learn from.
        names : array, optional
            Predicted classes of these photos.
        keep : array of int, optional
            Indices of the labelled photos to learn from; all by default.
        voter : estimator, optional
            Estimator to fit; by default the voter without calibration.
        """
        labelled, labels = self._labelled(source)
        if keep is not None:
            labelled, labels = labelled[keep], labels[keep]
        if taken is not None and names is not None and len(taken):
            labelled, labels = Bags.join([labelled, self.unknown[taken]]), np.concatenate([labels, names])
        learner = self.voter.uncalibrated() if voter is None else clone(voter)
        if self.weight is None:
            return learner.fit(labelled, labels)
        weight = np.concatenate([self.weight, np.ones(len(self.known))])
        weight = weight if keep is None else weight[keep]
        return learner.fit(labelled, labels, sample_weight=np.append(weight, np.ones(len(labels) - len(weight))))

    def _labelled(self, source: Bags) -> tuple[Bags, npt.NDArray[Any]]:
        if not len(self.known):
            return source, self.labels
        return Bags.join([source, self.known]), np.concatenate([self.labels, self.known_labels])

    def _with_gains(self, unadapted: Any, part: npt.NDArray[np.bool_]) -> tuple[Any, Bags]:
        """Return the voter fitted to the source with gains, and that source.

        Gains depend on the shares of the classes in the target. Either these are those of the source, or they are
        estimated from predictions. The first is assumed unless the second gives clearly larger margins.
        """
        used = self.unknown[part]
        target = Bags.join([bags for bags in (self.known, used) if len(bags)] or [self.unknown])
        mean = target.means().mean(axis=0, dtype=np.float64)
        same_shares = moved(self.source, self.labels, self.labels, mean)
        first = self.learn(same_shares)
        if not len(used):
            return first, same_shares
        second, estimated_shares = unadapted, self.source
        for _ in range(_SHARE_ROUNDS):
            predicted = np.concatenate([self.known_labels, second.predict(used)])
            estimated_shares = moved(self.source, self.labels, predicted, mean)
            second = self.learn(estimated_shares)
        first_margin, second_margin = (float(lead(voter._mean_votes(used)).mean()) for voter in (first, second))
        if first_margin < _MARGIN_RATIO * second_margin:
            return second, estimated_shares
        return first, same_shares

    # --- probabilities ----------------------------------------------------------------------------------------------

    def _held_out(
        self, source: Bags, taken: npt.NDArray[np.int64], names: npt.NDArray[Any]
    ) -> tuple[npt.NDArray[Any], npt.NDArray[np.int64], npt.NDArray[np.int64]] | None:
        """Return the mean votes for labelled photos by a voter that has not seen them, and which it has and has not.

        None if there are too few labelled photos to hold any out.
        """
        labelled, labels = self._labelled(source)
        _, numbers = np.unique(labels, return_inverse=True)
        groups = copy_groups(labelled.means())  # copies of a photo are held out together
        keep, out = hold_out(np.arange(len(labels)), numbers, _HELD_OUT, 0, groups)
        if not len(out) or len(labels) < FEWEST_TO_CALIBRATE:
            return None
        return self.learn(source, taken, names, keep=keep)._mean_votes(labelled[out]), keep, out

    def _calibrate(
        self,
        voter: Any,
        unadapted: Any,
        source: Bags,
        taken: npt.NDArray[np.int64],
        names: npt.NDArray[Any],
        agreeing: bool,
    ) -> Familiarity | None:
        """Set temperature and threshold from held-out labelled photos, with the same gains; return the familiarity.

        Photos are compared with the labelled ones alone: those that the voter named itself may be strangers.

        With `agreeing`, where adapting looked unsafe, the temperature is raised until the mean confidence for the
        target's photos is no larger than the share of them for which both voters agree: there is no better evidence.
        """
        held_out = self._held_out(source, taken, names)
        voter.temperature_, voter.rejection_threshold_ = unadapted.temperature_, unadapted.rejection_threshold_
        if held_out is None:
            return None
        votes_out, keep, out = held_out
        labelled, labels = self._labelled(source)
        numbers = np.searchsorted(voter.classes_, labels)
        voter.temperature_ = fit_temperature(votes_out, numbers[out])
        if agreeing and len(self.unknown):
            votes = voter._mean_votes(self.unknown)
            agreement = float(np.mean(voter.classes_[votes.argmax(axis=1)] == unadapted.predict(self.unknown)))
            voter.temperature_ = temperature_for(votes, agreement, voter.temperature_)
        probability, rejection = softmax(votes_out / voter.temperature_), getattr(self.voter, "rejection", REJECTION)
        voter.rejection_threshold_ = threshold_for(probability, numbers[out], rejection)
        return Familiarity.learned(labelled.means(), numbers, [HeldOut(keep, out, probability)], rejection)[0]


def lead(means: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return the margin of each photo: the largest mean vote minus the second largest."""
    ranked = np.sort(means, axis=1)
    return np.asarray(ranked[:, -1] - ranked[:, -2])


def surest(means: npt.NDArray[Any], share: float) -> npt.NDArray[np.int64]:
    """Return the photos with the largest margins, the same share of every predicted class."""
    margins, predicted = lead(means), means.argmax(axis=1)
    taken: list[int] = []
    for number in np.unique(predicted):
        class_rows = np.flatnonzero(predicted == number)
        best = class_rows[np.argsort(-margins[class_rows], kind="stable")]
        taken.extend(best[: int(np.ceil(share * len(class_rows)))].tolist())
    return np.array(sorted(taken), dtype=np.int64)
