"""How long parts of a job took, and what a long job tells while it works."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator

Progress = Callable[[str, int, int], None]  # what is being done, how much of it is done, of how much


@contextlib.contextmanager
def timed(seconds: dict[str, float], what: str) -> Iterator[None]:
    """Add the seconds that the body takes to those of `what`."""
    began = time.perf_counter()
    yield
    seconds[what] = seconds.get(what, 0.0) + time.perf_counter() - began
