"""Fair comparisons: voters beside the best baseline without parts, on the same photos, pixels and splits.

A voter that adapts to the test photos is compared with the best pooled image that adapts in the same way, any other
with the best that does not. The best baseline is chosen by its accuracy on the test photos, in favour of the baseline.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..protocol import Protocol, Setting
from ..results import Results, Run
from ..voters import VOTERS, parse_voter, title
from .comparison import compare
from .tables import markdown

BASELINES = ("whole-svm", "pooled-svm", "mean-svm")  # kinds of voters that see the image without parts
_RELIABILITY = {
    "calibration_error": "calibration error",
    "rejected": "rejected",
    "accepted_accuracy": "accuracy on the rest",
}


def table(protocol: Protocol, results: Results) -> str:
    """Return for each setting the accuracy of every voter, and its comparison with the best pooled image."""
    parts = []
    for setting in protocol.settings:
        runs = _runs(protocol, setting, results)
        if runs:
            if len(protocol.settings) > 1:
                parts.append(f"### {protocol.title}, {setting.name}")
            parts.append(_table(setting, runs, results))
    words = (
        "A row is compared with the best pooled image of the same recipe and network (marked best), one that adapts to "
        "the test photos with the best that adapts as well; every photo counts once, for the voter that had it right "
        "in more splits. With pairs of domains, accuracies are means over the pairs, ± the deviation over splits of "
        "that mean; a pair is below the best pooled image where the difference is below -2 standard errors."
    )
    calibrated = (
        " Temperature and threshold of rejection come from a fifth of the training photos, in a training of their own. "
        "The calibration error is in points, the other two columns are the per cent of test photos that are rejected "
        "and the accuracy on those that are not."
    )
    return "\n\n".join([*parts, words + (calibrated if protocol.calibrated else "")])


def _runs(protocol: Protocol, setting: Setting, results: Results) -> dict[Run, list[dict[str, Any]]]:
    """Return the runs of a setting with their cells, by recipe and network and then in the order of the voters."""
    voters = [*protocol.voters, *(voter for part in protocol.also for voter in part.voters)]
    order = {voter: number for number, voter in reversed(list(enumerate(voters)))}
    found = [(run, kept["cells"]) for run, kept in results.all(protocol.name) if run.setting == setting.name]
    found.sort(key=lambda item: (item[0].recipe, item[0].network, order.get(item[0].voter, len(order))))
    return dict(found)


def _table(setting: Setting, runs: dict[Run, list[dict[str, Any]]], results: Results) -> str:
    header = ["voter", "recipe", "network", "splits", "accuracy"]
    header += ["points above the best pooled image (± standard error)"]
    header += ["pairs below it"] if setting.pairs else []
    header += ["photos won : lost", "p"]
    reliable = [key for key in _RELIABILITY if any(key in cell for cells in runs.values() for cell in cells)]
    means = {run: _mean_over_pairs(cells)[0] for run, cells in runs.items()}
    rows = []
    for run, cells in runs.items():
        mean, deviation = _mean_over_pairs(cells)
        splits = len({cell["split"] for cell in cells})
        accuracy = f"{mean:.2f}" + (f" ± {deviation:.2f}" if splits > 1 else "")
        row = [title(run.voter), run.recipe, run.network, str(splits), accuracy]
        row += _compared(run, means, results, bool(setting.pairs))
        rows.append([*row, *(_mean_of(cells, key) for key in reliable)])
    return markdown([*header, *(_RELIABILITY[key] for key in reliable)], rows)


def _compared(run: Run, means: dict[Run, float], results: Results, pairs: bool) -> list[str]:
    """Return the comparison of a run with the best pooled image; of pooled images, the best is marked."""
    best = _best_baseline(means, run)
    found = compare(results, run, best) if best is not None and not _is_baseline(run) else None
    if found is None:
        return ["best" if run == best else "", *[""] * (2 + pairs)]
    row = [f"{found.difference:+.2f}" + (f" ± {found.error:.2f}" if found.splits > 1 else "")]
    row += [f"{found.below} of {found.pairs}" if found.pairs else ""] if pairs else []
    return [*row, f"{found.first} : {found.second}", f"{found.p:.2g}"]


def _mean_over_pairs(cells: Sequence[dict[str, Any]]) -> tuple[float, float]:
    """Return the mean accuracy, every pair with the same weight, and the deviation over splits of the pairs' mean."""
    by_pair: dict[str | None, dict[int, float]] = {}
    for cell in cells:
        by_pair.setdefault(cell["pair"], {})[cell["split"]] = cell["accuracy"]
    mean = float(np.mean([np.mean(list(one.values())) for one in by_pair.values()]))
    complete = set.intersection(*(set(one) for one in by_pair.values()))
    by_split = [np.mean([one[split] for one in by_pair.values()]) for split in complete]
    return mean, float(np.std(by_split, ddof=1)) if len(by_split) > 1 else 0.0


def _mean_of(cells: Sequence[dict[str, Any]], key: str) -> str:
    """Return the mean of a value over the cells that have it; nothing where a voter is not calibrated."""
    values = [cell[key] for cell in cells if cell.get(key) is not None]
    return f"{np.mean(values):.1f}" if values else ""


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
