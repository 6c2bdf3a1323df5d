"""Which of the paper's findings about patches hold here, judged by the kept results alone."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable

import numpy as np

from .protocol import Protocol
from .results import Results
from .summary import summarise

_MARGIN = 1.0  # points below which a difference of means is not called one


@dataclasses.dataclass(frozen=True, order=True)
class Patches:
    """What a recipe of patches varies.

    Parameters
    ----------
    smallest, levels, count : int
        As in `Patch`.
    before : bool
        Read before the activation.
    network : str
        Its name.
    """

    smallest: int
    levels: int
    count: int
    before: bool
    network: str


def patch_results(protocol: Protocol, results: Results) -> dict[Patches, float]:
    """Return the accuracy of NBNN for every recipe of patches that was run."""
    found = {}
    for row in summarise(protocol, results):
        match = re.fullmatch(r"patch-(\d+)x(\d)(?:-n(\d+))?(?:-\d+px)?(-before)?", row["recipe"])
        if match and row["voter"] == "nbnn":
            key = Patches(int(match[1]), int(match[2]), int(match[3] or 100), bool(match[4]), row["network"])
            found[key] = row["mean"]
    return found


def findings(found: dict[Patches, float]) -> list[str]:
    """Return a sentence for each finding: what the paper says, what was measured, and whether it holds."""
    told = []

    def compare(claim: str, change: Callable[[Patches], Patches | None], expected: int) -> None:
        """Compare every recipe with the one that `change` makes of it; `expected` is the sign that the paper saw."""
        gains = [found[other] - found[key] for key in found if (other := change(key)) in found and other != key]
        if not gains:
            return
        mean = float(np.mean(gains))
        sign = 0 if abs(mean) < _MARGIN else int(np.sign(mean))
        verdict = "holds" if sign == expected else "does not hold"
        up = sum(gain > 0 for gain in gains)
        told.append(
            f"**{claim}** {verdict[0].upper()}{verdict[1:]}: {mean:+.1f} points on average over {len(gains)} "
            f"comparisons ({min(gains):+.1f} to {max(gains):+.1f}; better in {up})."
        )

    one = dataclasses.replace
    compare(
        "Larger patches are better (smallest patch twice as large, one level).",
        lambda key: one(key, smallest=2 * key.smallest) if key.levels == 1 else None,
        +1,
    )
    compare(
        "Scales are complementary (a level of larger patches added to the same smallest).",
        lambda key: one(key, levels=key.levels + 1),
        +1,
    )
    compare(
        "Not by size alone: 32 and 64 px together are better than 64 px.",
        lambda key: one(key, smallest=32, levels=2) if (key.smallest, key.levels) == (64, 1) else None,
        +1,
    )
    compare(
        "Dense sampling, 400 patches an image, is no better than sparse, 100.",
        lambda key: one(key, count=400) if key.count == 100 else None,
        0,
    )
    compare(
        "Before the activation is better than after it.",
        lambda key: one(key, before=True) if not key.before else None,
        +1,
    )
    compare(
        "16 px are unstable (32 px instead of 16, same largest patch).",
        lambda key: one(key, smallest=32, levels=key.levels - 1) if key.smallest == 16 and key.levels > 1 else None,
        +1,
    )
    return told
