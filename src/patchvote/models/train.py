"""Train a voter within a budget of time, and say where that cut a training short."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any


def fit_until(voter: Any, until: float, *data: Any, method: str = "fit", **more: Any) -> Any:
    """Train a copy of a voter, whose callback ends it after the first pass later than `until`.

    Voters that do not learn in passes or rounds are always trained completely, which takes seconds.
    """
    copy = voter.__sklearn_clone__()
    options = copy.options
    fitted = getattr(copy.set_options(callback=_until(until, options.callback)), method)(*data, **more)
    fitted.options = options
    return fitted


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
