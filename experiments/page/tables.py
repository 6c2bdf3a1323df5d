"""Tables in the form of the paper, with its results and ours side by side, as Markdown."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..protocol import Protocol, Setting
from ..results import Results, Run
from ..voters import parse_voter, title, voter_kind

Row = dict[str, Any]
RECIPES = ("dense", "patch")
NETWORK = "efficientnet-lite0"  # of the tables and plots
_SHORT = {"amazon": "A", "webcam": "W", "dslr": "D", "caltech": "C"}


def markdown(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table in Markdown; the first column is text, the others are numbers.

    Examples
    --------
    >>> print(markdown(["voter", "mean"], [["NBNN", "90.1"]]))
    |voter|mean|
    |---|--:|
    |NBNN|90.1|
    """
    lines = [f"|{'|'.join(header)}|", f"|---|{'--:|' * (len(header) - 1)}"]
    return "\n".join([*lines, *(f"|{'|'.join(row)}|" for row in rows)])


def summarise(protocol: Protocol, results: Results) -> list[Row]:
    """Return the mean and the deviation over splits of every run and pair, and the paper's mean, or None."""
    rows = []
    for run, stored in results.all(protocol.name):
        for pair in dict.fromkeys(cell["pair"] for cell in stored["cells"]):
            cells = [cell for cell in stored["cells"] if cell["pair"] == pair]
            values = [cell["accuracy"] for cell in cells]
            figure = protocol.figure(run.setting, run.voter, pair)
            rows.append(
                {
                    **dataclasses.asdict(run),
                    "pair": pair,
                    "splits": len(values),
                    "mean": round(float(np.mean(values)), 2),
                    "deviation": round(float(np.std(values, ddof=1)), 2) if len(values) > 1 else 0.0,
                    "paper": figure[0] if figure else None,
                }
            )
    return rows


def default_voter(path: Path) -> str:
    """Return what the default voter reached, from a file of records."""
    table: dict[str, dict[str, str]] = {}
    for one in json.loads(path.read_text(encoding="utf-8")):
        count, _, what = one["name"].removeprefix("Scene-15, ").partition(" per class, ")
        if what and one["name"].startswith("Scene-15"):
            what = "accuracy" if "splits" in what else what
            row = table.setdefault(count.split()[0], {})
            row[what] = f"{one['value']:.2f}"
            if one["peer"]:
                row[f"{what}, linear SVM before"] = one["peer"].rpartition(": ")[2]
    counts = sorted(table, key=int)
    kinds = ("accuracy", "accuracy, linear SVM before", "left-out photos", "calibration error")
    return markdown(
        ["Scene-15, photos per class", *counts],
        [[kind, *(table[count].get(kind, "") for count in counts)] for kind in kinds],
    )


def accuracies(protocol: Protocol, results: Results, whole: Protocol | None = None) -> str:
    """Return the accuracies of a set of scenes: the paper's, and ours with each recipe.

    The paper's are those of the `whole` image set, where the protocol has a part of it.
    """
    source = whole or protocol
    recipes = [recipe for recipe in RECIPES if recipe in protocol.recipes]
    rows = [row for row in summarise(protocol, results) if row["network"] == NETWORK]
    table = []
    for voter in protocol.voters:
        figure = source.figure(source.settings[0].name, voter, None)
        cells = [f"{figure[0]:.2f}±{figure[1]:.2f}" if figure else ""]
        for recipe in recipes:
            found = [row for row in rows if (row["voter"], row["recipe"]) == (voter, recipe)]
            cells += [f"{_mean(found[0])} ({found[0]['splits']})" if found else ""]
        if any(cells):
            table.append([title(voter), *cells])
    paper = "paper" if whole is None else "paper, all classes"
    return markdown(["voter", paper, *(f"ours, {recipe} (splits)" for recipe in recipes)], table)


def domains(
    protocol: Protocol, setting: Setting, results: Results, *, adapted: bool = False, recipe: str = "dense"
) -> str:
    """Return the accuracies on the pairs of the paper's table, of the paper and ours, with their average.

    `adapted` rows are those of voters that see the test photos without labels.
    """
    table = []
    for voter in protocol.voters:
        if voter_kind(voter).adapts != adapted:
            continue
        figures = [protocol.figure(setting.name, voter, pair) for pair in setting.main]
        stored = results.read(Run(protocol.name, setting.name, voter, recipe, NETWORK)) or {"cells": []}
        by_pair: dict[str, dict[int, float]] = {pair: {} for pair in setting.main}
        for cell in stored["cells"]:
            by_pair.get(cell["pair"], {})[cell["split"]] = cell["accuracy"]
        common = set.intersection(*(set(one) for one in by_pair.values() if one), set(range(1, setting.splits + 1)))
        ours = [float(np.mean([one[split] for split in common])) if one else None for one in by_pair.values()]
        paper = [figure[0] if figure else None for figure in figures]
        for name, values in ((f"{title(voter)}, paper", paper), (f"{title(voter)} ({len(common)})", ours)):
            known = [value for value in values if value is not None]
            average = f"{np.mean(known):.2f}" if len(known) == len(values) else ""
            if known:
                table.append([name, *("" if value is None else f"{value:.1f}" for value in values), average])
    return markdown(["voter (splits)", *(_arrow(pair) for pair in setting.main), "average"], table)


@dataclasses.dataclass(frozen=True)
class Budget:
    """A voter with so many passes (sNBNL) or rounds (NBNL)."""

    kind: str
    rounds: int
    splits: int
    seconds: float  # median of training
    accuracy: float


def budgets(protocol: Protocol, results: Results) -> list[Budget]:
    """Return the measured budgets, by voter and seconds, over the splits that all of them have."""
    runs = [(parse_voter(run.voter), stored["cells"]) for run, stored in results.all(protocol.name)]
    runs = [((kind, settings), cells) for (kind, settings), cells in runs if "max_iter" in settings]
    common = set.intersection(*({cell["split"] for cell in cells} for _, cells in runs)) if runs else set()
    found = []
    for (kind, settings), cells in runs:
        chosen = [cell for cell in cells if cell["split"] in common]
        accuracy = float(np.mean([cell["accuracy"] for cell in chosen] or [0]))
        seconds = float(np.median([cell["train_seconds"] for cell in chosen] or [0]))
        found.append(Budget(kind, settings["max_iter"], len(chosen), seconds, accuracy))
    return sorted(found, key=lambda budget: (budget.kind, budget.seconds))


def times(protocol: Protocol, results: Results) -> str:
    """Return accuracy and seconds of training, of the paper and of every budget."""
    rows = [[f"{title(kind)}, paper", "", f"{it[1]:.1f}", f"{it[0]:.2f}"] for kind, it in protocol.paper_times.items()]
    for one in budgets(protocol, results):
        rows.append([title(one.kind), str(one.rounds), f"{one.seconds:.1f}", f"{one.accuracy:.2f}"])
    return markdown(["voter", "passes or rounds", "training (s)", "accuracy"], rows)


def _mean(row: Row) -> str:
    return f"{row['mean']:.2f}" + (f"±{row['deviation']:.2f}" if row["splits"] > 1 else "")


def _arrow(pair: str) -> str:
    source, _, target = pair.partition("-")
    return f"{_SHORT.get(source, source)}→{_SHORT.get(target, target)}"
