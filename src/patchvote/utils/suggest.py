"""Suggest the nearest known name for a mistyped one."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def nearest(name: str, known: Iterable[str]) -> str:
    """Return the end of an error message: the name that was probably meant, or all known names.

    Examples
    --------
    >>> nearest("efficientnet-lte0", ["efficientnet-lite0", "efficientnet-lite2"])
    " Did you mean 'efficientnet-lite0'?"
    >>> nearest("resnet", ["mean", "scale"])
    ' Known are: mean, scale.'
    """
    known = list(known)
    close = difflib.get_close_matches(name, known, n=1)
    return f" Did you mean {close[0]!r}?" if close else f" Known are: {', '.join(known)}."
