"""Progress of a long job: a bar on a terminal, a line every ten seconds in a pipe, nothing when quiet.

It is written to standard error; standard output is for results.
"""

from __future__ import annotations

import functools
import sys
import time
from types import TracebackType
from typing import Any

from ..utils.terminal import Pace, printable, say

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
        self._pace, self._quiet = Pace(what), quiet
        self._bar: Any = None
        self._task: Any = None
        self._last = time.monotonic()

    def __enter__(self) -> ProgressLine:
        if not self._quiet and sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import BarColumn, Progress, TextColumn

            plain = functools.partial(TextColumn, markup=False)  # brackets in a name are not markup
            columns = plain("{task.description}"), BarColumn(bar_width=28), plain("{task.fields[text]}")
            self._bar = Progress(*columns, console=Console(stderr=True), transient=True)
            self._task = self._bar.add_task(self._pace.stage, total=None, text="")
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def stage(self, what: str, done: int, total: int) -> None:
        """Show how much of a stage is done; the rate of a new stage is measured from its beginning."""
        if self._quiet:
            return
        what = printable(what)
        text = self._pace.text(what, done, total)
        if self._bar is not None:
            self._bar.update(self._task, description=what, completed=done, total=total, text=text)
        elif time.monotonic() - self._last >= _SECONDS_BETWEEN_LINES:
            self._last = time.monotonic()
            say(f"{what}: {text}")

    def show(self, done: int, total: int) -> None:
        """Show that `done` of `total` items of the current stage are processed."""
        self.stage(self._pace.stage, done, total)
