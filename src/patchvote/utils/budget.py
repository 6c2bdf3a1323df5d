"""Training that ends when its time is up.

Voters that learn in passes or rounds call their parameter `callback` after each of them, and stop where it returns
True, with what they have learned so far. Other voters are always trained completely, which takes seconds.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any


def fit_until(voter: Any, until: float, *data: Any, method: str = "fit", **more: Any) -> Any:
    """Train a copy of a voter; the training stops after the first pass that ends later than `until`.

    Parameters
    ----------
    voter : estimator
        Voter to copy; it is not changed.
    until : float
        Deadline, in the time of `time.perf_counter`. A training that ends before is not affected.
    method : str, default "fit"
        Method that trains.
    *data, **more
        Arguments of the method.
    """
    from sklearn.base import clone

    copy = clone(voter)
    before = {name: value for name, value in copy.get_params().items() if name.split("__")[-1] == "callback"}
    for name, callback in before.items():  # also those of its members
        copy.set_params(**{name: _until(until, callback)})
    fitted = getattr(copy, method)(*data, **more)
    return fitted.set_params(**before) if before else fitted


def _until(until: float, callback: Callable[[dict[str, Any]], Any] | None) -> Callable[[dict[str, Any]], bool]:
    """Return a callback that ends a training after `until`, or where another callback ends it."""

    def is_over(state: dict[str, Any]) -> bool:
        late = state.get("complete", True) and time.perf_counter() > until  # a pass of SNBNL is completed
        return (callback is not None and callback(state) is True) or late

    return is_over


def cut_short(voter: Any) -> str | None:
    """Return after how many of its rounds or passes a training stopped early; None where it was completed.

    Examples
    --------
    >>> from types import SimpleNamespace
    >>> cut_short(SimpleNamespace(history_=[{"round": 1, "rounds": 30}, {"round": 2, "rounds": 30}]))
    '2 of 30 rounds'
    """
    last = (getattr(voter, "history_", None) or [{}])[-1]
    for done, planned in (("round", "rounds"), ("pass", "passes")):
        if last.get(done, 0) < last.get(planned, 0):
            return f"{last[done]} of {last[planned]} {planned}"
    return None
