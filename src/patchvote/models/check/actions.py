"""Actions: what is to become of photos, read from the list of a check that a user has edited.

The list may come from anybody. It can name photos of the collection and nothing else; it can move them into the folders
of classes that exist, and into the one folder that the user names. Nothing is deleted.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from ...errors import PatchvoteError
from ...photos.find import Photo
from ...photos.manifests import ENDINGS, read_manifest
from ...photos.moves import Move, Spot
from ...utils.schema import brief
from ...utils.terminal import nearest

DROPPED = "dropped"  # folder of dropped photos, in the folder that photos are moved into


class Action(enum.StrEnum):
    """What is to become of a photo."""

    keep = "keep"
    relabel = "relabel"
    move = "move"
    drop = "drop"


def moves_of(
    path: Path,
    photos: Iterable[Photo],
    root: Path,
    into: Path | None,
    *,
    classes: Iterable[str] = (),
    spelling: Callable[[str], str] = str,
) -> list[Move]:
    """Read a list of actions, and return the moves that carry them out.

    Parameters
    ----------
    path : Path
        The list, .csv or .jsonl, with the columns `file_name`, `action` and, for classes, `to`.
    photos : iterable of Photo
        Photos of the collection.
    root : Path
        Folder of the collection, with one folder per class.
    into : Path or None
        Folder for photos that leave the collection.
    classes : iterable of str
        Class folders without photos.
    spelling : function, optional
        How a name is written in a .csv, where it may differ from the name itself.

    Raises
    ------
    PatchvoteError
        A line names a photo, an action or a class that does not exist; nothing is moved then.
    """
    if path.suffix.lower() not in ENDINGS:
        raise PatchvoteError(f"{path}: a list of actions is a .csv or .jsonl file, as --output writes it.")
    found = list(photos)
    labels = {str(photo.label) for photo in found if photo.label is not None} | set(classes)
    by_name = _spelled({photo.name: photo for photo in found}, spelling)
    by_label = _spelled({label: label for label in labels}, spelling)
    moves: dict[str, Move] = {}
    for line, row in read_manifest(path):
        where = f"{path}: line {line}"
        photo = _known(by_name, row.get("file_name"))
        if photo is None:
            raise PatchvoteError(
                f"{where}: there is no photo {brief(row.get('file_name'))} in {root}. If the list was applied before, "
                "write a new one with --output."
            )
        action = _action(row.get("action"), where)
        if action is Action.keep:
            continue
        if photo.name in moves:
            raise PatchvoteError(f"{where}: {photo.name} is to be moved twice. Leave one action of it.")
        if action is Action.relabel:
            label = _label(by_label, row.get("to"), root, where)
            if label != photo.label:
                target = Spot(root, "/".join([label, *photo.name.split("/")[1:]]))
                moves[photo.name] = Move(Spot(root, photo.name), target)
            continue
        if into is None:
            raise PatchvoteError(f"{where}: {action} takes the photo out of {root}: name a folder for it with --move.")
        name = f"{DROPPED}/{photo.name}" if action is Action.drop else photo.name
        moves[photo.name] = Move(Spot(root, photo.name), Spot(into, name))
    return list(moves.values())


def _spelled(names: dict[str, Any], spelling: Callable[[str], str]) -> dict[str, Any]:
    """Return what is named, by name and by the spelling of the name, where that means one of them alone."""
    spelled: dict[str, list[Any]] = {}
    for name, value in names.items():
        spelled.setdefault(spelling(name), []).append(value)
    return {name: values[0] for name, values in spelled.items() if len(values) == 1} | names


def _known(known: dict[str, Any], name: Any) -> Any:
    return known.get(name) if isinstance(name, str) else None


def _label(known: dict[str, Any], name: Any, root: Path, where: str) -> Any:
    """Return the class that a photo gets."""
    if name is None or (isinstance(name, str) and not name.strip()):
        raise PatchvoteError(
            f"{where}: relabel needs a class, and the column to is empty. Name one of those in {root}."
        )
    label = _known(known, name)
    if label is None:
        hint = nearest(str(name)[:100], sorted(set(known.values())))
        raise PatchvoteError(
            f"{where}: there is no class {brief(name)} in {root}.{hint} For a new class, make its folder in {root} "
            "first."
        )
    return label


def _action(word: Any, where: str) -> Action:
    text = "" if word is None else word
    if isinstance(text, str) and (text := text.strip().lower()) in (*Action, ""):
        return Action(text or Action.keep)
    raise PatchvoteError(f"{where}: action must be one of {', '.join(Action)} or empty, got {brief(word)}.")
