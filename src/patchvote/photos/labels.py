"""Labels that a caller passes with photos: none may be missing, and all must be of one type."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from ..errors import PatchvoteError
from ..utils.schema import brief
from ..utils.terminal import counted

# Types of labels. Every label becomes text, so that with mixed types 1 and "1" would become the same class.
_TYPES = {
    "text": (str,),
    "a truth value": (bool, np.bool_),
    "a whole number": (int, np.integer),
    "a number": (float, np.floating),
}


def label_texts(names: Sequence[str], labels: Iterable[Any]) -> list[str]:
    """Return the labels of photos as text.

    Parameters
    ----------
    names : sequence of str
        Names of the photos.
    labels : iterable
        Class of each photo, in the same order.

    Raises
    ------
    PatchvoteError
        A label is missing (None, NaN or empty), is neither text nor a number, or differs in type from the first.

    Examples
    --------
    >>> label_texts(["a.jpg", "b.jpg"], np.array([0, 1]))
    ['0', '1']
    """
    if isinstance(labels, str) or not isinstance(labels, Iterable):
        raise PatchvoteError(f"labels must be a list with one class per photo, got {brief(labels)}.")
    given = list(labels)
    if len(given) != len(names):
        raise PatchvoteError(f"there are {counted(len(names), 'photo')} but {counted(len(given), 'label')}.")
    kinds = []
    for number, (name, label) in enumerate(zip(names, given, strict=True)):
        if is_missing(label):
            raise PatchvoteError(f"photo {number} ({name}) has no label: it is {brief(label)}.")
        kinds.append(next((kind for kind, types in _TYPES.items() if isinstance(label, types)), ""))
        if not kinds[-1]:
            raise PatchvoteError(
                f"photo {number} ({name}): a label must be text or a number, got {brief(label)} of type "
                f"{type(label).__name__}."
            )
        if kinds[-1] != kinds[0]:
            raise PatchvoteError(
                f"the label of photo {number} ({name}) is {kinds[-1]}, {brief(label)}, but that of photo 0 "
                f"({names[0]}) is {kinds[0]}, {brief(given[0])}. Labels must be of one type: make all of them text."
            )
    return [str(label) for label in given]


def is_missing(label: Any) -> bool:
    """Whether a label is missing: None, NaN, or blank text."""
    if label is None or (isinstance(label, str) and not label.strip()):
        return True
    return isinstance(label, (float, np.floating)) and math.isnan(label)
