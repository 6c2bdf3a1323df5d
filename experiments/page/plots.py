"""Plots like the paper's figures, as PNG and SVG. Needs matplotlib (the extra `plots`)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..protocol import Protocol
from ..results import Results
from ..voters import title
from .tables import Budget, summarise


def plot_patches(protocol: Protocol, results: Results, path: Path) -> None:
    """Draw the accuracy of NBNN by smallest patch and number of levels: a panel per network, a line per sampling."""
    accuracies: dict[str, dict[tuple[str, str], dict[tuple[int, int], float]]] = {}
    for row in summarise(protocol, results):
        match = re.fullmatch(r"patch-(\d+)x(\d)(?:-n(\d+))?(?:-\d+px)?(-before)?", row["recipe"])
        if match and row["voter"] == "nbnn-pca":
            sampling = match[3] or "100", "before" if match[4] else "after"
            by_patch = accuracies.setdefault(row["network"], {}).setdefault(sampling, {})
            by_patch[int(match[1]), int(match[2])] = row["mean"]
    grid = [(smallest, levels) for smallest in (16, 32, 64) for levels in (1, 2, 3)]
    figure, axes = _figure(max(1, len(accuracies)), 3.6)
    for (network, samplings), panel in zip(sorted(accuracies.items()), axes, strict=False):
        for (count, place), by_patch in sorted(samplings.items()):
            colour, style = "#1f6fb4" if count == "100" else "#d1662a", "o--" if place == "before" else "o-"
            for third in range(0, 9, 3):  # one line per smallest patch, so that levels are compared
                values = [by_patch.get(patch, np.nan) for patch in grid[third : third + 3]]
                label = f"{count} patches, {place}" if third == 0 else None
                panel.plot(range(third, third + 3), values, style, color=colour, label=label, markersize=4)
        panel.set_xticks(range(9), [str(levels) for _, levels in grid])
        panel.set_xlabel("levels\n16 px               32 px               64 px smallest")
        panel.set_title(network, fontsize=9)
    axes[0].legend(fontsize=7)
    _write(figure, axes, path)


def plot_times(found: Sequence[Budget], path: Path) -> None:
    """Draw accuracy against seconds of training: one line per voter, its passes or rounds beside the points."""
    figure, axes = _figure(1, 5.6)
    for number, kind in enumerate(dict.fromkeys(one.kind for one in found)):
        same = [one for one in found if one.kind == kind]
        seconds, accuracy = [one.seconds for one in same], [one.accuracy for one in same]
        _line(axes[0], seconds, accuracy, [0.0] * len(same), f"C{number}", title(kind))
        for one in same:
            place = (one.seconds, one.accuracy)
            axes[0].annotate(str(one.rounds), place, (4, -9), textcoords="offset points", fontsize=7)
    axes[0].set_xscale("log")
    axes[0].set_xlabel("training, s (numbers: passes or rounds)")
    axes[0].legend(fontsize=7, loc="lower right")
    _write(figure, axes, path)


def _figure(panels: int, width: float) -> tuple[Any, Any]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width * panels, 3.6), layout="constrained")
    return figure, figure.subplots(1, panels, squeeze=False)[0]


def _line(panel: Any, x: list[Any], y: list[float], errors: list[float], colour: str, label: str) -> None:
    panel.errorbar(x, y, yerr=errors, fmt="o-", color=colour, label=label, capsize=2, markersize=4, linewidth=1)


def _write(figure: Any, axes: Any, path: Path) -> None:
    for panel in axes:
        panel.grid(axis="y", alpha=0.3)
    axes[0].set_ylabel("accuracy, %")
    figure.savefig(path.with_suffix(".png"), dpi=110)
