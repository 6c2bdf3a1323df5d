"""Train a voter of any package, and check what it leaves behind.

Voters of this package are trained as they are. The code of another package may fail in any way, change the bags that it
gets, or leave out what a scorer needs: each is reported in a sentence that names the voter.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from ..bags.bags import Bags
from ..bags.store import Store
from ..errors import PatchvoteError
from ..utils.budget import fit_until
from ..utils.schema import brief
from ..voters.adapted import Adapted
from ..voters.base import Voter
from ..voters.outputs import blaming, is_ours, named, scores_of

_COMPARED = 3  # bags on which the scores of bags and of their means are compared
_ROUNDING = 1e-4  # difference of these scores, relative to the largest, that may be due to rounding in float32


def train(voter: Voter, until: float, bags: Bags | Store, labels: npt.NDArray[Any], **more: Any) -> Any:
    """Train a copy of a voter, as `fit_until` does; report what is wrong with one of another package.

    Raises
    ------
    PatchvoteError
        The training failed, or did not set what a scorer needs.
    """
    blamed = voter.voter if isinstance(voter, Adapted) and voter.voter is not None else voter
    if is_ours(blamed):
        return fit_until(voter, until, bags, labels, **more)
    with blaming(blamed):
        fitted = fit_until(voter, until, bags if isinstance(bags, Store) else bags.frozen(), labels, **more)
    _check_fitted(blamed, fitted.voter_ if isinstance(fitted, Adapted) else fitted, labels)
    return fitted


def _check_fitted(voter: Voter, fitted: Any, labels: npt.NDArray[Any]) -> None:
    """Refuse what `fit` must not return, and a voter without the classes or arrays that it must set."""
    if not isinstance(fitted, type(voter)):
        raise PatchvoteError(f"{named(voter)} failed: its fit returned {brief(fitted)}, expected the voter itself.")
    classes, expected = getattr(fitted, "classes_", None), np.unique(labels)
    if classes is None or not np.array_equal(classes, expected):
        raise PatchvoteError(
            f"{named(voter)} failed: its fit set classes_ to {brief(classes)}, expected the sorted classes "
            f"{brief(expected.tolist())}, which `_set_classes` sets."
        )
    missing = [name for name in fitted.scorer_class.schema.arrays if not hasattr(fitted, f"{name}_")]
    if missing:
        raise PatchvoteError(
            f"{named(voter)} failed: its fit did not set {missing[0]}_, the array {missing[0]!r} of its schema."
        )


def check_means_only(voter: Voter, whole: Callable[[npt.NDArray[np.int64]], Bags], images: int) -> None:
    """Refuse a voter of another package that claims to use only the mean of a bag, but does not.

    Parameters
    ----------
    voter : Voter
        Trained voter with `means_only`.
    whole : function
        Returns the complete bags of images, given their indices.
    images : int
        Number of images that there are.
    """
    scorer = voter.scorer()
    if is_ours(scorer):
        return
    bags = whole(np.arange(min(_COMPARED, images)))
    scores, of_means = scores_of(scorer, bags), scores_of(scorer, Bags.of(bags.means()))
    difference, largest = float(np.abs(scores - of_means).max()), float(np.abs(scores).max())
    if difference > _ROUNDING * max(largest, 1e-12):
        raise PatchvoteError(
            f"{named(scorer)} has means_only = True, but its scores of bags differ from those of their means by up to "
            f"{difference:.3g}: leave means_only out."
        )
