"""Progress of a long job: a bar on a terminal, a line every ten seconds in a pipe, nothing when quiet.

It is written to standard error; standard output is for results.
"""

from __future__ import annotations

import functools
import sys
import time
from types import TracebackType
from typing import Any

from ..utils.terminal import printable, say

_SECONDS_BETWEEN_LINES = 10.0


class ProgressLine:
    """Shows how much of a job is done, its rate, and the time left.

    Parameters
    ----------
    what : str
        Name of the job, such as "extract".
    quiet : bool
        Whether to show nothing.
    """

    def __init__(self, what: str, quiet: bool = False) -> None:
        self._what, self._quiet, self._unit = what, quiet, "photos"
        self._bar: Any = None
        self._task: Any = None
        self._last = self._began = time.monotonic()
        self._first_done: int | None = None

    def __enter__(self) -> ProgressLine:
        if not self._quiet and sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import BarColumn, Progress, TextColumn

            plain = functools.partial(TextColumn, markup=False)  # brackets in a name are not markup
            columns = plain("{task.description}"), BarColumn(bar_width=28), plain("{task.fields[text]}")
            self._bar = Progress(*columns, console=Console(stderr=True), transient=True)
            self._task = self._bar.add_task(self._what, total=None, text="")
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def stage(self, what: str, done: int, total: int) -> None:
        """Show how much of a stage is done; the rate of a new stage is measured from its beginning."""
        what = printable(what)
        if what != self._what:
            self._what, self._first_done = what, None
            self._unit = {"choose": "settings", "vote": "cells"}.get(what, "photos")
            if self._bar is not None:
                self._bar.update(self._task, description=what)
        self.show(done, total)

    def show(self, done: int, total: int) -> None:
        """Show that `done` of `total` photos are processed."""
        if self._quiet:
            return
        now = time.monotonic()
        if self._first_done is None:  # photos that were done before do not count for the rate
            self._first_done, self._began = done, now
        rate = (done - self._first_done) / max(now - self._began, 1e-9)
        text = f"{done:,} of {total:,} {self._unit}"
        if done > self._first_done:
            pace = f"{rate:.1f} per second" if rate >= 0.2 else f"{60 * rate:.1f} per minute"
            text += f", {pace}, {duration((total - done) / rate)} left"
        if self._bar is not None:
            self._bar.update(self._task, completed=done, total=total, text=text)
        elif now - self._last >= _SECONDS_BETWEEN_LINES:
            self._last = now
            say(f"{self._what}: {text}")


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
