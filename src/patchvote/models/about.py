"""About: metadata of a model for people, and the digests of its photos. Nothing here affects its answers.

In the file of a model it is a table of plain values; `check_about` refuses values of other types or sizes.
"""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Iterable
from typing import Any, NotRequired, Self, TypedDict

from ..utils.schema import either, listed, number, one_of, record, table, text, whole
from ..voters.scorer import MAX_NAME

_DIGITS = 16  # of a SHA-256 in hexadecimal: two of a million photos collide with a probability of 1 in 10 million
_MAX_PHOTOS = 200_000  # whose digests are stored: they take 4 MB of the model's header; of more, none is known


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
    """Metadata of a model, described by the types above."""

    made: Made = dataclasses.field(default_factory=Made)
    images: dict[str, int] = dataclasses.field(default_factory=dict)  # training photos per class
    method: str = ""  # how the parts of a photo vote
    held_out: HeldOut | None = None
    added: list[Added] = dataclasses.field(default_factory=list)
    adapted: AdaptedTo | None = None
    copies: Copies | None = None
    seconds: dict[str, float] = dataclasses.field(default_factory=dict)  # per part of the training; not in files
    cut: list[str] = dataclasses.field(default_factory=list)  # what the time budget cut short
    curve: list[CurvePoint] = dataclasses.field(default_factory=list)
    photos: dict[str, list[str]] = dataclasses.field(default_factory=dict)  # short digests per class

    @classmethod
    def from_plain(cls, table: dict[str, Any]) -> Self:
        """Make the metadata from the table of a file, which has been checked."""
        known = {field.name for field in dataclasses.fields(cls)}
        return cls(**{name: value for name, value in table.items() if name in known})

    def to_plain(self) -> dict[str, Any]:
        """Return the metadata as the table of a file."""
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}


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


# --- which photos were learned ----------------------------------------------------------------------------------------


def short(digest: str) -> str:
    """Return a digest as models store it."""
    return digest[:_DIGITS]


def known_photos(about: About) -> dict[str, set[str]]:
    """Return the classes under which photos were learned, by short digest.

    Examples
    --------
    >>> known_photos(About(photos={"cat": ["00ff"], "dog": ["00ff", "1234"]}))["1234"]
    {'dog'}
    """
    known: dict[str, set[str]] = collections.defaultdict(set)
    for label, digests in about.photos.items():
        for digest in digests:
            known[digest].add(label)
    return dict(known)


def with_photos(about: About, photos: Iterable[tuple[str, str]]) -> About:
    """Return the metadata of a model with further photos, given as pairs of class and digest."""
    by_class = {label: list(digests) for label, digests in about.photos.items()}
    for label, digest in photos:
        by_class.setdefault(label, []).append(short(digest))
    if sum(map(len, by_class.values())) > _MAX_PHOTOS:
        by_class = {}
    return dataclasses.replace(about, photos=by_class)
