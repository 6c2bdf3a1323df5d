"""Make the paper's tables: the protocols behind each, the folders of their image sets, and how long they will take."""

from __future__ import annotations

import collections
import statistics
from collections.abc import Sequence

from .protocol import PROTOCOLS, Protocol
from .results import Results
from .runner import Group

# Table: its protocol, and the folder of its photos inside the folder of image sets.
TABLES = {
    "scenes": ("scene15", "scene15"),
    "times": ("scene15-time", "scene15"),
    "indoor": ("mit67-part", "mit67"),
    "sun": ("sun397-part", "sun397"),
    "cameras": ("office-caltech", "office_caltech"),
    "patches": ("scene15-patches", "scene15"),
    "clutter": ("clutter", "clutter"),  # which is made from the sets of cameras and sun
}
_UNKNOWN = 60.0  # seconds of a cell of a voter that was never run


def estimate(protocol: Protocol, groups: Sequence[Group], results: Results) -> float:
    """Return the seconds that cells will take: for each, the median of its voter's finished cells anywhere.

    Extraction comes on top: about 0.05 s per photo with `dense`, 0.9 s with `patch`.
    """
    seconds: dict[tuple[str, str], list[float]] = collections.defaultdict(list)
    for name in dict.fromkeys([protocol.name, *PROTOCOLS]):
        for run, stored in results.all(name):
            if name == protocol.name or (run.voter, run.recipe) not in seconds:
                seconds[run.voter, run.recipe] += [
                    one["train_seconds"] + one["test_seconds"] for one in stored["cells"]
                ]
    known = {key: statistics.median(values) for key, values in seconds.items()}
    return sum(known.get((voter, group.recipe), _UNKNOWN) for group in groups for voter in group.voters)
