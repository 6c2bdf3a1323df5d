"""The time that parts of a job take, and the progress that a long job reports."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator

Progress = Callable[[str, int, int], None]  # called with the current step, the number of finished items, and the total


@contextlib.contextmanager
def timed(seconds: dict[str, float], what: str) -> Iterator[None]:
    """Add the seconds that the block takes to ``seconds[what]``."""
    start = time.perf_counter()
    yield
    seconds[what] = seconds.get(what, 0.0) + time.perf_counter() - start
