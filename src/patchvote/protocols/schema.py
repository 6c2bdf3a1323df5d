"""Schema of a protocol's TOML file: type and bounds of every value.

It ensures that no file can make a run endless, or write outside the folder of results.
"""

from __future__ import annotations

import re
from typing import Any

from ..utils.schema import Check, brief, either, flag, listed, number, record, shallow, table, text, whole

_MAX_ENTRIES = 10_000  # per list of splits, voters, pairs and so on; no experiment needs more
_WORDS = text(10_000)
_COUNT = whole(0, 1_000_000)  # images per class
_SEED = whole(0, (1 << 32) - 1)


def _component(value: Any) -> str | None:
    """Accept a name that can be part of a file name, since results are stored under it."""
    fits = isinstance(value, str) and len(value) <= 100 and re.fullmatch(r"\w[\w .+()=,-]*", value) is not None
    return None if fits else f" must be a name of letters, digits, spaces and -+.,()=, got {brief(value)}"


def _some(each: Check) -> Check:
    """Accept a list of at most `_MAX_ENTRIES` such values."""
    every = listed(each)
    return lambda value: (
        f" has more than {_MAX_ENTRIES:,} entries"
        if isinstance(value, list) and len(value) > _MAX_ENTRIES
        else every(value)
    )


_SETTING = record(
    {"name": _component, "draw": _WORDS, "splits": whole(1, _MAX_ENTRIES)},
    {
        "train": _COUNT,
        "test": _COUNT,
        "fewer": table(_COUNT, _WORDS),
        "labelled": _COUNT,
        "pairs": _some(_component),
        "main": _some(_component),
        "seed": _SEED,
    },
)
_PART = record({"voters": _some(_WORDS)}, {"recipes": _some(_WORDS), "networks": _some(_WORDS)})
_GAIN = record({"words": _WORDS, "voter": _WORDS}, {"recipe": _WORDS, "network": _WORDS, "cost": number(0, 1e12)})
_PER_CENT = number(0, 100)
_FIGURE = either(_PER_CENT, listed(_PER_CENT, length=2))  # a mean, or a mean and its deviation
_QUOTED = record({"name": _WORDS, "setting": _component, "figures": table(_FIGURE, _WORDS)})
_PROTOCOL = record(
    {
        "settings": _some(_SETTING),
        "title": _WORDS,
        "source": _WORDS,
        "layout": _WORDS,
        "voters": _some(_WORDS),
    },
    {
        "name": _component,
        "recipes": _some(_WORDS),
        "networks": _some(_WORDS),
        "also": _some(_PART),
        "voter_settings": table(table(shallow, _WORDS), _WORDS),
        "paper": shallow,
        "paper_times": shallow,
        "paper_notes": table(_WORDS, _component),
        "quoted": _some(_QUOTED),
        "report": _WORDS,
        "calibrated": flag,
        "gains": _some(_GAIN),
    },
)


def fault_of_protocol(values: Any) -> str | None:
    """Return what is wrong with the values of a protocol's file, or None.

    Examples
    --------
    >>> fault_of_protocol({"title": "Mine"})
    '.settings is missing'
    """
    return _PROTOCOL(values)
