"""Training that ends when its time is up.

Voters that learn in passes or rounds ask after each of them whether to go on (their setting `callback`), and keep what
they have learned so far. Other voters are trained in whole: their trainings take seconds.
"""

from __future__ import annotations

import time
from typing import Any

from sklearn.base import clone


def fit_until(voter: Any, until: float, *data: Any, **more: Any) -> Any:
    """Train a copy of a voter, which ends after the first pass that ends later than `until`.

    Parameters
    ----------
    voter : estimator
        The voter; it is not changed.
    until : float
        A time of `time.perf_counter`. Where it is not reached, the training is as without it.
    *data, **more
        Given to `fit`.
    """
    copy = clone(voter)
    if "callback" not in copy.get_params():
        return copy.fit(*data, **more)
    own = copy.callback

    def is_over(told: dict[str, Any]) -> bool:
        return (own is not None and own(told) is True) or time.perf_counter() > until

    return copy.set_params(callback=is_over).fit(*data, **more).set_params(callback=own)


def cut_short(voter: Any) -> str | None:
    """Say after how many of its rounds or passes a training ended, where it ended early.

    Examples
    --------
    >>> from types import SimpleNamespace
    >>> cut_short(SimpleNamespace(history_=[{"round": 1, "rounds": 30}, {"round": 2, "rounds": 30}]))
    '2 of 30 rounds'
    """
    last = (getattr(voter, "history_", None) or [{}])[-1]
    for one, all_ in (("round", "rounds"), ("pass", "passes")):
        if last.get(one, 0) < last.get(all_, 0):
            return f"{last[one]} of {last[all_]} {all_}"
    return None
