"""Which of the paper's findings about patches hold here, judged by the kept results alone."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Sequence

import numpy as np

from ..protocol import Protocol
from ..results import Results
from .summary import summarise

_MARGIN = 1.0  # points below which a difference is called one only if nearly all recipes show it


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

    def compare(claim: str, change: Callable[[Patches], Patches | None], expected: Sequence[int] = (+1,)) -> None:
        """Compare every recipe with the one that `change` makes of it; `expected` are the signs that bear it out."""
        gains = [found[other] - found[key] for key in found if (other := change(key)) in found and other != key]
        if not gains:
            return
        sign, words = _sign(gains)
        verdict = "Holds" if sign in expected else "Does not hold"
        up = sum(gain > 0 for gain in gains)
        told.append(
            f"**{claim}** {verdict}{words}: {np.mean(gains):+.1f} points on average over {len(gains)} "
            f"comparisons ({min(gains):+.1f} to {max(gains):+.1f}; better in {up})."
        )

    one = dataclasses.replace
    for smallest in (16, 32):
        compare(
            f"Larger patches are better ({2 * smallest} px instead of {smallest}, one level).",
            _doubled(smallest),
        )
    compare(
        "Scales are complementary (a level of larger patches added to the same smallest).",
        lambda key: one(key, levels=key.levels + 1),
    )
    compare(
        "Not by size alone: 32 and 64 px together are better than 64 px.",
        lambda key: one(key, smallest=32, levels=2) if (key.smallest, key.levels) == (64, 1) else None,
    )
    compare(
        "Dense sampling, 400 patches an image, is no better than sparse, 100.",
        lambda key: one(key, count=400) if key.count == 100 else None,
        expected=(0, -1),
    )
    compare(
        "Before the activation is better than after it.",
        lambda key: one(key, before=True) if not key.before else None,
    )
    small, large = _spread(found, 16), _spread(found, 32)
    if both := sorted(small.keys() & large.keys()):
        apart = [float(np.mean([spread[network] for network in both])) for spread in (small, large)]
        verdict = "Holds" if apart[0] - apart[1] >= _MARGIN else "Does not hold"
        told.append(
            f"**With 16 px as the smallest patch, results are less stable.** {verdict}: over levels, activation and "
            f"sampling, a network's accuracy varies by {apart[0]:.1f} points with 16 px and by {apart[1]:.1f} with 32."
        )
    return told


def _doubled(smallest: int) -> Callable[[Patches], Patches | None]:
    """Return what makes of one level of patches of this size one of patches twice as large."""

    def change(key: Patches) -> Patches | None:
        return dataclasses.replace(key, smallest=2 * smallest) if (key.smallest, key.levels) == (smallest, 1) else None

    return change


def _sign(gains: Sequence[float]) -> tuple[int, str]:
    """Return whether recipes gained or lost, and in words if that is little; 0 where it may be chance."""
    from scipy.stats import binomtest

    mean, up, down = float(np.mean(gains)), sum(gain > 0 for gain in gains), sum(gain < 0 for gain in gains)
    if abs(mean) >= _MARGIN:
        return int(np.sign(mean)), ""
    if up + down and binomtest(up, up + down).pvalue < 0.05:
        return int(np.sign(up - down)), ", by little"
    return 0, ""


def _spread(found: dict[Patches, float], smallest: int) -> dict[str, float]:
    """Return for each network between which accuracies all its recipes with this smallest patch lie, in points."""
    own: dict[str, list[float]] = {}
    for key, value in found.items():
        if key.smallest == smallest:
            own.setdefault(key.network, []).append(value)
    return {network: max(values) - min(values) for network, values in own.items() if len(values) > 1}
