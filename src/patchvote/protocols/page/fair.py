"""Fair comparisons: voters beside the best baseline without parts, on the same photos, pixels and splits.

Splits share photos, so their accuracies are not independent, and a photo that is tested in five splits is not five
photos. The sign test therefore counts every photo once: for the voter that classified it correctly in more splits.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from typing import Any

import numpy as np

from ..cells import folder_of
from ..draws import Draw, read_draws
from ..protocol import Protocol
from ..results import Results, Run
from ..voters import title
from .tables import markdown

BASELINES = ("whole-svm", "pooled-svm", "mean-svm")  # kinds of voters that see the image without parts


@dataclasses.dataclass(frozen=True)
class Comparison:
    """Two voters on the same splits.

    Parameters
    ----------
    difference : float
        Mean over splits of the difference of their accuracies, in points.
    error : float
        Standard error of that mean, over splits; 0 for a single split.
    first, second : int
        Photos that the first, or the second, classified correctly in more splits than the other.
    p : float
        Probability of such counts, or more extreme ones, if both were equally good (two-sided sign test).
    """

    difference: float
    error: float
    first: int
    second: int
    p: float


def compare(results: Results, first: Run, second: Run) -> Comparison | None:
    """Compare two runs on the splits that both have; None where there is no such split."""
    from scipy.stats import binomtest

    kept = [results.read(run) for run in (first, second)]
    if kept[0] is None or kept[1] is None:
        return None
    cells = [{(cell["pair"], cell["split"]): cell for cell in run["cells"]} for run in kept if run is not None]
    both = sorted(cells[0].keys() & cells[1].keys(), key=str)
    if not both:
        return None
    draws = read_draws(results.folder / folder_of(first.protocol))
    apart = [cells[0][key]["accuracy"] - cells[1][key]["accuracy"] for key in both]
    lead: Counter[str] = Counter()
    for pair, split in both:
        photos = draws[Draw(first.setting, pair, split)].test
        hits = [cells[number][pair, split]["hits"] for number in (0, 1)]
        for photo, one, other in zip(photos, *hits, strict=True):
            lead[photo] += int(one) - int(other)
    ahead, behind = sum(value > 0 for value in lead.values()), sum(value < 0 for value in lead.values())
    p = float(binomtest(ahead, ahead + behind).pvalue) if ahead + behind else 1.0
    error = float(np.std(apart, ddof=1) / np.sqrt(len(apart))) if len(apart) > 1 else 0.0
    return Comparison(float(np.mean(apart)), error, ahead, behind, p)


def table(protocol: Protocol, results: Results) -> str:
    """Return the accuracy of every voter, and its comparison with the best baseline of the same recipe and network."""
    rows = []
    values_of = {run: [cell["accuracy"] for cell in kept["cells"]] for run, kept in _ordered(protocol, results)}
    runs = {run: float(np.mean(values)) for run, values in values_of.items()}
    for run, mean in runs.items():
        values = values_of[run]
        deviation = float(np.std(values, ddof=1)) if len(values) > 1 else 0.0
        row = [title(run.voter), run.recipe, run.network, str(len(values)), f"{mean:.2f} ± {deviation:.2f}"]
        best = _best_baseline(runs, run)
        found = compare(results, run, best) if best is not None and not _is_baseline(run) else None
        if found is not None and best is not None:
            row += [f"{found.difference:+.2f} ± {found.error:.2f}", f"{found.first} : {found.second}", f"{found.p:.2g}"]
        else:
            row += ["best" if run == best else "", "", ""]
        rows.append(row)
    compared = "points above the best pooled image (± standard error)"
    return markdown(["voter", "recipe", "network", "splits", "accuracy", compared, "photos won : lost", "p"], rows)


def _ordered(protocol: Protocol, results: Results) -> list[tuple[Run, dict[str, Any]]]:
    """Return the runs of a protocol, in the order of its voters."""
    order = {voter: number for number, voter in enumerate(protocol.voters)}
    return sorted(results.all(protocol.name), key=lambda item: (item[0].recipe, order.get(item[0].voter, len(order))))


def _is_baseline(run: Run) -> bool:
    return run.voter.partition("(")[0] in BASELINES


def _best_baseline(runs: dict[Run, float], like: Run) -> Run | None:
    """Return the most accurate baseline with the recipe, network and setting of a run."""
    same = [
        run
        for run in runs
        if _is_baseline(run) and (run.setting, run.recipe, run.network) == (like.setting, like.recipe, like.network)
    ]
    return max(same, key=runs.__getitem__, default=None)
