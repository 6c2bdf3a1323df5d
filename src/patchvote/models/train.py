"""Train a voter of any package, and check what it leaves behind.

Voters of this package are trained as they are. The code of another package may fail in any way, change the bags that it
gets, or leave out what a scorer needs: each is reported in a sentence that names the voter.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from ..bags.bags import Bags
from ..errors import PatchvoteError
from ..utils.schema import brief
from ..voters.base import Voter
from ..voters.outputs import blaming, is_ours, named


def train(voter: Voter, until: float, bags: Bags, labels: npt.NDArray[Any], **more: Any) -> Any:
    """Train a copy of a voter, as `fit_until` does; report what is wrong with one of another package.

    Raises
    ------
    PatchvoteError
        The training failed, or did not set what a scorer needs.
    """
    if is_ours(voter):
        return fit_until(voter, until, bags, labels, **more)
    with blaming(voter):
        fitted = fit_until(voter, until, bags.frozen(), labels, **more)
    _check_fitted(voter, fitted, labels)
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


def fit_until(voter: Any, until: float, *data: Any, method: str = "fit", **more: Any) -> Any:
    """Train a copy of a voter, whose parameter `callback` ends it after the first pass later than `until`.

    Voters without this parameter are always trained completely, which takes seconds.
    """
    from sklearn.base import clone

    copy = clone(voter)
    before = {name: value for name, value in copy.get_params().items() if name.split("__")[-1] == "callback"}
    for name, callback in before.items():  # also those of its members
        copy.set_params(**{name: _until(until, callback)})
    fitted = getattr(copy, method)(*data, **more)
    return fitted.set_params(**before) if before else fitted


def _until(until: float, callback: Callable[[dict[str, Any]], Any] | None) -> Callable[[dict[str, Any]], bool]:
    """Return a callback that ends a training after `until` (`time.perf_counter`), or where another callback ends it."""

    def is_over(state: dict[str, Any]) -> bool:
        late = state.get("complete", True) and time.perf_counter() > until  # a pass of SNBNL is completed
        return (callback is not None and callback(state) is True) or late

    return is_over


def cut_short(voter: Any) -> str | None:
    """Return after how many of its rounds or passes a training stopped early; None where it was completed."""
    last = (getattr(voter, "history_", None) or [{}])[-1]
    for done, planned in (("round", "rounds"), ("pass", "passes")):
        if last.get(done, 0) < last.get(planned, 0):
            return f"{last[done]} of {last[planned]} {planned}"
    return None
