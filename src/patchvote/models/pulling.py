"""Which training photos pulled a photo towards a class.

The default voter says how much each training photo adds to a score (`MomentVotes.pulls`); local NBNN, how many votes
each has given. For NBNN, a part of a photo is pulled by the training photo that has the nearest part of the class, as
strongly as it votes for the class rather than for another. Prototypes are learned from all photos together: none can
be named.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from ..bags.bags import Bags
from ..errors import PatchvoteError
from ..voters.outputs import blaming, named
from ..voters.scorer import Scorer
from .evidence import Evidence, Pull
from .model import Model

_MOST = 5  # photos that are named


def pulls_of(
    scorer: Scorer,
    names: Sequence[str],
    bag: Bags,
    evidence: Evidence,
    label: str,
) -> tuple[Pull, ...]:
    """Return the training photos that pulled a photo most towards a class; none if it cannot be told.

    Parameters
    ----------
    scorer : Scorer
        Scorer that voted.
    names : sequence of str
        Names of the photos that it was given to learn from, in order; empty if they are not known.
    bag : Bags
        Bag of the photo.
    evidence : Evidence
        Evidence of the photo.
    label : str
        The class.
    """
    if not names:
        return ()
    if evidence.matches:
        return _strongest(*_of_matches(evidence, label), label)
    with blaming(scorer):
        added = _added(scorer, len(names), bag.frozen(), evidence, label)
    if added is None:
        return ()
    if added.ndim != 1 or len(added) > len(names) or not np.isfinite(added).all():
        raise PatchvoteError(
            f"{named(scorer)} returned pulls of the shape {added.shape}, expected one finite number for each of "
            f"{len(names)} training photos."
        )
    return _strongest(names, added, label)


def _added(scorer: Scorer, photos: int, bag: Bags, evidence: Evidence, label: str) -> npt.NDArray[np.float64] | None:
    """Return how much each training photo pulls, from what the scorer can tell."""
    number = evidence.number(label)
    if scorer.remembers and (nearest := scorer.matches(bag, number)) is not None:
        images = np.asarray(nearest[0])
        return np.bincount(images, np.maximum(evidence.advantage(label), 0.0), minlength=photos).astype(np.float64)
    added = scorer.pulls(bag, number) if scorer.traces else None
    return None if added is None else np.asarray(added, np.float64)


def _of_matches(evidence: Evidence, label: str) -> tuple[list[str], npt.NDArray[np.float64]]:
    """Return training photos, and the sum of the advantages of the parts that are nearest to theirs."""
    advantages = np.sort(evidence.advantage(label))[::-1]  # matches are in this order
    sums: dict[str, float] = {}
    for match, advantage in zip(evidence.matches, advantages.tolist(), strict=True):
        sums[match.name] = sums.get(match.name, 0.0) + max(0.0, advantage)
    return list(sums), np.array(list(sums.values()))


def _strongest(names: Sequence[str], added: npt.NDArray[np.float64], label: str) -> tuple[Pull, ...]:
    positive = np.maximum(added, 0.0)
    total = float(positive.sum())
    order = np.argsort(-positive, kind="stable")[:_MOST]
    return tuple(Pull(names[i], label, float(positive[i]) / total) for i in order if positive[i] > 0)


def cannot_tell(model: Model) -> str | None:
    """Return why a model cannot name the training photos that pulled a photo, in one sentence; None if it can.

    Examples
    --------
    >>> from patchvote.voters.prototypes.votes import SnbnlVotes
    >>> SnbnlVotes.remembers
    False
    """
    if model.names:
        return None
    if model.about.adapted:
        return "Which training photos pulled it there cannot be told of an adapted model; the unadapted one can tell."
    if type(model.scorer).traces is Scorer.traces and not model.scorer.remembers:
        return (
            f"Which training photos pulled it there cannot be told: a model of {model.kind} keeps what it learned of "
            "all photos together. One of the default voter or of nbnn can tell."
        )
    return (
        "Which training photos pulled it there cannot be told: the model was written without its memory, or is of very "
        "many photos."
    )
