"""Findings: what a check of a collection found, as values, plain data and sentences."""

from __future__ import annotations

import collections
import dataclasses
import enum
from collections.abc import Mapping, Sequence
from typing import Any

from ...errors import PhotoError
from ...photos.find import PassedOver
from ...utils.terminal import counted
from ..report.card import FEW

_SHOWN = 8  # suspects of a kind that are printed; the page and the list have more
_NAMED = 3  # photos that could not be compared which are named


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
    """A photo to look at.

    Parameters
    ----------
    name : str
        Name of the photo.
    label : str
        Its class.
    kind : Kind
        Why to look at it.
    looks_like : str
        Class that it was taken for when it was held out, or the class of its copy; empty if there is none.
    probability : float or None
        Probability of that class; None if there is none.
    others : tuple of str
        Names of its copies, those of the same content first, or of the photos that it looks like.
    exact : bool
        Whether the content of the first of these is the same.
    is_certain : bool, default True
        Whether it is clear which photo has to go. False for a photo in several classes if nothing says which of them is
        right; `--move` leaves such photos where they are.
    reason : str
        Why it cannot be read; otherwise empty.
    """

    name: str
    label: str
    kind: Kind
    looks_like: str = ""
    probability: float | None = None
    others: tuple[str, ...] = ()
    exact: bool = False
    is_certain: bool = True
    reason: str = ""

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
            "to": self.looks_like,
        }


@dataclasses.dataclass(frozen=True, eq=False)
class Checked:
    """Result of a check.

    Parameters
    ----------
    classes : mapping of str to int
        Number of readable photos per class.
    suspects : sequence of Suspect
        Photos to look at, by kind; those of a kind with the surest first. A photo is listed once.
    alike : sequence of sequence of str
        Groups of photos of one class that look alike: copies, or nearly.
    different : mapping of str to int
        Number of photos per class, counting those that look alike once.
    only : sequence of str
        Photos that could not be held out, because no other photo has their class.
    linked : sequence of str
        Photos that could not be held out, because they are held out together with those that look like them, and a
        class would then have no photo left.
    no_outliers : str
        Why photos unlike all others were not looked for; otherwise empty.
    tested : int
        Number of test photos that were compared.
    skipped : sequence of PhotoError
        Photos, also of the test, that cannot be read.
    passed_over : PassedOver
        Files that were passed over, and class folders without photos.
    """

    classes: Mapping[str, int]
    suspects: Sequence[Suspect] = ()
    alike: Sequence[Sequence[str]] = ()
    different: Mapping[str, int] = dataclasses.field(default_factory=dict)
    only: Sequence[str] = ()
    linked: Sequence[str] = ()
    no_outliers: str = ""
    tested: int = 0
    skipped: Sequence[PhotoError] = ()
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

    def sentences(self) -> list[str]:
        """Return the result in lines for people; what cannot be read and was passed over is told elsewhere."""
        lines = [f"{counted(sum(self.classes.values()), 'photo')} of {counted(len(self.classes), 'class', 'classes')}"]
        for kind, words in HEADINGS.items():
            if found := self.of(kind):
                lines.append(f"{counted(len(found), *words)}:")
                lines += [f"  {one.title}: {one.details}" for one in found[:_SHOWN]]
                lines += [f"  … and {len(found) - _SHOWN:,} more"] if len(found) > _SHOWN else []
        if self.alike:
            count = sum(map(len, self.alike))
            lines.append(
                f"{count:,} photos look alike within a class (copies, or nearly), in "
                f"{counted(len(self.alike), 'group')}: they teach little more than one photo each."
            )
        if self.few:
            counts = [f"{label} {count}" for label, count in self.few.items()]
            more = f" and {len(counts) - _SHOWN:,} more" if len(counts) > _SHOWN else ""
            lines.append(f"fewer than {FEW} different photos: {', '.join(counts[:_SHOWN])}{more}")
        lines += self.gaps()
        if len(self.classes) == 1:
            lines.append("With one class, labels cannot be checked: `fit` needs two, each in a folder of its own.")
        elif verdict := self.verdict():
            lines.append(verdict)
        return lines

    def gaps(self) -> list[str]:
        """Return lines on what could not be checked, and why."""
        lines = []
        for names, why in (
            (self.only, "no other photo has the class"),
            (self.linked, "photos that look alike are held out together, and a class would have none left"),
        ):
            if names:
                more = f" and {len(names) - _NAMED:,} more" if len(names) > _NAMED else ""
                lines.append(f"{counted(len(names), 'photo')} could not be compared: {why}:")
                lines.append(f"  {', '.join(names[:_NAMED])}{more}")
        return lines + [f"photos unlike all others were not looked for: {self.no_outliers}."] * bool(self.no_outliers)

    def verdict(self) -> str:
        """Return a sentence that says what no photo is; empty if there are suspects, or nothing was compared."""
        is_compared = len(self.only) + len(self.linked) < sum(self.classes.values())
        words = ["mislabelled"] * is_compared + ["doubled"] * (not self.alike)  # those alike were told
        words += ["out of place"] * (is_compared and not self.no_outliers)
        if self.suspects or not words:
            return ""
        return f"no photo looks {' or '.join(filter(None, [', '.join(words[:-1]), words[-1]]))}."


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
