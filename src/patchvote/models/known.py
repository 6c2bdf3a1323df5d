"""Which photos a model has learned from, so that none is counted twice.

A model keeps a short digest of the content of every photo, by class. Models of before keep none, and models of very
many photos keep none either: there, every photo counts as unknown.
"""

from __future__ import annotations

import collections
from collections.abc import Iterable, Mapping
from typing import Any

KEY = "photos"  # in what a model tells about itself: for each class a list of digests
_DIGITS = 16  # of a SHA-256 in hexadecimal: two of a million photos share them with a chance of 1 in 10 million
_MOST = 200_000  # photos whose digests are kept: they take 4 MB of the model's header


def short(digest: str) -> str:
    """Return a digest as models keep it."""
    return digest[:_DIGITS]


def known_photos(about: Mapping[str, Any]) -> dict[str, set[str]]:
    """Return the classes under which photos were learned, by their short digests.

    Examples
    --------
    >>> known_photos({"photos": {"cat": ["00ff"], "dog": ["00ff", "1234"]}})["1234"]
    {'dog'}
    >>> known_photos({})
    {}
    """
    kept = about.get(KEY)
    known: dict[str, set[str]] = collections.defaultdict(set)
    for label, digests in kept.items() if isinstance(kept, dict) else ():
        for digest in digests if isinstance(digests, list) else ():
            known[str(digest)].add(str(label))
    return dict(known)


def with_photos(about: Mapping[str, Any], photos: Iterable[tuple[str, str]]) -> dict[str, Any]:
    """Return what a model tells about itself, with more photos as pairs of class and digest.

    Examples
    --------
    >>> with_photos({}, [("cat", "00ff")])
    {'photos': {'cat': ['00ff']}}
    """
    kept = about.get(KEY)
    by_class = {label: list(digests) for label, digests in kept.items()} if isinstance(kept, dict) else {}
    for label, digest in photos:
        by_class.setdefault(label, []).append(short(digest))
    if sum(map(len, by_class.values())) > _MOST:
        by_class = {}
    return {**about, KEY: by_class}
