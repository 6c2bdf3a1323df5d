"""Collections that share photos: one typed twice, one inside of the other, or a list of photos of the other."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from ..utils.remote import RemotePath
from .find import Photo


def overlap(one: Path, other: Path) -> str:
    """Return how two local folders or files overlap, whatever links or spellings lead to them; empty if they do not.

    Examples
    --------
    >>> overlap(Path("."), Path("..")), overlap(Path(".."), Path(".")), overlap(Path("."), Path("./."))
    ('is inside of', 'contains', 'is the same as')
    """
    if isinstance(one, RemotePath) or isinstance(other, RemotePath) or not (one.exists() and other.exists()):
        return ""
    if one.samefile(other):
        return "is the same as"
    if one.is_dir() and other.is_dir():  # a list may stand among the photos that it names
        if any(above.samefile(other) for above in one.resolve().parents):
            return "is inside of"
        if any(above.samefile(one) for above in other.resolve().parents):
            return "contains"
    return ""


def shared_files(one: Iterable[Photo], other: Iterable[Photo]) -> list[str]:
    """Return the names of those photos of one collection whose files are in the other as well, also by links."""
    files = {path for photo in other if (path := _file(photo))}
    return [photo.name for photo in one if _file(photo) in files]


def _file(photo: Photo) -> str | None:
    source = photo.source
    return os.path.realpath(source) if isinstance(source, Path) and not isinstance(source, RemotePath) else None
