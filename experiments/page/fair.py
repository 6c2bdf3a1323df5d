"""Fair comparisons: voters beside the best baseline without parts, on the same photos, pixels and splits.

A voter that adapts to the test photos is compared with the best pooled image that adapts in the same way, any other
with the best that does not. The best baseline is chosen by its accuracy on the test photos, in favour of the baseline.

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

from ..protocol import Protocol, Setting
from ..results import Draw, Results, Run, read_draws
from ..voters import VOTERS, parse_voter, title
from .tables import NETWORK, markdown

BASELINES = ("whole-svm", "pooled-svm", "mean-svm")  # kinds of voters that see the image without parts
COVARIANCE = "covariance-svm"
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
    ahead, behind = _photos(results, first, cells)
    p = float(binomtest(ahead, ahead + behind).pvalue) if ahead + behind else 1.0
    return Comparison(mean, error, splits, ahead, behind, p)


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


# --- the table --------------------------------------------------------------------------------------------------------


def table(protocol: Protocol, setting: Setting, results: Results) -> str:
    """Return the voters of parts beside the best mean-pooled image and beside covariance pooling; `dense` bags."""
    runs = {
        run: [cell for cell in kept["cells"] if not setting.main or cell["pair"] in setting.main]
        for run, kept in results.all(protocol.name)
        if (run.setting, run.recipe, run.network) == (setting.name, "dense", NETWORK) and run.voter in protocol.voters
    }
    means = {run: _mean_over_pairs(cells) for run, cells in runs.items()}
    covariance = next((run for run in runs if run.voter == COVARIANCE), None)
    rows = []
    for run in sorted(runs, key=lambda run: protocol.voters.index(run.voter)):
        if _is_baseline(run) or run.voter == COVARIANCE or (best := _best_baseline(means, run)) is None:
            continue
        against = [best, None if _adapts(run) else covariance]
        rows.append([title(run.voter), *(_words(results, run, one, setting.main) for one in against)])
    found = {run: _best_baseline(means, run) for run in runs}
    names = {adapts: title(best.voter) for run, best in found.items() if best for adapts in [_adapts(run)]}
    rows.append(["the best mean-pooled image", " / ".join(names[key] for key in sorted(names)), ""])
    return markdown(["voter of parts (splits)", "beside the best mean-pooled image", "beside covariance pooling"], rows)


def versus(protocol: Protocol, pairs: Sequence[tuple[str, str]], results: Results) -> str:
    """Return pairs of voters on the splits of a set of scenes that both have, with the sign test of their photos."""
    rows = []
    for names in pairs:
        first, second = (Run(protocol.name, protocol.settings[0].name, name, "dense", NETWORK) for name in names)
        cells = common_cells(results, first, second)
        if cells[0]:
            means = [f"{_mean_over_pairs(list(one.values())):.2f}" for one in cells]
            rows.append([" : ".join(map(title, names)), *means, _words(results, first, second)])
    return markdown(["voters", "first", "second", "difference (splits); won : lost; sign test"], rows)


def _words(results: Results, run: Run, other: Run | None, pairs: Collection[str] = ()) -> str:
    """Return the difference in points, the photos won and lost, and the p of the sign test."""
    found = None if other is None else compare(results, run, other, pairs)
    if found is None:
        return ""
    shared = {pair for pair, _ in common_cells(results, run, other, pairs=pairs)[0]} if other else set()
    splits = f"{found.splits}" + (f", {len(shared)} of {len(pairs)} pairs" if len(shared) < len(pairs) else "")
    error = f"±{found.error:.2f}" if found.splits > 1 else ""
    return f"{found.difference:+.2f}{error} ({splits}); {found.first}:{found.second}; p={found.p:.2g}"


def _mean_over_pairs(cells: Sequence[dict[str, Any]]) -> float:
    """Return the mean accuracy, every pair with the same weight."""
    by_pair: dict[str | None, list[float]] = {}
    for cell in cells:
        by_pair.setdefault(cell["pair"], []).append(cell["accuracy"])
    return float(np.mean([np.mean(one) for one in by_pair.values()]))


def _adapts(run: Run) -> bool:
    kind = VOTERS.get(run.voter.partition("(")[0])
    return kind is not None and kind.adapts


def _is_baseline(run: Run) -> bool:
    """Whether a voter sees the image without parts: a pooled image, adapted or not."""
    if not _adapts(run):
        return run.voter.partition("(")[0] in BASELINES
    kind, settings = parse_voter(run.voter)
    return kind == "adapted" and settings.get("scales", "all") != "all"


def _best_baseline(means: dict[Run, float], like: Run) -> Run | None:
    """Return the most accurate baseline with the recipe, network and adaptation of a run."""
    same = [
        run
        for run in means
        if _is_baseline(run) and (run.recipe, run.network, _adapts(run)) == (like.recipe, like.network, _adapts(like))
    ]
    return max(same, key=means.__getitem__, default=None)
