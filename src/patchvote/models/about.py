"""About: metadata of a model for people, and the digests of its photos. Nothing here affects its answers.

In the file of a model it is a table of plain values; `check_about` refuses values of other types or sizes.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterable, Mapping
from typing import Any, Self

from ..utils.schema import either, listed, number, one_of, record, table, text, whole
from ..voters.scorer import MAX_NAME

_DIGITS = 16  # of a SHA-256 in hexadecimal: two of a million photos collide with a probability of 1 in 10 million
_MAX_PHOTOS = 200_000  # whose digests are stored: they take 4 MB of the model's header; of more, none is known

Plain = dict[str, Any]


@dataclasses.dataclass(frozen=True)
class About:
    """Metadata of a model. The tables are those of its file, described by the schema below."""

    made: Plain = dataclasses.field(default_factory=dict)  # version of patchvote, and date
    images: dict[str, int] = dataclasses.field(default_factory=dict)  # training photos per class
    method: str = ""  # how the parts of a photo vote
    held_out: Plain | None = None  # `Scores.summary` of held-out photos, and why some classes have none (`left_out`)
    added: list[Plain] = dataclasses.field(default_factory=list)  # photos that were added later
    adapted: Plain | None = None  # photos that the model was adapted to
    copies: Plain | None = None  # photos that look alike (`describe_copies`)
    seconds: dict[str, float] = dataclasses.field(default_factory=dict)  # per part of the training; not in files
    cut: list[str] = dataclasses.field(default_factory=list)  # what the time budget cut short
    curve: list[Plain] = dataclasses.field(default_factory=list)  # of learning: accuracy by photos per class
    photos: dict[str, list[str]] = dataclasses.field(default_factory=dict)  # short digests per class

    @functools.cached_property
    def known(self) -> Mapping[str, frozenset[str]]:
        """Classes under which photos were learned, by short digest."""
        pairs = [(digest, label) for label, digests in self.photos.items() for digest in digests]
        known: dict[str, frozenset[str]] = {}
        for digest, label in pairs:
            known[digest] = known.get(digest, frozenset()) | {label}
        return known

    @classmethod
    def from_plain(cls, table: Plain) -> Self:
        """Make the metadata from the table of a file, which has been checked."""
        return cls(**{field.name: table[field.name] for field in dataclasses.fields(cls) if field.name in table})

    def to_plain(self) -> Plain:
        """Return the metadata as the table of a file."""
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}


_WORDS = text(10_000)  # characters of a sentence
_PATH = text(1 << 15)  # characters of the longest path of any system
_COUNT = whole(0, 1 << 53)
_LARGE = number(0, 1e12)  # seconds, and photos per class on average
_SHARE = number(0, 1)
_NONE = one_of(None)
_LABEL = text(MAX_NAME)

_IMAGES = table(_COUNT, _LABEL)
_HELD_OUT = record(
    {"images": _COUNT, "accuracy": _SHARE, "interval": listed(_SHARE, length=2)},
    {
        "rejected": _COUNT,
        "rejected_right": _COUNT,
        "calibration_error": either(_NONE, _SHARE),
        "classes": table(
            record({"images": _COUNT}, {"found": either(_NONE, _SHARE), "right": either(_NONE, _SHARE)}),
            _LABEL,
        ),
        "left_out": table(_WORDS, _LABEL),
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
check_about = record(  # returns what is wrong with the table of a file, or None
    {},
    {
        "made": record({}, {"patchvote": _WORDS, "date": _WORDS}),
        "images": _IMAGES,
        "method": _WORDS,
        "held_out": either(_NONE, _HELD_OUT),
        "added": listed(record({"date": _WORDS, "images": _IMAGES}, {"new_classes": listed(_LABEL)})),
        "adapted": either(_NONE, record({}, {"date": _WORDS, "photos": _COUNT, "taken": _COUNT, "rejected": _COUNT})),
        "seconds": table(_LARGE, _WORDS),
        "copies": either(_NONE, _COPIES),
        "cut": listed(_WORDS),
        "curve": listed(record({"photos": _LARGE, "accuracy": _SHARE})),
        "photos": table(listed(text(64)), _LABEL),
    },
)

# --- which photos were learned ----------------------------------------------------------------------------------------


def short(digest: str) -> str:
    """Return a digest as models store it."""
    return digest[:_DIGITS]


def with_photos(about: About, photos: Iterable[tuple[str, str]]) -> About:
    """Return the metadata of a model with further photos, given as pairs of class and digest."""
    by_class = {label: list(digests) for label, digests in about.photos.items()}
    for label, digest in photos:
        by_class.setdefault(label, []).append(short(digest))
    if sum(map(len, by_class.values())) > _MAX_PHOTOS:
        by_class = {}
    return dataclasses.replace(about, photos=by_class)
