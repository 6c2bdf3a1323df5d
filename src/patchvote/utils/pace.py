"""Pace: how much of a job is done, its rate, and the time left, in words."""

from __future__ import annotations

import sys
import time

from .timing import Progress

_UNITS = {
    "choose": "settings",
    "vote": "cells",
    "fine-tune": "passes",
}  # what the steps of a stage are; photos for all others


class Pace:
    """Measures the rate of the current stage of a job.

    Parameters
    ----------
    stage : str
        Name of the first stage.
    """

    def __init__(self, stage: str = "") -> None:
        self.stage = stage
        self._began, self._first_done = time.monotonic(), -1

    def text(self, stage: str, done: int, total: int) -> str:
        """Return how much of a stage is done; the rate of a new stage is measured from its beginning."""
        now = time.monotonic()
        if stage != self.stage:
            self.stage, self._first_done = stage, -1
        if self._first_done < 0:  # what was done before does not count for the rate
            self._first_done, self._began = done, now
        rate = (done - self._first_done) / max(now - self._began, 1e-9)
        text = f"{done:,} of {total:,} {_UNITS.get(stage, 'photos')}"
        if done > self._first_done:
            pace = f"{rate:.1f} per second" if rate >= 0.2 else f"{60 * rate:.1f} per minute"
            text += f", {pace}, {duration((total - done) / rate)} left"
        return text


def as_progress(progress: Progress | bool | None) -> Progress | None:
    """Return the function that reports progress: for True, one that writes a line that replaces itself.

    The line goes to standard error, where both terminals and notebooks show it.
    """
    if not isinstance(progress, bool):
        return progress
    if not progress:
        return None
    pace, last, width = Pace(), 0.0, 0

    def show(stage: str, done: int, total: int) -> None:
        nonlocal last, width
        text, now = f"{stage}: {pace.text(stage, done, total)}", time.monotonic()
        if done >= total or now - last > 0.2:
            last = now
            sys.stderr.write("\r" + text.ljust(width) + ("\n" if done >= total else ""))
            sys.stderr.flush()
            width = 0 if done >= total else len(text)

    return show


def duration(seconds: float) -> str:
    """Return a duration as short text.

    Examples
    --------
    >>> duration(8), duration(125), duration(9000)
    ('8 s', '2 min', '2.5 h')
    """
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
