"""Plots like the paper's figures, as PNG and SVG. Needs matplotlib (the extra `plots`)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from patchvote.utils.figures import new_figure
from ..voters import title

from ..protocol import Protocol
from ..results import Results
from .findings import Patches
from .speed import Budget
from .tables import NETWORK, main_rows, summarise, voters_of

_COLOURS = {"whole-svm": "#7f7f7f", "mean-svm": "#b0b0b0", "mop": "#d6c08a"}


def _figure(rows: int, columns: int, width: float, height: float, sharey: bool = True) -> tuple[Any, Any]:
    figure = new_figure(width, height)
    import matplotlib

    matplotlib.rcParams["svg.hashsalt"] = "patchvote"  # the same results give an identical file
    return figure, figure.subplots(rows, columns, squeeze=False, sharey=sharey)


def _write(figure: Any, path: Path) -> None:
    for ending, metadata in (("png", {"Software": None}), ("svg", {"Date": None, "Creator": None})):
        figure.savefig(path.with_suffix(f".{ending}"), dpi=110, metadata=metadata)


def plot_patches(accuracies: dict[Patches, float], path: Path) -> None:
    """Draw the accuracy of NBNN by smallest patch and number of levels: a panel per network, a line per sampling."""
    networks = list(dict.fromkeys(key.network for key in sorted(accuracies)))
    figure, axes = _figure(1, len(networks), 3.6 * len(networks) + 0.6, 3.6)
    samplings = [(100, False), (100, True), (400, False), (400, True)]
    grid = [(smallest, levels) for smallest in (16, 32, 64) for levels in (1, 2, 3)]
    for network, panel in zip(networks, axes[0], strict=True):
        for (count, before), style in zip(samplings, ("o-", "o--", "s-", "s--"), strict=True):
            for third in range(3):  # one line per smallest patch, so that levels are compared
                positions = range(3 * third, 3 * third + 3)
                keys = [Patches(*grid[k], count, before, network) for k in positions]
                values = [accuracies.get(key, np.nan) for key in keys]
                if not np.isnan(values).all():
                    label = f"{count} patches, {'before' if before else 'after'}" if third == 0 else None
                    colour = "#1f6fb4" if count == 100 else "#d1662a"
                    panel.plot(
                        positions,
                        values,
                        style,
                        color=colour,
                        label=label,
                        markersize=4,
                        fillstyle="none" if before else "full",
                    )
        panel.set_xticks(range(9), [str(levels) for _, levels in grid])
        panel.set_xlabel("levels\n16 px               32 px               64 px smallest")
        panel.set_title(network, fontsize=9)
        panel.grid(axis="y", alpha=0.3)
    axes[0][0].set_ylabel("accuracy of NBNN, %")
    axes[0][0].legend(fontsize=7)
    _write(figure, path)


def plot_voters(protocol: Protocol, results: Results, path: Path) -> bool:
    """Draw the mean accuracy of every voter with its deviation, and that of the paper as a cross.

    Returns whether there was anything to draw: all results may belong to other recipes or networks.
    """
    rows = [row for row in summarise(protocol, results) if row["network"] == NETWORK]
    recipes = [recipe for recipe in ("dense", "patch") if any(row["recipe"] == recipe for row in rows)]
    if not recipes:
        return False
    figure, axes = _figure(1, len(recipes), 3.6 * len(recipes) + 1.6, 3.2)
    for recipe, panel in zip(recipes, axes[0], strict=True):
        for place, voter in enumerate(protocol.voters):
            row = next((row for row in rows if (row["recipe"], row["voter"]) == (recipe, voter)), None)
            if row is not None:
                colour = _COLOURS.get(voter, "#1f6fb4")
                panel.errorbar(place, row["mean"], yerr=row["deviation"], fmt="o", color=colour, capsize=3)
                panel.annotate(
                    f"{row['mean']:.1f}", (place, row["mean"]), (6, 3), textcoords="offset points", fontsize=7
                )
            figure_of_paper = protocol.figure(protocol.settings[0].name, voter, None)
            if figure_of_paper:
                panel.plot(place, figure_of_paper[0], "x", color="#c03030", label="paper" if place == 0 else None)
        panel.set_xticks(
            range(len(protocol.voters)), [title(v) for v in protocol.voters], rotation=35, ha="right", fontsize=7
        )
        panel.set_title(f"{protocol.title}, {recipe} bags", fontsize=9)
        panel.grid(axis="y", alpha=0.3)
    axes[0][0].set_ylabel("accuracy, %")
    axes[0][0].legend(fontsize=7)
    _write(figure, path)
    return True


def plot_domains(protocol: Protocol, results: Results, path: Path) -> None:
    """Draw the accuracy on the paper's pairs: one panel per setting, one line per voter, the paper's sNBNL dotted."""
    rows = main_rows(protocol, results)
    figure, axes = _figure(1, len(protocol.settings), 10, 3.6)
    for setting, panel in zip(protocol.settings, axes[0], strict=True):
        for number, voter in enumerate(protocol.voters):
            means = {r["pair"]: r["mean"] for r in rows if (r["setting"], r["voter"]) == (setting.name, voter)}
            values = [means.get(pair, np.nan) for pair in setting.main]
            if not np.isnan(values).all():
                style = "o-" if voter not in _COLOURS else "s--"
                colour = _COLOURS.get(voter, f"C{number}")
                panel.plot(setting.main, values, style, color=colour, label=title(voter), markersize=4, linewidth=1)
        paper = [protocol.figure(setting.name, "snbnl", pair) for pair in setting.main]
        if all(paper):
            panel.plot(setting.main, [f[0] for f in paper if f], "x:", color="#c03030", label="CNN-sNBNL, paper")
        panel.set_xticks(range(len(setting.main)), setting.main, rotation=30, ha="right", fontsize=7)
        panel.set_title(f"{setting.name}, dense bags", fontsize=9)
        panel.grid(axis="y", alpha=0.3)
    axes[0][0].set_ylabel("accuracy, %")
    axes[0][-1].legend(fontsize=7, loc="center left", bbox_to_anchor=(1.0, 0.5))
    _write(figure, path)


def plot_settings(protocol: Protocol, results: Results, path: Path) -> None:
    """Draw the accuracy of each changed setting of a voter or recipe, beside that of the default."""
    rows = summarise(protocol, results)
    rows.sort(key=lambda row: (row["voter"].partition("(")[0], row["mean"]))
    figure, axes = _figure(1, 1, 7, 0.22 * len(rows) + 0.8)
    panel = axes[0][0]
    for place, row in enumerate(rows):
        default = "(" not in row["voter"] and row["recipe"] == protocol.recipes[0]
        panel.errorbar(
            row["mean"],
            place,
            xerr=row["deviation"],
            fmt="D" if default else "o",
            color="#c03030" if default else "#1f6fb4",
            capsize=2,
            markersize=4,
        )
    labels = [
        title(row["voter"]) + ("" if row["recipe"] == protocol.recipes[0] else f", {row['recipe']}") for row in rows
    ]
    panel.set_yticks(range(len(rows)), labels, fontsize=7)
    panel.set_xlabel("accuracy, %")
    panel.grid(axis="x", alpha=0.3)
    _write(figure, path)


def plot_few(protocols: Sequence[Protocol], results: Results, path: Path) -> None:
    """Draw accuracy by the number of training images per class: one panel per image set, one line per voter."""
    figure, axes = _figure(1, len(protocols), 4.2 * len(protocols), 3.6, sharey=False)
    for protocol, panel in zip(protocols, axes[0], strict=True):
        rows = main_rows(protocol, results)
        for number, voter in enumerate(voters_of(protocol, rows)):
            by_count = sorted(
                ((int(row["setting"]), row) for row in rows if row["voter"] == voter), key=lambda item: item[0]
            )
            error = [row["deviation"] / row["splits"] ** 0.5 for _, row in by_count]
            panel.errorbar(
                [count for count, _ in by_count],
                [row["mean"] for _, row in by_count],
                yerr=error,
                fmt="o-" if number == 0 else "s--",
                color=f"C{number}" if number == 0 else ("#7f7f7f", "#b08040", "#509070")[number % 3],
                label=title(voter),
                capsize=2,
                markersize=4,
                linewidth=1,
            )
        panel.set_xscale("log")
        ticks = [int(setting.name) for setting in protocol.settings]
        panel.set_xticks(ticks, [str(tick) for tick in ticks])
        panel.minorticks_off()
        panel.set_xlabel("training images per class")
        panel.set_title(protocol.title, fontsize=9)
        panel.grid(axis="y", alpha=0.3)
    axes[0][0].set_ylabel("accuracy, %")
    axes[0][0].legend(fontsize=7, loc="lower right")
    _write(figure, path)


def plot_times(found: Sequence[Budget], path: Path) -> None:
    """Draw accuracy against seconds of training: one line per voter, its passes or rounds beside the points."""
    figure, axes = _figure(1, 1, 5.6, 3.6)
    panel = axes[0][0]
    for kind, colour in zip(dict.fromkeys(one.kind for one in found), ("#1f6fb4", "#d1662a"), strict=False):
        same = [one for one in found if one.kind == kind]
        seconds, accuracy = [one.seconds for one in same], [one.accuracy for one in same]
        errors = [one.error for one in same]
        panel.errorbar(
            seconds, accuracy, yerr=errors, fmt="o-", color=colour, label=title(kind), capsize=2, markersize=4
        )
        for one in same:
            panel.annotate(
                str(one.rounds), (one.seconds, one.accuracy), (4, -9), textcoords="offset points", fontsize=7
            )
    panel.set_xscale("log")
    panel.set_xlabel("training, s (numbers: passes or rounds)")
    panel.set_ylabel("accuracy, %")
    panel.grid(alpha=0.3)
    panel.legend(fontsize=7, loc="lower right")
    _write(figure, path)
