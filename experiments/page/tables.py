"""Tables in the form of the paper, with its results and ours side by side, as Markdown."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from ..protocol import Protocol, Setting
from ..results import Results, Run
from ..voters import VOTERS, title

Row = dict[str, Any]
RECIPES = ("dense", "patch")
NETWORK = "efficientnet-lite0"  # of the main tables and plots
_QUOTED = "quoted by the paper"
_SHORT = {"amazon": "A", "webcam": "W", "dslr": "D", "caltech": "C"}


def markdown(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table in Markdown; the first column is text, the others are numbers.

    Examples
    --------
    >>> print(markdown(["voter", "mean"], [["NBNN", "90.1"]]))
    | voter | mean |
    |---|--:|
    | NBNN | 90.1 |
    """
    lines = [f"| {' | '.join(header)} |", f"|---|{'--:|' * (len(header) - 1)}"]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rows)])


def summarise(protocol: Protocol, results: Results) -> list[Row]:
    """Return the mean and the deviation over splits of every run and pair, and the paper's mean, or None."""
    rows = []
    for run, stored in results.all(protocol.name):
        for pair in dict.fromkeys(cell["pair"] for cell in stored["cells"]):
            values = [cell["accuracy"] for cell in stored["cells"] if cell["pair"] == pair]
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


def main_rows(protocol: Protocol, results: Results, recipe: str = "dense") -> list[Row]:
    """Return the rows of the main tables: those of one recipe with the default network."""
    return [row for row in summarise(protocol, results) if (row["recipe"], row["network"]) == (recipe, NETWORK)]


def voters_of(protocol: Protocol, rows: Iterable[Row]) -> list[str]:
    """Return the voters of a protocol, then those of stored results that it no longer has."""
    return list(dict.fromkeys([*protocol.voters, *sorted(row["voter"] for row in rows if "(" not in row["voter"])]))


def scenes(protocols: Sequence[Protocol], results: Results) -> str:
    """Return accuracies on the scene image sets: the paper's, and ours with each recipe."""
    columns: list[tuple[str, Protocol, str, list[Row] | None]] = []
    for protocol in protocols:
        rows = summarise(protocol, results)
        for setting in protocol.settings:
            name = protocol.title + (f" ({setting.name})" if len(protocol.settings) > 1 else "")
            columns.append((f"{name}: paper", protocol, setting.name, None))
            for recipe in RECIPES:
                ours = [row for row in rows if (row["setting"], row["recipe"]) == (setting.name, recipe)]
                ours = [  # others belong to the table of gains
                    row
                    for row in ours
                    if row["network"] == NETWORK and (row["voter"] in protocol.voters or "(" not in row["voter"])
                ]
                if ours:
                    count = _counted(max(row["splits"] for row in ours))
                    columns.append((f"{name}: ours, {recipe} ({count})", protocol, setting.name, ours))
    table, found = [], {row["voter"] for column in columns for row in column[3] or ()}
    for voter in [*VOTERS, *sorted(found - set(VOTERS))]:
        cells = []
        for _, protocol, setting_name, ours_or_none in columns:
            if ours_or_none is None:
                figure = protocol.figure(setting_name, voter, None)
                cells.append(_figure(figure, 2) if figure else "")
            else:
                cells.append(_of_voter(ours_or_none, voter))
        if any(cells):
            table.append([title(voter), *cells])
    for name in dict.fromkeys(row.name for protocol in protocols for row in protocol.quoted):
        cells = [
            _quoted(protocol, setting_name, name, None) if ours is None else ""
            for _, protocol, setting_name, ours in columns
        ]
        table.append([f"{name}, {_QUOTED}", *cells])
    header = ["voter", *(column[0] for column in columns)]
    shown = [number for number in range(len(header)) if any(row[number] for row in table)]
    return markdown([header[number] for number in shown], [[row[number] for number in shown] for row in table])


def _of_voter(column: list[Row], voter: str) -> str:
    """Return the accuracy of a voter in a column, with the number of splits where others of the column have more."""
    row = next((row for row in column if row["voter"] == voter), None)
    if row is None:
        return ""
    fewer = row["splits"] < max(other["splits"] for other in column)
    return _mean(row) + (f" ({_counted(row['splits'])})" if fewer else "")


def domains(protocol: Protocol, setting: Setting, results: Results) -> str:
    """Return the accuracies on the pairs of the paper's table, of the paper and ours, with their average."""
    rows = [row for row in summarise(protocol, results) if row["setting"] == setting.name and row["network"] == NETWORK]
    table = []
    for voter in protocol.voters:
        figures = [protocol.figure(setting.name, voter, pair) for pair in setting.main]
        if all(figures):
            means = [figure[0] for figure in figures if figure]
            cells = [_figure(figure, 1) for figure in figures if figure]
            table.append([f"{title(voter)}, paper", *cells, f"{np.mean(means):.2f}"])
        for recipe in RECIPES:
            ours = {row["pair"]: row for row in rows if (row["voter"], row["recipe"]) == (voter, recipe)}
            if ours:
                cells = [_mean(ours[pair], 1) if pair in ours else "" for pair in setting.main]
                complete = all(pair in ours for pair in setting.main)
                average = f"{np.mean([ours[pair]['mean'] for pair in setting.main]):.2f}" if complete else ""
                splits = min(row["splits"] for row in ours.values())
                table.append([f"{title(voter)}, ours, {recipe} ({_counted(splits)})", *cells, average])
    for row in protocol.quoted:
        if row.setting == setting.name:
            cells = [_quoted(protocol, setting.name, row.name, pair) for pair in setting.main]
            average = (
                f"{np.mean([row.figure(pair) or () for pair in setting.main], axis=0)[0]:.2f}" if all(cells) else ""
            )
            table.append([f"{row.name}, {_QUOTED}", *cells, average])
    return markdown(["voter", *(_arrow(pair) for pair in setting.main), "average"], table)


def gains(protocol: Protocol, results: Results) -> str:
    """Return what each change adds to the first row: one column per setting, averaged over the main pairs if any.

    Differences are averaged over the splits that both rows have.
    """
    header, table = ["what", *(f"{setting.name}" for setting in protocol.settings)], []
    header += ["against the first row", "training and testing (s)", "network"]
    first: list[dict[int, float]] | None = None
    for gain in protocol.gains:
        cells, accuracies, seconds = [], [], []
        for setting in protocol.settings:
            kept = results.read(Run(protocol.name, setting.name, gain.voter, gain.recipe, gain.network))
            finished = [cell for cell in (kept["cells"] if kept else []) if cell["pair"] in (setting.main or (None,))]
            splits = sorted({cell["split"] for cell in finished})
            if not finished or len(finished) != len(splits) * max(1, len(setting.main)):
                break
            by_split = {
                s: float(np.mean([cell["accuracy"] for cell in finished if cell["split"] == s])) for s in splits
            }
            accuracies.append(by_split)
            deviation = f" ± {np.std(list(by_split.values()), ddof=1):.2f}" if len(splits) > 1 else ""
            fewer = f" ({_counted(len(splits))})" if len(splits) < setting.splits else ""
            cells.append(f"{np.mean(list(by_split.values())):.2f}{deviation}{fewer}")
            seconds += [cell["train_seconds"] + cell["test_seconds"] for cell in finished]
        else:
            first = accuracies if first is None else first
            both = [(new, old, new.keys() & old.keys()) for new, old in zip(accuracies, first, strict=True)]
            differences = ", ".join(
                f"{np.mean([new[split] - old[split] for split in common]):+.2f}" if common else "no split in common"
                for new, old, common in both
            )
            table.append([gain.words, *cells, differences, f"{np.mean(seconds):.1f}", f"{gain.cost:.1f} times"])
    return markdown(header, table) if table else ""


def few(protocol: Protocol, results: Results) -> str:
    """Return the mean accuracy and its standard error, by voter and number of training images per class."""
    rows = main_rows(protocol, results)
    table = []
    for voter in voters_of(protocol, rows):
        by_setting = {row["setting"]: row for row in rows if row["voter"] == voter}
        if by_setting:
            ordered = [by_setting.get(setting.name) for setting in protocol.settings]
            cells = [f"{r['mean']:.2f} ± {r['deviation'] / r['splits'] ** 0.5:.2f}" if r else "" for r in ordered]
            table.append([title(voter), *cells])
    return markdown(["images per class", *(setting.name for setting in protocol.settings)], table)


def settings(protocol: Protocol, results: Results) -> str:
    """Return the mean accuracy of every voter with its settings, recipe and network."""
    rows = summarise(protocol, results)
    rows.sort(key=lambda row: (row["recipe"], row["network"], row["voter"]))
    return markdown(
        ["voter", "recipe", "network", "splits", "accuracy"],
        [[title(row["voter"]), row["recipe"], row["network"], str(row["splits"]), _mean(row)] for row in rows],
    )


def duplicates(protocol: Protocol, results: Results) -> str:
    """Return how many test photos have a byte-identical copy among the training photos, by split."""
    counts: dict[tuple[str, str | None, int], int] = {}
    for run, kept in results.all(protocol.name):
        for cell in kept["cells"]:
            counts[run.setting, cell["pair"], cell["split"]] = cell["duplicates"]
    duplicated = [count for count in counts.values() if count]
    if not duplicated:
        return f"{protocol.title}: no test photo has a byte-identical copy among the training photos of its split."
    return (
        f"{protocol.title}: in {len(duplicated)} of {len(counts)} splits, test photos have a byte-identical copy among "
        f"the training photos, {max(duplicated)} at most."
    )


def _mean(row: Row, digits: int = 2) -> str:
    deviation = f" ± {row['deviation']:.{digits}f}" if row["splits"] > 1 else ""
    return f"{row['mean']:.2f}{deviation}"


def _figure(figure: tuple[float, float], digits: int) -> str:
    return f"{figure[0]:.2f}" + (f" ± {figure[1]:.{digits}f}" if figure[1] else "")


def _quoted(protocol: Protocol, setting: str, name: str, pair: str | None) -> str:
    """Return the cell of a row that the paper quotes; nothing where the paper has a dash."""
    rows = [row for row in protocol.quoted if (row.name, row.setting) == (name, setting)]
    figure = rows[0].figure(pair) if rows else None
    return _figure(figure, 2) if figure else ""


def _arrow(pair: str) -> str:
    source, _, target = pair.partition("-")
    return f"{_SHORT.get(source, source)}→{_SHORT.get(target, target)}"


def _counted(splits: int) -> str:
    return f"{splits} split{'' if splits == 1 else 's'}"
