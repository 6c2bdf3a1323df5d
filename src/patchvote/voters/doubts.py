"""Doubts: signs that adapting would do harm, each with a message that says what was seen and what to do."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

# Largest shares of the target that may be rejected, and that may be far from every class. With other cameras, up to
# 0.65 were rejected though 89 % were classified correctly, and up to 0.2 were far from every class
# (docs/architecture.md).
_MOST_REJECTED, _MOST_STRANGE = 0.75, 0.5
# Smallest ratio of the variety of classes after and before adapting: it was 0.80 or more with another camera, and 0.53
# or less in a collapse.
_LEAST_VARIETY = 2 / 3
_FEWEST = 10  # photos to adapt to; fewer bring no accuracy (docs/architecture.md)

_WHAT_TO_DO = (
    "so the model answers as it was learned; if the photos do show its classes, insist (--insist, or insist=True), or "
    "teach it some of them with `patchvote add`."
)


class AdaptationWarning(UserWarning):
    """A voter was not adapted, because adapting looked unsafe."""


def unlike(rejected: npt.NDArray[np.bool_], strange: npt.NDArray[np.bool_]) -> str | None:
    """Return a message if most photos are rejected, or more than half are far from every class; otherwise None.

    Parameters
    ----------
    rejected : array of shape (photos,)
        Whether the unadapted voter rejects the photo.
    strange : array of shape (photos,)
        Whether the photo is rejected and far from every class.

    Examples
    --------
    >>> unlike(np.array([True, True, False]), np.array([True, True, False]))[:66]
    'not adapted: 2 of the 3 photos are "none of these" to the model as'
    >>> unlike(np.array([True, True, False]), np.array([True, False, False]))
    """
    count, far = int(rejected.sum()), int(strange.sum())
    if not len(rejected) or (count <= _MOST_REJECTED * len(rejected) and far <= _MOST_STRANGE * len(rejected)):
        return None
    return (
        f'not adapted: {count:,} of the {len(rejected):,} photos are "none of these" to the model as it was learned, '
        f"{far:,} of them far from every class, {_WHAT_TO_DO}"
    )


def too_few(count: int) -> str | None:
    """Return a message if too few photos can be used to tell another camera from chance; otherwise None.

    Examples
    --------
    >>> too_few(1)[:64]
    'not adapted: 1 photo near the classes of the model is too few to'
    >>> too_few(10)
    """
    if count >= _FEWEST:
        return None
    photos = (
        "1 photo near the classes of the model is" if count == 1 else f"{count} photos near the model's classes are"
    )
    return f"not adapted: {photos} too few to tell another camera from chance, {_WHAT_TO_DO}"


def collapsed(before: npt.NDArray[Any], after: npt.NDArray[Any]) -> str | None:
    """Return a message if the adapted voter predicts far fewer classes than the unadapted one; otherwise None.

    Parameters
    ----------
    before : array
        Predictions of the unadapted voter for the photos that are used.
    after : array
        Predictions of the adapted voter for the same photos.

    Examples
    --------
    >>> collapsed(np.array(["cat", "dog", "cow"] * 5), np.array(["cat"] * 15))[:64]
    "not adapted: adapting would name 15 of the 15 photos 'cat', wher"
    >>> collapsed(np.array(["cat", "dog", "dog"] * 5), np.array(["cat", "dog"] * 8))
    """
    if not len(before) or variety(after) >= _LEAST_VARIETY * variety(before):
        return None
    names, counts = np.unique(after, return_counts=True)
    most = str(names[counts.argmax()])
    return (
        f"not adapted: adapting would name {counts.max():,} of the {len(after):,} photos {most!r}, where the model as "
        f"it was learned finds {len(np.unique(before)):,} classes among them, {_WHAT_TO_DO}"
    )


def variety(names: npt.NDArray[Any]) -> float:
    """Return the effective number of classes: the exponential of the entropy of their shares.

    Examples
    --------
    >>> round(variety(np.array(["cat", "dog"])), 2), round(variety(np.array(["cat"] * 9 + ["dog"])), 2)
    (2.0, 1.38)
    """
    _, counts = np.unique(names, return_counts=True)
    share = counts / counts.sum()
    return float(np.exp(-np.sum(share * np.log(share))))
