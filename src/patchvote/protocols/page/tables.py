"""The paper's tables, in its form, with ours beside: Markdown from kept results."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from ..protocol import Protocol, Setting
from ..results import Results, Run
from ..voters import VOTERS, title
from .summary import NETWORK, main_rows, sign_test, summarise

Row = dict[str, Any]
RECIPES = ("dense", "patch")
_SHORT = {"amazon": "A", "webcam": "W", "dslr": "D", "caltech": "C"}


def markdown(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Lay out a table; the first column is text, the others are numbers.

    Examples
    --------
    >>> print(markdown(["voter", "mean"], [["NBNN", "90.1"]]))
    | voter | mean |
    |---|--:|
    | NBNN | 90.1 |
    """
    lines = [f"| {' | '.join(head)} |", f"|---|{'--:|' * (len(head) - 1)}"]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rows)])


def scenes(protocols: Sequence[Protocol], results: Results) -> str:
    """Return accuracies on the scene image sets: the paper's, and ours with each recipe."""
    columns: list[tuple[str, Protocol, str, list[Row] | None, str]] = []
    for protocol in protocols:
        rows = summarise(protocol, results)
        for setting in protocol.settings:
            name = protocol.title + (f" ({setting.name})" if len(protocol.settings) > 1 else "")
            columns.append((f"{name}: paper", protocol, setting.name, None, ""))
            for recipe in RECIPES:
                own = [row for row in rows if (row["setting"], row["recipe"]) == (setting.name, recipe)]
                own = [row for row in own if row["network"] == NETWORK and row["voter"] in VOTERS]
                if own:
                    count = _counted(min(row["splits"] for row in own))
                    columns.append((f"{name}: ours, {recipe} ({count})", protocol, setting.name, own, recipe))
    table = []
    for voter, kind in VOTERS.items():
        cells = []
        for _, protocol, setting_name, kept, _ in columns:
            if kept is None:
                figure = protocol.figure(setting_name, voter, None)
                cells.append(_figure(figure, 2) if figure else "")
            else:
                cells.append(next((_mean(row) for row in kept if row["voter"] == voter), ""))
        if any(cells):
            table.append([kind.title, *cells])
    return markdown(["voter", *(column[0] for column in columns)], table)


def speed(protocols: Sequence[Protocol], results: Results) -> str:
    """Return NBNL against sNBNL: accuracy, seconds of training and testing, speed-up, and the sign test."""
    lines, notes = [], []
    for protocol in protocols:
        if protocol.paper_times:
            nbnl, snbnl = protocol.paper_times["nbnl"], protocol.paper_times["snbnl"]
            lines.append(_speed_line(f"{protocol.title}, paper", nbnl, snbnl))
        for setting in protocol.settings:
            for recipe in RECIPES:
                runs = [Run(protocol.name, setting.name, voter, recipe, NETWORK) for voter in ("nbnl", "snbnl")]
                kept = [results.read(run) for run in runs]
                if kept[0] is None or kept[1] is None:
                    continue
                means = [
                    [float(np.mean([cell[key] for cell in run["cells"]])) for key in _TIMES]
                    for run in kept
                    if run is not None
                ]
                lines.append(_speed_line(f"{protocol.title}, ours, {recipe}", *means))
                test = sign_test(results, *runs)
                if test is not None:
                    verdict = "they differ" if test.p < 0.05 else "no difference is shown"
                    notes.append(
                        f"{protocol.title}, {recipe}: of the test photos that only one of the two names rightly, NBNL "
                        f"has {test.first} and sNBNL {test.second}; sign test p = {test.p:.3g}: at p < 0.05 {verdict}."
                    )
    head = ["", *(f"{voter} {what}" for what in ("accuracy", "train (s)", "test (s)") for voter in ("NBNL", "sNBNL"))]
    table = markdown([*head, "speed-up of training", "of testing"], lines)
    return "\n\n".join([table, *(f"- {note}" for note in notes)])


_TIMES = ("accuracy", "train_seconds", "test_seconds")


def _speed_line(name: str, nbnl: Sequence[float], snbnl: Sequence[float]) -> list[str]:
    times = [f"{value:.2f}" if k == 0 else f"{value:.1f}" for k in range(3) for value in (nbnl[k], snbnl[k])]
    return [name, *times, f"{nbnl[1] / snbnl[1]:.1f} times", f"{nbnl[2] / snbnl[2]:.1f} times"]


def domains(protocol: Protocol, setting: Setting, results: Results) -> str:
    """Return the accuracies on the pairs of the paper's table, the paper's and ours, with their average."""
    rows = [row for row in summarise(protocol, results) if row["setting"] == setting.name and row["network"] == NETWORK]
    table = []
    for voter in protocol.voters:
        figures = [protocol.figure(setting.name, voter, pair) for pair in setting.main]
        if all(figures):
            means = [figure[0] for figure in figures if figure]
            cells = [_figure(figure, 1) for figure in figures if figure]
            table.append([f"{title(voter)}, paper", *cells, f"{np.mean(means):.2f}"])
        for recipe in RECIPES:
            own = {row["pair"]: row for row in rows if (row["voter"], row["recipe"]) == (voter, recipe)}
            if own:
                cells = [_mean(own[pair], 1) if pair in own else "" for pair in setting.main]
                whole = all(pair in own for pair in setting.main)
                average = f"{np.mean([own[pair]['mean'] for pair in setting.main]):.2f}" if whole else ""
                splits = min(row["splits"] for row in own.values())
                table.append([f"{title(voter)}, ours, {recipe} ({_counted(splits)})", *cells, average])
    return markdown(["voter", *(_arrow(pair) for pair in setting.main), "average"], table)


def all_pairs(protocol: Protocol, setting: Setting, results: Results, recipe: str = "dense") -> str:
    """Return the mean accuracies on all pairs, the within-domain ones last; the paper has them for NBNN."""
    rows = [row for row in main_rows(protocol, results, recipe) if row["setting"] == setting.name]
    figures = {pair: protocol.figure(setting.name, "nbnn", pair) for pair in setting.pairs}
    table = [[f"{title('nbnn')}, paper", *(f"{f[0]:.1f}" if f else "" for f in figures.values())]]
    for voter in protocol.voters:
        own = {row["pair"]: row for row in rows if row["voter"] == voter}
        if own:
            table.append([title(voter), *(f"{own[pair]['mean']:.1f}" if pair in own else "" for pair in setting.pairs)])
    heads = [_arrow(pair) + ("*" if pair in setting.main else "") for pair in setting.pairs]
    return markdown(["voter", *heads], table)


def above_the_paper(protocol: Protocol, results: Results) -> str:
    """Return in how many cells of the paper's tables ours is above the paper's, and above the whole image's SVM."""
    table = []
    for recipe in RECIPES:
        rows = main_rows(protocol, results, recipe)
        found = {(row["setting"], row["pair"], row["voter"]): row["mean"] for row in rows}
        for voter in protocol.voters:
            own = {
                (setting.name, pair): found[setting.name, pair, voter]
                for setting in protocol.settings
                for pair in setting.main
                if (setting.name, pair, voter) in found
            }
            paper = {key: figure[0] for key in own if (figure := protocol.figure(key[0], voter, key[1]))}
            whole = {key: found[(*key, "whole-svm")] for key in own if (*key, "whole-svm") in found}
            if own:
                table.append(
                    [
                        f"{title(voter)}, {recipe}",
                        _count(own, paper),
                        _count(own, whole) if voter != "whole-svm" else "",
                    ]
                )
    return markdown(["voter", "cells above the paper's", "cells above the whole-image SVM"], table)


def _count(own: dict[Any, float], other: dict[Any, float]) -> str:
    return f"{sum(own[key] > value for key, value in other.items())} of {len(other)}" if other else ""


def gains(protocol: Protocol, results: Results) -> str:
    """Return what each change adds to the first row: a column a setting, over all main pairs where there are pairs.

    A difference is taken over the splits that both rows have.
    """
    head, table = ["what", *(f"{setting.name}" for setting in protocol.settings)], []
    head += ["against the first row", "training and testing (s)", "network"]
    first: list[dict[int, float]] | None = None
    for gain in protocol.gains:
        cells, found, seconds = [], [], []
        for setting in protocol.settings:
            kept = results.read(Run(protocol.name, setting.name, gain.voter, gain.recipe, gain.network))
            own = [cell for cell in (kept["cells"] if kept else []) if cell["pair"] in (setting.main or (None,))]
            splits = sorted({cell["split"] for cell in own})
            if not own or len(own) != len(splits) * max(1, len(setting.main)):
                break
            by_split = {s: float(np.mean([cell["accuracy"] for cell in own if cell["split"] == s])) for s in splits}
            found.append(by_split)
            deviation = f" ± {np.std(list(by_split.values()), ddof=1):.2f}" if len(splits) > 1 else ""
            fewer = f" ({_counted(len(splits))})" if len(splits) < setting.splits else ""
            cells.append(f"{np.mean(list(by_split.values())):.2f}{deviation}{fewer}")
            seconds += [cell["train_seconds"] + cell["test_seconds"] for cell in own]
        else:
            first = found if first is None else first
            both = [(new, old, new.keys() & old.keys()) for new, old in zip(found, first, strict=True)]
            apart = ", ".join(
                f"{np.mean([new[split] - old[split] for split in common]):+.2f}" if common else "no split in common"
                for new, old, common in both
            )
            table.append([gain.words, *cells, apart, f"{np.mean(seconds):.1f}", f"{gain.cost:.1f} times"])
    return markdown(head, table) if table else ""


def few(protocol: Protocol, results: Results) -> str:
    """Return the mean accuracy and its standard error, by voter and number of training images a class."""
    rows = main_rows(protocol, results)
    table = []
    for voter in protocol.voters:
        own = {row["setting"]: row for row in rows if row["voter"] == voter}
        if own:
            kept = [own.get(setting.name) for setting in protocol.settings]
            cells = [f"{r['mean']:.2f} ± {r['deviation'] / r['splits'] ** 0.5:.2f}" if r else "" for r in kept]
            table.append([title(voter), *cells])
    return markdown(["images a class", *(setting.name for setting in protocol.settings)], table)


def settings(protocol: Protocol, results: Results) -> str:
    """Return the mean accuracy of every voter with its settings, recipe and network."""
    rows = summarise(protocol, results)
    rows.sort(key=lambda row: (row["recipe"], row["network"], row["voter"]))
    return markdown(
        ["voter", "recipe", "network", "splits", "accuracy"],
        [[title(row["voter"]), row["recipe"], row["network"], str(row["splits"]), _mean(row)] for row in rows],
    )


def duplicates(protocol: Protocol, results: Results) -> str:
    """Tell how many test photos have a byte-identical copy among the training photos, by split."""
    seen: dict[tuple[str, str | None, int], int] = {}
    for run, kept in results.all(protocol.name):
        for cell in kept["cells"]:
            seen[run.setting, cell["pair"], cell["split"]] = cell["duplicates"]
    there = {key: count for key, count in seen.items() if count}
    if not there:
        return f"{protocol.title}: no test photo has a byte-identical copy among the training photos of its split."
    told = [
        f"{' '.join(filter(None, [setting, pair]))} split {split}: {count}"
        for (setting, pair, split), count in sorted(there.items(), key=str)
    ]
    most = f"; {', '.join(told[:12])}{' and so on' if len(told) > 12 else ''}"
    return (
        f"{protocol.title}: in {len(there)} of {len(seen)} splits, test photos have a byte-identical copy among the "
        f"training photos, {max(there.values())} at most{most}."
    )


def _mean(row: Row, digits: int = 2) -> str:
    deviation = f" ± {row['deviation']:.{digits}f}" if row["splits"] > 1 else ""
    return f"{row['mean']:.2f}{deviation}"


def _figure(figure: tuple[float, float], digits: int) -> str:
    return f"{figure[0]:.2f}" + (f" ± {figure[1]:.{digits}f}" if figure[1] else "")


def _arrow(pair: str) -> str:
    source, _, target = pair.partition("-")
    return f"{_SHORT.get(source, source)}→{_SHORT.get(target, target)}"


def _counted(splits: int) -> str:
    return f"{splits} split{'' if splits == 1 else 's'}"
