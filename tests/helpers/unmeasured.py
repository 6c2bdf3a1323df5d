"""Surroundings in which `make coverage` does not follow a started process."""

from __future__ import annotations

import os


def unmeasured() -> dict[str, str]:
    """Return the environment without what makes a process start coverage.py.

    For processes that may not load or write anything of its own: it imports modules, and writes a file at the end.
    """
    return {name: value for name, value in os.environ.items() if not name.startswith("COVERAGE_")}
