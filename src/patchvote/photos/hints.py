"""Hints about collections of photos that can be used as they are, but are probably not meant so."""

from __future__ import annotations

import collections
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .find import Photo

_NAMED = 3  # groups of classes that are named


def folder_of_classes(root: Path, photos: Iterable[Photo]) -> Path | None:
    """Return the folder that was probably meant where every class folder holds nothing but folders.

    That is so where `root` holds train/cat/1.jpg and test/cat/2.jpg, and "train" and "test" are taken for the classes.
    One whose name begins with "train" comes first, then the one with most photos; None is returned where a photo lies
    in a class folder itself.
    """
    counts: collections.Counter[str] = collections.Counter()
    for photo in photos:
        if photo.label is None or photo.name.count("/") < 2:
            return None
        counts[photo.label] += 1
    best = max(counts, key=lambda label: (label.lower().startswith("train"), counts[label]), default=None)
    return None if best is None else root / best


def similar_names(classes: Iterable[str]) -> str:
    """Name the classes whose names differ only in case or in spaces around them; nothing where there are none.

    Examples
    --------
    >>> similar_names(["Cat", "cat ", "dog"])
    "these classes differ in name only by case or spaces: 'Cat' and 'cat '. Each is learned as a class of its own."
    >>> similar_names(["cat", "dog"])
    ''
    """
    groups: dict[str, list[str]] = {}
    for label in sorted(set(classes)):
        groups.setdefault(label.strip().casefold(), []).append(label)
    alike = [" and ".join(map(repr, group)) for group in groups.values() if len(group) > 1]
    if not alike:
        return ""
    more = f"; and {len(alike) - _NAMED:,} more" if len(alike) > _NAMED else ""
    return (
        f"these classes differ in name only by case or spaces: {'; '.join(alike[:_NAMED])}{more}. Each is learned as a "
        "class of its own."
    )
