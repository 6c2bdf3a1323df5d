"""Which photos a model has learned from, so that none is counted twice.

A model keeps a short digest of the content of every photo, by class. Models of before keep none, and models of very
many photos keep none either: there, every photo counts as unknown.
"""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Iterable

from .about import About

_DIGITS = 16  # of a SHA-256 in hexadecimal: two of a million photos share them with a chance of 1 in 10 million
_MOST = 200_000  # photos whose digests are kept: they take 4 MB of the model's header


def short(digest: str) -> str:
    """Return a digest as models keep it."""
    return digest[:_DIGITS]


def known_photos(about: About) -> dict[str, set[str]]:
    """Return the classes under which photos were learned, by their short digests.

    Examples
    --------
    >>> known_photos(About(photos={"cat": ["00ff"], "dog": ["00ff", "1234"]}))["1234"]
    {'dog'}
    >>> known_photos(About())
    {}
    """
    known: dict[str, set[str]] = collections.defaultdict(set)
    for label, digests in about.photos.items():
        for digest in digests:
            known[digest].add(label)
    return dict(known)


def with_photos(about: About, photos: Iterable[tuple[str, str]]) -> About:
    """Return what is told of a model, with more photos as pairs of class and digest.

    Examples
    --------
    >>> with_photos(About(), [("cat", "00ff")]).photos
    {'cat': ['00ff']}
    """
    by_class = {label: list(digests) for label, digests in about.photos.items()}
    for label, digest in photos:
        by_class.setdefault(label, []).append(short(digest))
    if sum(map(len, by_class.values())) > _MOST:
        by_class = {}
    return dataclasses.replace(about, photos=by_class)
