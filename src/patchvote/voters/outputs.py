"""What scorers return, checked: votes, scores and probabilities of any voter, ours or another package's.

A scorer of another package may return anything. Code that names photos, draws evidence or chooses settings therefore
calls the functions of this module. They hand over bags that cannot be changed, and refuse what is not an array of
finite numbers of the right shape, in one sentence that names the voter. Errors of its code become such a sentence, too.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ..bags.bags import Bags
from ..errors import PatchvoteError, first_line

if TYPE_CHECKING:
    from .scorer import Scorer

_ROUNDING = 1e-3  # by which probabilities may miss 0, 1 and their sum: those of float32 miss it by less
_PACKAGE = __name__.partition(".")[0]


def is_ours(part: object) -> bool:
    """Whether the class of a voter or scorer is one of this package."""
    return type(part).__module__.partition(".")[0] == _PACKAGE


def named(part: Any) -> str:
    """Return a voter or scorer in words: its kind, and where its class is."""
    return f"the voter {part.kind!r} ({type(part).__module__}:{type(part).__qualname__})"


@contextlib.contextmanager
def blaming(part: Any) -> Iterator[None]:
    """Turn an error of another package's voter or scorer into a sentence that names it."""
    try:
        yield
    except (PatchvoteError, MemoryError):
        raise
    except Exception as error:
        if is_ours(part):
            raise
        kind, reason = type(error).__name__, first_line(error)
        raise PatchvoteError(f"{named(part)} failed: {reason if reason == kind else f'{kind}: {reason}'}") from error


def votes_of(scorer: Scorer, bags: Bags) -> npt.NDArray[Any]:
    """Return the checked vote of every descriptor for every class, ``(descriptors, classes)``."""
    with blaming(scorer):
        votes = scorer.votes(bags if is_ours(scorer) else bags.frozen())
    return checked(scorer, "votes", votes, len(bags.values), "descriptor")


def scores_of(scorer: Scorer, bags: Bags) -> npt.NDArray[np.float64]:
    """Return the checked score of each bag, ``(bags, classes)``."""
    with blaming(scorer):
        scores = scorer.scores(bags if is_ours(scorer) else bags.frozen())
    return checked(scorer, "scores", scores, len(bags), "bag")


def probability_of(
    scorer: Scorer, scores: npt.NDArray[Any], bags: Bags, temperature: float, threshold: float
) -> npt.NDArray[np.float64]:
    """Return the checked probability of each class, ``(bags, classes)``, from the scores of the bags."""
    with blaming(scorer):
        probability = scorer.probability(scores, bags if is_ours(scorer) else bags.frozen(), temperature, threshold)
    checked(scorer, "probabilities", probability, len(bags), "bag")
    least, most = float(probability.min()), float(probability.max())
    if least < -_ROUNDING or most > 1 + _ROUNDING:
        raise PatchvoteError(
            f"{named(scorer)} returned probabilities from {least:.4g} to {most:.4g}: they must be from 0 to 1."
        )
    sums = probability.sum(axis=1)
    furthest = float(sums[np.abs(sums - 1).argmax()])
    if abs(furthest - 1) > _ROUNDING:
        raise PatchvoteError(
            f"{named(scorer)} returned probabilities of a bag whose sum is {furthest:.4g}: they must sum to 1."
        )
    return probability


def checked(scorer: Scorer, what: str, array: Any, rows: int, row: str) -> npt.NDArray[Any]:
    """Refuse what is not an array of finite numbers with this number of rows, and one column per class."""
    expected = f"an array of shape ({rows}, {scorer.classes}): one row per {row}, one column per class"
    if not isinstance(array, np.ndarray):
        raise PatchvoteError(
            f"{named(scorer)} returned {what} of the type {type(array).__name__}, expected {expected}."
        )
    if array.shape != (rows, scorer.classes):
        raise PatchvoteError(f"{named(scorer)} returned {what} of shape {array.shape}, expected {expected}.")
    if array.dtype.kind not in "fiub":
        raise PatchvoteError(f"{named(scorer)} returned {what} of the type {array.dtype}, expected real numbers.")
    if array.dtype.kind == "f" and not _all_finite(array):
        bad = int(np.flatnonzero(~np.isfinite(array).all(axis=1))[0])
        raise PatchvoteError(f"{named(scorer)} returned {what} with NaN or infinity, for {row} {bad}.")
    return array


def _all_finite(array: npt.NDArray[Any]) -> bool:
    with np.errstate(all="ignore"):
        total = array.sum(dtype=np.float64)  # faster than looking at every number, and right unless it overflows
    return bool(np.isfinite(total)) or bool(np.isfinite(array).all())
