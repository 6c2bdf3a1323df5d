"""Hints about collections of photos that can be used, but probably contain a mistake."""

from __future__ import annotations

import collections
import itertools
import os
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from ..utils.remote import RemotePath

if TYPE_CHECKING:
    from .find import Photo

_MAX_SHOWN = 3  # groups of similar classes that a hint lists
_MAX_NAMES = 1000  # names in a folder that are compared with one that does not exist
SPREADSHEETS = (".xlsx", ".xls", ".ods", ".numbers", ".tsv")  # tables that are not read, but can be saved as .csv


def how_to_label(*, listed: bool, count: int) -> str:
    """Return what to do about photos without a class, in a list or in a folder.

    Examples
    --------
    >>> how_to_label(listed=False, count=1)
    'Move it into the folder of its class, or away.'
    """
    them, their = ("it", "its") if count == 1 else ("them", "their")
    if listed:
        return f"Name {their} class in the column of labels, or leave {them} out of the list."
    return f"Move {them} into the folder of {their} class, or away."


def folder_of_classes(root: Path, photos: Iterable[Photo]) -> Path | None:
    """Return the folder that was probably meant if every class folder holds only folders, or None.

    For example, `root` holds train/cat/1.jpg and test/cat/2.jpg, so that "train" and "test" would become the classes. A
    folder whose name begins with "train" is preferred, then the one with most photos. If any photo lies directly in a
    class folder, None is returned.
    """
    counts: collections.Counter[str] = collections.Counter()
    for photo in photos:
        if photo.label is None or photo.name.count("/") < 2:
            return None
        counts[photo.label] += 1
    best = max(counts, key=lambda label: (label.lower().startswith("train"), counts[label]), default=None)
    return None if best is None else root / best


def folder_above(folder: Path) -> Path | None:
    """Return the folder above one that was probably meant to be one of its classes: it holds other folders; or None."""
    if isinstance(folder, RemotePath) or not folder.is_dir():
        return None
    above = folder.resolve().parent
    try:
        with os.scandir(above) as entries:
            others = any(entry.is_dir() for entry in entries if entry.name[0] != "." and entry.name != folder.name)
    except OSError:
        return None
    return folder.parent if others and folder.parent != folder and folder.name not in ("", "..") else None


def near_path(path: Path) -> str:
    """Return a question after the file or folder that was probably meant by a name that does not exist, or "".

    Parameters
    ----------
    path : path
        Path that does not exist.
    """
    if isinstance(path, RemotePath):
        return ""
    try:
        with os.scandir(path.parent) as entries:
            names = [entry.name for entry in itertools.islice(entries, _MAX_NAMES)]
    except (OSError, ValueError):
        return ""
    import difflib  # only a mistake needs it

    # The ending alone makes names similar, and the rest alone does not make a report of a model.
    stems = difflib.get_close_matches(path.stem, {Path(name).stem for name in names}, n=_MAX_NAMES)
    close = difflib.get_close_matches(path.name, [name for name in names if Path(name).stem in stems], n=1)
    return f" Did you mean {path.parent / close[0]}?" if close else ""


def similar_names(classes: Iterable[str]) -> str:
    """Return a hint about classes whose names differ only in case or surrounding spaces; empty if there are none.

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
    more = f"; and {len(alike) - _MAX_SHOWN:,} more" if len(alike) > _MAX_SHOWN else ""
    return (
        f"these classes differ in name only by case or spaces: {'; '.join(alike[:_MAX_SHOWN])}{more}. Each is learned "
        "as a class of its own."
    )
