"""Which of the paper's findings about patches hold, judged by our results alone."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Sequence

import numpy as np

from ..protocol import Protocol
from ..results import Results
from .tables import summarise

_MARGIN = 1.0  # points; a smaller mean difference counts only if a sign test over recipes is significant


@dataclasses.dataclass(frozen=True, order=True)
class Patches:
    """Settings of patches that the experiments vary.

    Parameters
    ----------
    smallest, levels, count : int
        Settings as in `Patch`.
    before : bool
        Whether descriptors are read before the activation.
    network : str
        Name of the network.
    """

    smallest: int
    levels: int
    count: int
    before: bool
    network: str


def patch_results(protocol: Protocol, results: Results) -> dict[Patches, float]:
    """Return the accuracy of NBNN for every recipe of patches that was run."""
    accuracies = {}
    for row in summarise(protocol, results):
        match = re.fullmatch(r"patch-(\d+)x(\d)(?:-n(\d+))?(?:-\d+px)?(-before)?", row["recipe"])
        if match and row["voter"] == "nbnn":
            key = Patches(int(match[1]), int(match[2]), int(match[3] or 100), bool(match[4]), row["network"])
            accuracies[key] = row["mean"]
    return accuracies


def findings(accuracies: dict[Patches, float]) -> list[str]:
    """Return one sentence per finding: the claim of the paper, our measurement, and whether the claim holds."""
    sentences = []

    def compare(claim: str, change: Callable[[Patches], Patches | None], expected: Sequence[int] = (+1,)) -> None:
        """Compare every recipe with the one that `change` makes of it; a sign in `expected` supports the claim."""
        gains = [
            accuracies[other] - accuracies[key]
            for key in accuracies
            if (other := change(key)) in accuracies and other != key
        ]
        if not gains:
            return
        sign, words = _sign(gains)
        verdict = "Holds" if sign in expected else "Does not hold"
        up = sum(gain > 0 for gain in gains)
        sentences.append(
            f"**{claim}** {verdict}{words}: {np.mean(gains):+.1f} points on average over {len(gains)} "
            f"comparisons ({min(gains):+.1f} to {max(gains):+.1f}; better in {up})."
        )

    replace = dataclasses.replace
    for smallest in (16, 32):
        compare(
            f"Larger patches are better ({2 * smallest} px instead of {smallest}, one level).",
            _doubled(smallest),
        )
    compare(
        "Scales are complementary (a level of larger patches added to the same smallest).",
        lambda key: replace(key, levels=key.levels + 1),
    )
    compare(
        "Not by size alone: 32 and 64 px together are better than 64 px.",
        lambda key: replace(key, smallest=32, levels=2) if (key.smallest, key.levels) == (64, 1) else None,
    )
    compare(
        "Dense sampling, 400 patches per image, is no better than sparse, 100.",
        lambda key: replace(key, count=400) if key.count == 100 else None,
        expected=(0, -1),
    )
    compare(
        "Before the activation is better than after it.",
        lambda key: replace(key, before=True) if not key.before else None,
    )
    small, large = _spread(accuracies, 16), _spread(accuracies, 32)
    if both := sorted(small.keys() & large.keys()):
        spreads = [float(np.mean([spread[network] for network in both])) for spread in (small, large)]
        verdict = "Holds" if spreads[0] - spreads[1] >= _MARGIN else "Does not hold"
        sentences.append(
            f"**With 16 px as the smallest patch, results are less stable.** {verdict}: over levels, activation "
            f"and sampling, a network's accuracy varies by {spreads[0]:.1f} points with 16 px and by "
            f"{spreads[1]:.1f} with 32."
        )
    return sentences


def _doubled(smallest: int) -> Callable[[Patches], Patches | None]:
    """Return the change from one level of patches of this size to one level of patches twice as large."""

    def change(key: Patches) -> Patches | None:
        return dataclasses.replace(key, smallest=2 * smallest) if (key.smallest, key.levels) == (smallest, 1) else None

    return change


def _sign(gains: Sequence[float]) -> tuple[int, str]:
    """Return the sign of the gains, 0 where it may be chance, and a remark where a significant gain is small."""
    from scipy.stats import binomtest

    mean, up, down = float(np.mean(gains)), sum(gain > 0 for gain in gains), sum(gain < 0 for gain in gains)
    if abs(mean) >= _MARGIN:
        return int(np.sign(mean)), ""
    if up + down and binomtest(up, up + down).pvalue < 0.05:
        return int(np.sign(up - down)), ", by little"
    return 0, ""


def _spread(accuracies: dict[Patches, float], smallest: int) -> dict[str, float]:
    """Return for each network the range of accuracies of its recipes with this smallest patch, in points."""
    by_network: dict[str, list[float]] = {}
    for key, value in accuracies.items():
        if key.smallest == smallest:
            by_network.setdefault(key.network, []).append(value)
    return {network: max(values) - min(values) for network, values in by_network.items() if len(values) > 1}
