"""Findings: what a check of a collection found, as values, plain data and sentences; and the list of what to do.

The list of suspects is written from `Suspect.row`; `moves_of` reads it again after a user has filled in the actions.
"""

from __future__ import annotations

import collections
import dataclasses
import enum
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ...errors import PatchvoteError, PhotoError
from ...photos.find import PassedOver, Photo
from ...photos.manifests import ENDINGS, read_manifest
from ...photos.moves import Move, Spot
from ...utils.schema import brief
from ...utils.terminal import counted, nearest, some
from ..report.card import FEW

_SHOWN = 8  # suspects of a kind that are printed; the page and the list have more
_NAMED = 3  # photos that could not be compared which are named
DROPPED = "dropped"  # folder of dropped photos, in the folder that photos are moved into


class Kind(enum.StrEnum):
    """Reasons to look at a photo, in the order in which they are told."""

    label = "label"
    classes = "two classes"
    test = "in the test"
    copy = "copy"
    like_class = "like another class"
    like_test = "like the test"
    outlier = "outlier"
    unreadable = "unreadable"


@dataclasses.dataclass(frozen=True)
class Suspect:
    """A photo to look at, and why."""

    name: str
    label: str
    kind: Kind
    looks_like: str = ""  # class that it was taken for when it was held out, or the class of its copy
    probability: float | None = None  # of that class
    others: tuple[str, ...] = ()  # its copies, those of the same content first, or photos that it looks like
    exact: bool = False  # whether the content of the first of these is the same
    is_certain: bool = True  # whether it is clear which photo has to go; not for a photo in several classes
    reason: str = ""  # why it cannot be read

    @property
    def is_movable(self) -> bool:
        """Whether `--move` takes it away: not if a person has to decide which photo goes, or whether it is a copy."""
        return self.is_certain and self.kind not in (Kind.like_class, Kind.like_test)

    @property
    def title(self) -> str:
        """Name of the photo, with its class where that is not the folder that the name begins with."""
        return self.name if self.name.startswith(f"{self.label}/") else f"{self.name} ({self.label})"

    @property
    def details(self) -> str:
        """What was found, in words."""
        if self.kind is Kind.label:
            return f"looks like {self.looks_like} ({100 * (self.probability or 0):.0f} %)"
        if self.kind is Kind.outlier:
            return "unlike all other photos"
        if self.kind is Kind.unreadable:
            return self.reason
        more = f" and {len(self.others) - 1:,} more" if len(self.others) > 1 else ""
        where = f" ({self.looks_like})" if self.kind in (Kind.classes, Kind.like_class) else ""
        where = " of the test photos" if self.kind in (Kind.test, Kind.like_test) else where
        how = "the same as" if self.exact else "nearly the same as"
        how = "looks like" if self.kind in (Kind.like_class, Kind.like_test) else how
        return f"{how} {self.others[0]}{where}{more}"

    def row(self) -> dict[str, Any]:
        """Return the suspect as a row of the list that `--apply` reads."""
        return {
            "file_name": self.name,
            "label": self.label,
            "finding": str(self.kind),
            "probability": None if self.probability is None else round(self.probability, 4),
            "details": self.details,
            "action": "",
            "to": "" if self.kind is Kind.like_class else self.looks_like,  # either photo may be in a wrong class
        }


@dataclasses.dataclass(frozen=True, eq=False)
class Checked:
    """Result of a check."""

    classes: Mapping[str, int]  # readable photos per class
    suspects: Sequence[Suspect] = ()  # by kind; those of a kind with the surest first. A photo is listed once
    alike: Sequence[Sequence[str]] = ()  # groups of photos of one class that look alike: copies, or nearly
    different: Mapping[str, int] = dataclasses.field(default_factory=dict)  # photos per class, those alike counted once
    only: Sequence[str] = ()  # photos that could not be held out: the only ones of their class
    linked: Sequence[str] = ()  # photos that could not be held out: all others of the class look like them
    no_outliers: str = ""  # why photos unlike all others were not looked for
    tested: int = 0  # test photos that were compared
    skipped: Sequence[PhotoError] = ()  # photos, also of the test, that cannot be read
    passed_over: PassedOver = dataclasses.field(default_factory=PassedOver)

    def of(self, kind: Kind) -> list[Suspect]:
        """Return the suspects of a kind."""
        return [suspect for suspect in self.suspects if suspect.kind is kind]

    @property
    def few(self) -> dict[str, int]:
        """Number of different photos of each class that has few, the fewest first."""
        return dict(sorted(((k, v) for k, v in self.different.items() if v < FEW), key=lambda pair: pair[1]))

    def plain(self) -> dict[str, Any]:
        """Return the result as plain values, for JSON."""
        return {
            "photos": sum(self.classes.values()),
            "classes": dict(self.classes),
            "counts": dict(collections.Counter(str(suspect.kind) for suspect in self.suspects)),
            "suspects": [
                suspect.row() | {"others": list(suspect.others), "movable": suspect.is_movable}
                for suspect in self.suspects
            ],
            "alike": [list(group) for group in self.alike],
            "few": self.few,
            "not_asked": len(self.only) + len(self.linked),
            "not_compared": {"only_of_class": list(self.only), "alike": list(self.linked)},
            "no_outliers": self.no_outliers or None,
            "tested": self.tested,
            "skipped": [{"name": error.name, "reason": error.reason} for error in self.skipped],
            "passed_over": self.passed_over.plain() | {"advice": self.passed_over.advice()},
        }

    def sentences(self, named: int = _SHOWN) -> list[str]:
        """Return the result in lines for people, which name so many suspects of a kind.

        What cannot be read and was passed over is told elsewhere.
        """
        lines = [f"{counted(sum(self.classes.values()), 'photo')} of {counted(len(self.classes), 'class', 'classes')}"]
        for kind, forms in HEADINGS.items():
            if found := self.of(kind):
                lines.append(counted(len(found), *forms) + ":" * (named > 0))
                lines += [f"  {one.title}: {one.details}" for one in found[:named]]
                lines += [f"  … and {len(found) - named:,} more"] if len(found) > named > 0 else []
        if self.alike:
            count, groups = sum(map(len, self.alike)), counted(len(self.alike), "group")
            what = f"{count:,} photos look alike within a class (copies, or nearly), in {groups}"
            lines.append(f"{what}: they teach little more than one photo each.")
        if self.few:
            counts = [f"{label} {count}" for label, count in self.few.items()]
            lines.append(f"fewer than {FEW} different photos: {some(counts, _SHOWN)}")
        for names, why in (
            (self.only, "no other photo has the class"),
            (self.linked, "photos that look alike are held out together, and a class would have none left"),
        ):
            if names:
                lines.append(f"{counted(len(names), 'photo')} could not be compared ({why}): {some(names, _NAMED)}")
        if self.no_outliers:
            lines.append(f"photos unlike all others were not looked for: {self.no_outliers}.")
        is_compared = len(self.only) + len(self.linked) < sum(self.classes.values())
        words = ["mislabelled"] * is_compared + ["doubled"] * (not self.alike)  # those alike were told
        words += ["out of place"] * (is_compared and not self.no_outliers)
        if words and not self.suspects:
            lines.append(f"no photo looks {' or '.join(filter(None, [', '.join(words[:-1]), words[-1]]))}.")
        return lines


# Kinds in the order in which they are told, and what their photos are called; what cannot be read is told as always.
HEADINGS: Mapping[Kind, tuple[str, str]] = {
    Kind.label: ("photo is probably mislabelled", "photos are probably mislabelled"),
    Kind.classes: ("photo is also in another class", "photos are also in other classes"),
    Kind.test: ("photo is also among the test photos", "photos are also among the test photos"),
    Kind.copy: ("file is the same as another of its class", "files are the same as others of their class"),
    Kind.like_class: ("photo looks like one of another class", "photos look like photos of other classes"),
    Kind.like_test: ("photo looks like a test photo", "photos look like test photos"),
    Kind.outlier: ("photo is unlike all others", "photos are unlike all others"),
}


# --- the list of actions ----------------------------------------------------------------------------------------------


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
    """Read a list of actions, and return the moves that carry them out; nothing is ever deleted.

    The list may come from anybody: it can name photos of the collection, and move them into the folders of classes that
    exist (`classes` are those without photos) and into the one folder `into`. `spelling` says how a .csv writes a name.
    """
    if path.suffix.lower() not in ENDINGS:
        raise PatchvoteError(f"{path}: a list of actions is a .csv or .jsonl file, as --output writes it.")
    found = list(photos)
    labels = {str(photo.label) for photo in found if photo.label is not None} | set(classes)
    by_name = {spelling(photo.name): photo for photo in found} | {photo.name: photo for photo in found}
    by_label = {spelling(label): label for label in labels} | {label: label for label in labels}
    moves: dict[str, Move] = {}
    for line, row in read_manifest(path):
        where, name = f"{path}: line {line}", row.get("file_name")
        photo = by_name.get(name) if isinstance(name, str) else None
        if photo is None:
            raise PatchvoteError(
                f"{where}: there is no photo {brief(name)} in {root}. If the list was applied before, write a new one "
                "with --output."
            )
        action = _action(row.get("action"), where)
        if action is Action.keep:
            continue
        if photo.name in moves:
            raise PatchvoteError(f"{where}: {photo.name} is to be moved twice. Leave one action of it.")
        target = Spot(into or root, f"{DROPPED}/{photo.name}" if action is Action.drop else photo.name)
        if action is Action.relabel:
            label = _class_of(by_label, row.get("to"), where)
            if label == photo.label:
                continue
            target = Spot(root, "/".join([label, *photo.name.split("/")[1:]]))
        elif into is None:
            raise PatchvoteError(f"{where}: {action} takes the photo out of {root}: name a folder for it with --move.")
        moves[photo.name] = Move(Spot(root, photo.name), target)
    return list(moves.values())


def _class_of(known: Mapping[str, str], name: Any, where: str) -> str:
    """Return the class that a photo gets."""
    if not isinstance(name, str) or name not in known:
        hint = nearest(str(name)[:100], sorted(set(known.values())))
        raise PatchvoteError(
            f"{where}: relabel needs a class of the collection in the column to, got {brief(name)}.{hint} For a new "
            "class, make its folder first."
        )
    return known[name]


def _action(word: Any, where: str) -> Action:
    text = "" if word is None else word
    if isinstance(text, str) and (text := text.strip().lower()) in (*Action, ""):
        return Action(text or Action.keep)
    raise PatchvoteError(f"{where}: action must be one of {', '.join(Action)} or empty, got {brief(word)}.")
