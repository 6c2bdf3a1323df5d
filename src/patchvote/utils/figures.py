"""Figures of matplotlib, which is an extra: without it, an error says how to install it."""

from __future__ import annotations

from typing import Any

from ..errors import PatchvoteError


def new_figure(width: float, height: float) -> Any:
    """Return an empty figure, in inches, whose parts arrange themselves.

    Raises
    ------
    PatchvoteError
        Matplotlib is not installed.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise PatchvoteError("plots need matplotlib: pip install 'patchvote[plots]'.") from None
    return Figure(figsize=(width, height), layout="constrained")
