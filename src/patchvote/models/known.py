"""Which photos a model has learned from, so that none is learned twice.

A model stores a short digest of every photo, by class. Models of very many photos store none; for them, only photos
that were added later are known.
"""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Iterable

from .about import About

_DIGITS = 16  # of a SHA-256 in hexadecimal: two of a million photos collide with a probability of 1 in 10 million
_MAX_PHOTOS = 200_000  # whose digests are stored: they take 4 MB of the model's header


def short(digest: str) -> str:
    """Return a digest as models store it."""
    return digest[:_DIGITS]


def known_photos(about: About) -> dict[str, set[str]]:
    """Return the classes under which photos were learned, by short digest.

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
    """Return the metadata of a model with further photos, given as pairs of class and digest.

    Examples
    --------
    >>> with_photos(About(), [("cat", "00ff")]).photos
    {'cat': ['00ff']}
    """
    by_class = {label: list(digests) for label, digests in about.photos.items()}
    for label, digest in photos:
        by_class.setdefault(label, []).append(short(digest))
    if sum(map(len, by_class.values())) > _MAX_PHOTOS:
        by_class = {}
    return dataclasses.replace(about, photos=by_class)
