"""About: metadata of a model for people. Nothing here affects its answers.

In the file of a model it is a table of plain values, which are printed, added up and written into reports. All this
relies on their types: `check_about` refuses a file whose values have other types or sizes.
"""

from __future__ import annotations

import dataclasses
from typing import Any, NotRequired, Self, TypedDict

from ..utils.schema import either, listed, number, one_of, record, table, text, whole
from ..voters.settings import MAX_NAME


class Made(TypedDict, total=False):
    """Version of patchvote that made the model, and date."""

    patchvote: str
    date: str


class HeldOut(TypedDict):
    """Scores on held-out photos (`Scores.summary`), and why some classes have no scores."""

    images: int
    accuracy: float
    interval: list[float]
    rejected: NotRequired[int]
    rejected_right: NotRequired[int]
    calibration_error: NotRequired[float | None]
    classes: NotRequired[dict[str, Any]]
    left_out: NotRequired[dict[str, str]]


class Added(TypedDict):
    """Photos that were added to the model later."""

    date: str
    images: dict[str, int]
    new_classes: NotRequired[list[str]]


class AdaptedTo(TypedDict, total=False):
    """Photos that the model was adapted to."""

    date: str
    photos: int
    taken: int
    rejected: int


class CurvePoint(TypedDict):
    """Photos per class that were learned from, on average, and the accuracy on held-out photos."""

    photos: float
    accuracy: float


class Copies(TypedDict):
    """Photos that look alike (`describe_copies`)."""

    groups: int
    photos: int
    examples: list[list[str]]
    in_several_classes: int
    examples_in_several_classes: list[list[list[str]]]


@dataclasses.dataclass(frozen=True)
class About:
    """Metadata of a model.

    Parameters
    ----------
    made, held_out, added, adapted, copies
        Parts of the metadata, described by the types above.
    method : str
        How the parts of a photo vote, for people.
    images : dict
        Number of training photos per class.
    seconds : dict
        Duration of each part of the training; files do not hold it.
    cut : list of str
        What the time budget cut short.
    curve : list of CurvePoint
        Accuracy on held-out photos after learning from a part of the photos, and from all.
    photos : dict
        Digests of the training photos per class (see `known`).
    more : dict
        Entries of a later version, which are preserved.
    """

    made: Made = dataclasses.field(default_factory=Made)
    images: dict[str, int] = dataclasses.field(default_factory=dict)
    method: str = ""
    held_out: HeldOut | None = None
    added: list[Added] = dataclasses.field(default_factory=list)
    adapted: AdaptedTo | None = None
    copies: Copies | None = None
    seconds: dict[str, float] = dataclasses.field(default_factory=dict)
    cut: list[str] = dataclasses.field(default_factory=list)
    curve: list[CurvePoint] = dataclasses.field(default_factory=list)
    photos: dict[str, list[str]] = dataclasses.field(default_factory=dict)
    more: dict[str, Any] = dataclasses.field(default_factory=dict)

    @classmethod
    def from_plain(cls, table: dict[str, Any]) -> Self:
        """Make the metadata from the table of a file, which has been checked."""
        known = {field.name for field in dataclasses.fields(cls)} - {"more"}
        values = {name: value for name, value in table.items() if name in known}
        return cls(**values, more={name: value for name, value in table.items() if name not in known})

    def to_plain(self) -> dict[str, Any]:
        """Return the metadata as the table of a file."""
        values = {field.name: getattr(self, field.name) for field in dataclasses.fields(self) if field.name != "more"}
        return values | self.more


_WORDS = text(10_000)  # characters of a sentence
_PATH = text(1 << 15)  # characters of the longest path of any system
_COUNT = whole(0, 1 << 53)
_SECONDS = number(0, 1e12)
_PHOTOS = number(0, 1e12)  # per class, on average
_SHARE = number(0, 1)
_NONE = one_of(None)

_IMAGES = table(_COUNT, text(MAX_NAME))
_HELD_OUT = record(
    {"images": _COUNT, "accuracy": _SHARE, "interval": listed(_SHARE, length=2)},
    {
        "rejected": _COUNT,
        "rejected_right": _COUNT,
        "calibration_error": either(_NONE, _SHARE),
        "classes": table(
            record({"images": _COUNT}, {"found": either(_NONE, _SHARE), "right": either(_NONE, _SHARE)}),
            text(MAX_NAME),
        ),
        "left_out": table(_WORDS, text(MAX_NAME)),
    },
)
_COPIES = record(
    {
        "groups": _COUNT,
        "photos": _COUNT,
        "examples": listed(listed(_PATH)),
        "in_several_classes": _COUNT,
        "examples_in_several_classes": listed(listed(listed(_PATH, length=2))),
    }
)
_ABOUT = record(
    {},
    {
        "made": record({}, {"patchvote": _WORDS, "date": _WORDS}),
        "images": _IMAGES,
        "descriptors": _IMAGES,
        "method": _WORDS,
        "held_out": either(_NONE, _HELD_OUT),
        "added": listed(record({"date": _WORDS, "images": _IMAGES}, {"new_classes": listed(text(MAX_NAME))})),
        "adapted": either(_NONE, record({}, {"date": _WORDS, "photos": _COUNT, "taken": _COUNT, "rejected": _COUNT})),
        "steps": _COUNT,
        "seconds": table(_SECONDS, _WORDS),
        "names": listed(_PATH),
        "digests": listed(text(64)),
        "copies": either(_NONE, _COPIES),
        "cut": listed(_WORDS),
        "curve": listed(record({"photos": _PHOTOS, "accuracy": _SHARE})),
        "photos": table(listed(text(64)), text(MAX_NAME)),
    },
)


def check_about(about: Any) -> str | None:
    """Return what is wrong with the table of a file, or None."""
    return _ABOUT(about)
