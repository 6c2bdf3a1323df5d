"""Learning from a target: with gains, from the names that the voter gives its photos, and how sure to be of them."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.base import clone

from ..bags.bags import Bags
from .calibration import FEWEST_TO_CALIBRATE, fit_temperature, temperature_for, threshold_for
from .gains import moved
from .labels import hold_out
from .votes import softmax

_LOOKS = 2  # at the target, for the shares of its classes
_AS_SURE = 0.95  # of the confidence with found shares: with less, the source's own shares are not the target's
_HELD_OUT = 0.2  # share of the labelled photos that is held out to set probabilities


@dataclasses.dataclass(frozen=True, eq=False)
class Adaptation:
    """Photos of two domains, and a voter to learn from them.

    Parameters
    ----------
    voter : estimator
        What learns.
    source : Bags
        Photos of the source.
    labels : array of shape (photos of the source,)
        Their classes.
    known : Bags
        Photos of the target whose classes are known.
    known_labels : array
        Their classes.
    unknown : Bags
        Photos of the target whose classes are not known.
    """

    voter: Any
    source: Bags
    labels: npt.NDArray[Any]
    known: Bags
    known_labels: npt.NDArray[Any]
    unknown: Bags

    def run(
        self,
        unadapted: Any,
        left_out: npt.NDArray[np.bool_],
        gains: bool,
        shares: Sequence[float],
        *,
        agreeing: bool = False,
    ) -> tuple[Any, list[dict[str, Any]]]:
        """Adapt the voter; return it, and a record per round of self-training.

        Parameters
        ----------
        unadapted : fitted estimator
            The voter before adapting.
        left_out : array of shape (unknown photos,)
            Photos that take no part.
        gains : bool
            Whether features of the source get gains.
        shares : sequence of float
            The share of the photos of every class that each round takes.
        agreeing : bool, default False
            Whether the mean confidence may be no larger than the share of photos that both voters name alike.
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
        if getattr(self.voter, "calibration", 0):
            self._calibrate(voter, unadapted, source, taken, names, agreeing)
        return voter, history

    def learn(
        self,
        source: Bags,
        taken: npt.NDArray[np.int64] | None = None,
        names: npt.NDArray[Any] | None = None,
        *,
        keep: npt.NDArray[np.int64] | None = None,
        voter: Any = None,
    ) -> Any:
        """Fit the voter to labelled photos and to photos of the target under the names that it gave them.

        Parameters
        ----------
        source : Bags
            Photos of the source, with or without gains.
        taken : array of int, optional
            Unknown photos to learn from.
        names : array, optional
            Their names.
        keep : array of int, optional
            Which labelled photos to learn from; all by default.
        voter : estimator, optional
            What learns; by default the voter without a calibration of its own.
        """
        labelled, labels = self._labelled(source)
        if keep is not None:
            labelled, labels = labelled[keep], labels[keep]
        if taken is not None and names is not None and len(taken):
            labelled, labels = Bags.join([labelled, self.unknown[taken]]), np.concatenate([labels, names])
        return (self.voter.uncalibrated() if voter is None else clone(voter)).fit(labelled, labels)

    def _labelled(self, source: Bags) -> tuple[Bags, npt.NDArray[Any]]:
        if not len(self.known):
            return source, self.labels
        return Bags.join([source, self.known]), np.concatenate([self.labels, self.known_labels])

    def _with_gains(self, unadapted: Any, part: npt.NDArray[np.bool_]) -> tuple[Any, Bags]:
        """Return what learns from the source with gains, and that source.

        Of two accounts of the target, that its classes have the source's shares or those that are found there, the
        first is taken unless photos are clearly more surely named under the second.
        """
        seen = self.unknown[part]
        there = Bags.join([part for part in (self.known, seen) if len(part)] or [self.unknown])
        mean = there.means().mean(axis=0, dtype=np.float64)
        alike = moved(self.source, self.labels, self.labels, mean)
        first = self.learn(alike)
        if not len(seen):
            return first, alike
        second, other = unadapted, self.source
        for _ in range(_LOOKS):
            found = np.concatenate([self.known_labels, second.predict(seen)])
            other = moved(self.source, self.labels, found, mean)
            second = self.learn(other)
        sure, surer = (float(lead(voter._mean_votes(seen)).mean()) for voter in (first, second))
        return (second, other) if sure < _AS_SURE * surer else (first, alike)

    # --- probabilities ----------------------------------------------------------------------------------------------

    def _held_out(
        self, source: Bags, taken: npt.NDArray[np.int64], names: npt.NDArray[Any]
    ) -> tuple[npt.NDArray[Any], npt.NDArray[np.int64]] | None:
        """Return mean votes for labelled photos by a voter that has not seen them, and the numbers of their classes.

        None where there are too few labelled photos to hold any out.
        """
        labelled, labels = self._labelled(source)
        classes, numbers = np.unique(labels, return_inverse=True)
        keep, out = hold_out(np.arange(len(labels)), numbers, _HELD_OUT, 0)
        if not len(out) or len(labels) < FEWEST_TO_CALIBRATE:
            return None
        voter = self.learn(source, taken, names, keep=keep)
        return voter._mean_votes(labelled[out]), np.searchsorted(voter.classes_, classes[numbers[out]])

    def _calibrate(
        self,
        voter: Any,
        unadapted: Any,
        source: Bags,
        taken: npt.NDArray[np.int64],
        names: npt.NDArray[Any],
        agreeing: bool,
    ) -> None:
        """Set temperature and threshold from what is known: labelled photos that were held out, with the same gains.

        Where adapting looked unsafe (`agreeing`), the temperature is raised until the mean confidence in the target's
        photos is no larger than the share of them that the unadapted voter names alike: there is no better evidence.
        """
        held_out = self._held_out(source, taken, names)
        voter.temperature_, voter.rejection_threshold_ = unadapted.temperature_, unadapted.rejection_threshold_
        if held_out is None:
            return
        voter.temperature_ = fit_temperature(*held_out)
        if agreeing and len(self.unknown):
            votes = voter._mean_votes(self.unknown)
            alike = float(np.mean(voter.classes_[votes.argmax(axis=1)] == unadapted.predict(self.unknown)))
            voter.temperature_ = temperature_for(votes, alike, voter.temperature_)
        votes, numbers = held_out
        probability = softmax(votes / voter.temperature_)
        voter.rejection_threshold_ = threshold_for(probability, numbers, getattr(self.voter, "rejection", 0.05))


def lead(means: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return by how much the first class of each photo leads the second."""
    first = np.sort(means, axis=1)
    return np.asarray(first[:, -1] - first[:, -2])


def surest(means: npt.NDArray[Any], share: float) -> npt.NDArray[np.int64]:
    """Return the photos whose first class leads the second by most: the same share of every class."""
    leads, names = lead(means), means.argmax(axis=1)
    taken: list[int] = []
    for number in np.unique(names):
        own = np.flatnonzero(names == number)
        best = own[np.argsort(-leads[own], kind="stable")]
        taken.extend(best[: int(np.ceil(share * len(own)))].tolist())
    return np.array(sorted(taken), dtype=np.int64)
