"""Compare two voters on the same photos: paired differences over splits, and a sign test that counts a photo once.

Splits share photos, so their accuracies are not independent, and a photo that is tested in five splits is not five
photos. The sign test therefore counts every photo once: for the voter that classified it correctly in more splits. With
pairs of domains, a photo of the target counts once for all sources, too.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Collection, Hashable, Sequence
from typing import Any

import numpy as np

from ..results import Draw, Results, Run, read_draws

Cells = dict[tuple[str | None, int], dict[str, Any]]  # by pair and split


@dataclasses.dataclass(frozen=True)
class Comparison:
    """Two voters on the same splits."""

    difference: float  # mean difference of accuracies, in points; every pair of domains has the same weight
    error: float  # its standard error over splits; 0 for a single split
    splits: int
    first: int  # photos that the first classified correctly in more splits than the second
    second: int
    p: float  # of such counts, or more extreme ones, if both were equally good (two-sided sign test)
    below: int  # pairs of domains in which the first is below the second by more than two standard errors
    pairs: int  # all pairs with two splits or more


def common_cells(results: Results, *runs: Run, pairs: Collection[str] = ()) -> list[Cells]:
    """Return the cells of every run, those alone that all of them have; where `pairs` are named, those of these."""
    stored = [(results.read(run) or {"cells": []})["cells"] for run in runs]
    cells: list[Cells] = [{(cell["pair"], cell["split"]): cell for cell in one} for one in stored]
    common = set.intersection(*(set(one) for one in cells))
    places = sorted((place for place in common if not pairs or place[0] in pairs), key=str)
    return [{place: one[place] for place in places} for one in cells]


def compare(results: Results, first: Run, second: Run, pairs: Collection[str] = ()) -> Comparison | None:
    """Compare two runs on the (named) pairs and splits that both have; None where there is none."""
    from scipy.stats import binomtest

    cells = common_cells(results, first, second, pairs=pairs)
    if not cells[0]:
        return None
    by_pair: dict[str | None, dict[int, float]] = {}
    for (pair, split), cell in cells[0].items():
        by_pair.setdefault(pair, {})[split] = cell["accuracy"] - cells[1][pair, split]["accuracy"]
    mean, error, splits = _over_splits(list(by_pair.values()))
    judged = [_mean_and_error(list(one.values())) for one in by_pair.values() if len(one) > 1]
    ahead, behind = _photos(results, first, cells)
    p = float(binomtest(ahead, ahead + behind).pvalue) if ahead + behind else 1.0
    below = sum(mean < -2 * error for mean, error in judged)
    return Comparison(mean, error, splits, ahead, behind, p, below, len(judged))


def _over_splits(by_pair: Sequence[dict[int, float]]) -> tuple[float, float, int]:
    """Return the mean over pairs and splits, its standard error over splits, and the number of splits.

    Pairs of one split share photos: they are averaged first. Splits that lack a pair are left out where others have
    them all.
    """
    complete = sorted(set.intersection(*(set(one) for one in by_pair)))
    if complete:
        mean, error = _mean_and_error([float(np.mean([one[split] for one in by_pair])) for split in complete])
        return mean, error, len(complete)
    return float(np.mean([np.mean(list(one.values())) for one in by_pair])), 0.0, max(map(len, by_pair))


def _mean_and_error(values: Sequence[float]) -> tuple[float, float]:
    error = float(np.std(values, ddof=1) / np.sqrt(len(values))) if len(values) > 1 else 0.0
    return float(np.mean(values)), error


def _photos(results: Results, run: Run, cells: Sequence[Cells]) -> tuple[int, int]:
    """Return how many photos each of two voters classified correctly in more splits than the other.

    The photos of published lists are not among the results; there, each split counts its own.
    """
    draws = read_draws(results.folder / run.protocol)
    lead: Counter[Hashable] = Counter()
    for (pair, split), cell in cells[0].items():
        other, draw = cells[1][pair, split], Draw(run.setting, pair, split)
        photos: Sequence[Hashable] = [(draw, number) for number in range(len(cell["hits"]))]
        if draw in draws:
            skipped = set(cell.get("skipped", ()))
            photos = [name for name in draws[draw].test if name not in skipped]
        for photo, one, two in zip(photos, cell["hits"], other["hits"], strict=True):
            lead[photo] += int(one) - int(two)
    return sum(value > 0 for value in lead.values()), sum(value < 0 for value in lead.values())
