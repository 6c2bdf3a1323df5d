"""The records of `peers.py` as a table, a sentence on where a peer is better, and a plot.

Everything is made from the records alone, so that a page can be compared with them (tests/test_peers_table.py).

    python benchmarks/peers_table.py results/bench/peers.json          # prints what README.md has between its marks
    python benchmarks/peers_table.py peers.json --plot peers           # draws peers.png
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Callable
from pathlib import Path

import numpy as np

from common import Record

OURS = "patchvote"  # the default, with which every other method is compared
CHANCE = 0.05  # differences with a larger p are called chance
LEVEL = 2 / 3  # a time of more than this share of another is level: one script took 24 to 31 ms per photo in one run

# By column: unit, header, how a cell is written. A record's name is the column's, a comma, and the method's.
Cell = Callable[[float], str]
COLUMNS: dict[str, tuple[str, str, Cell]] = {
    "fit seconds": ("s", "to learn", lambda value: f"{value:.0f} s"),
    "photo seconds": ("s/photo", "per photo", lambda value: f"{1000 * value:.0f} ms"),
    "gigabytes": ("GB", "peak memory", lambda value: f"{value:.2f} GB"),
    "model megabytes": ("MB", "model", lambda value: f"{value:.1f} MB"),
    "lines": ("lines", "lines", lambda value: f"{value:.0f}"),
}
_RANGE = 12.0  # points below the best method that the plot shows
Methods = dict[str, dict[str, float]]


def methods_of(records: list[Record]) -> Methods:
    """Return the figures of each method by column, in the order of the records."""
    found: Methods = {}
    for one in records:
        column, _, method = str(one["name"]).partition(", ")
        if column in COLUMNS or column in ("accuracy", "won", "lost", "p"):
            found.setdefault(method, {})[column] = float(one["value"])  # type: ignore[arg-type]
    return found


def count_of(records: list[Record], what: str) -> tuple[int, str]:
    """Return the number of photos to learn or asked, and where they come from."""
    for one in records:
        name, _, source = str(one["name"]).partition(", ")
        if name == what:
            return int(one["value"]), source  # type: ignore[call-overload]
    raise ValueError(f"no record of {what!r}")


# --- the table --------------------------------------------------------------------------------------------------------


def lines_of(records: list[Record]) -> list[str]:
    """Return the table, what its columns mean, and where a peer is better, as lines of Markdown."""
    learned, source = count_of(records, "photos to learn")
    asked, _ = count_of(records, "photos asked")
    methods = methods_of(records)
    lines = [f"{source}: {learned:,} photos to learn from, {asked:,} others asked.", ""]
    lines.append("| method | accuracy, % | won : lost (p) | " + " | ".join(one[1] for one in COLUMNS.values()) + " |")
    lines.append("|---|--:|--:|" + "--:|" * len(COLUMNS))
    for name, figures in methods.items():
        error = math.sqrt(figures["accuracy"] * (100 - figures["accuracy"]) / asked)
        cells = [name, f"{figures['accuracy']:.1f} ± {error:.1f}", against(figures)]
        cells += [write(figures[column]) for column, (_, _, write) in COLUMNS.items()]
        lines.append(f"| {' | '.join(cells)} |")
    for one in records:
        column, _, name = str(one["name"]).partition(", ")
        if column == "did not run":
            lines.append(f"| {name.replace('|', '/')} | did not run |{' |' * (len(COLUMNS) + 1)}")
    return [*lines, "", legend(source), "", better(methods)]


def against(figures: dict[str, float]) -> str:
    """Return the comparison with our default, photo by photo."""
    if "p" not in figures:
        return ""
    return f"{figures['won']:.0f} : {figures['lost']:.0f} ({probability(figures['p'])})"


def probability(p: float) -> str:
    """Write the p of a sign test."""
    return "< 0.001" if p < 0.001 else f"{p:.3f}" if p < 0.1 else f"{p:.2f}"


def legend(source: str) -> str:
    """Return what the columns mean, and the command."""
    command = "make bench" if " " in source else f"make bench PHOTOS={source}"
    return (
        f"`{command}` measures all methods in one run, one after the other, each in processes of its own that find "
        "nothing in a cache. ± is the standard error that so many test photos leave. Won are photos that this method "
        "alone has right, lost those that the default of patchvote alone has right, with the p of a sign test. Seconds "
        "include starting the program and reading the photos; memory is that of the largest process; a model holds the "
        "network only where that was trained; lines are those that a user writes, with imports "
        "and the reading and writing of files."
    )


def better(methods: Methods) -> str:
    """Say which methods are ahead of our default, by column; times that differ little are level."""
    ours, others = methods[OURS], {name: one for name, one in methods.items() if name != OURS}
    ahead = {name: one for name, one in others.items() if one["accuracy"] > ours["accuracy"]}
    sure = [name for name, one in ahead.items() if one["p"] < CHANCE]
    words = ["in accuracy: " + ("; ".join(sure) or "none beyond chance")]
    unclear = {name: one["p"] for name, one in others.items() if one["p"] >= CHANCE}
    for title, chosen in (("ahead", ahead), ("level or behind", others.keys() - ahead.keys())):
        found = [f"{name} (p = {probability(p)})" for name, p in unclear.items() if name in chosen]
        words[0] += f". {title.capitalize()} by no more than chance explains: {'; '.join(found)}" if found else ""
    titles = ("in time to learn", "in time per photo", "in peak memory", "in the model's size", "in lines to write")
    for title, (column, (_, _, write)) in zip(titles, COLUMNS.items(), strict=True):
        found = [
            f"{name} ({write(one[column])})"
            for name, one in sorted(others.items(), key=lambda item: item[1][column])
            if one[column] < (LEVEL if "seconds" in column else 1) * ours[column]
            and write(one[column]) != write(ours[column])
        ]
        words.append(f"{title}: {'; '.join(found) or 'none'}")
    title = "Better than the default of patchvote are, in this run (times that differ by less than a third are level),"
    return "\n".join([title, "", *(f"- {one}." for one in words)])


# --- the plot ---------------------------------------------------------------------------------------------------------


def draw(records: list[Record], file: Path) -> None:
    """Draw accuracy against seconds per photo and against seconds to learn; numbers name the methods in a list.

    Methods far behind the best stand at the lower edge, as triangles, so that the others can be told apart.
    """
    from matplotlib.figure import Figure

    methods, (asked, _) = methods_of(records), count_of(records, "photos asked")
    names = sorted(methods, key=lambda name: -methods[name]["accuracy"])
    figure = Figure(figsize=(14, 6.4), layout="constrained")
    *panels, words = figure.subplots(1, 3, width_ratios=(1, 1, 0.8))
    least = methods[names[0]]["accuracy"] - _RANGE
    shown = {name: max(methods[name]["accuracy"], least) for name in names}
    heights = [height(shown[name], asked) for name in names]
    ticks = [tick for tick in (*range(0, 80, 10), 80, 84, *range(86, 101)) if inside(tick, list(shown.values()))]
    for panel, column in zip(panels, ("photo seconds", "fit seconds"), strict=True):
        places = [(math.log10(methods[name][column]), y) for name, y in zip(names, heights, strict=True)]
        for name, (x, y) in zip(names, places, strict=True):
            mark = "v" if methods[name]["accuracy"] < least else "o"
            panel.plot(10**x, y, mark, color=colour_of(name), markersize=7, zorder=3)
        for group in together(places):
            x, y = places[group[-1]]
            label = ", ".join(str(index + 1) for index in group)
            panel.annotate(label, (10**x, y), (7, -4), textcoords="offset points", fontsize=9)
        panel.set(xscale="log", ylabel="accuracy, %")
        panel.set_xlabel({"photo seconds": "seconds per photo", "fit seconds": "seconds to learn"}[column])
        panel.margins(x=0.12)
        panel.set_yticks([height(tick, asked) for tick in ticks], [str(tick) for tick in ticks])
        panel.grid(alpha=0.3)
    words.set(xlim=(0, 1), ylim=(len(names), -1))
    words.axis("off")
    for row, name in enumerate(names):
        text = f"{row + 1}  {name} ({methods[name]['accuracy']:.1f})"
        weight = "bold" if name == OURS else "normal"
        words.text(0, row, text, va="center", fontsize=8, color=colour_of(name), weight=weight)
    figure.savefig(file.with_suffix(".png"), dpi=110)


def colour_of(name: str) -> str:
    """Return the colour of a method: our default, other ways of patchvote, or a peer."""
    return "C3" if name == OURS else "C0" if name.startswith(OURS) else "0.25"


def together(places: list[tuple[float, float]]) -> list[list[int]]:
    """Return groups of points, left to right, that stand so close that the label of one would hide the next."""
    wide, high = (max(np.ptp(values), 1e-9) for values in zip(*places, strict=True))
    groups: list[list[int]] = []
    for index, (x, y) in sorted(enumerate(places), key=lambda item: item[1][0]):
        for group in groups:
            x0, y0 = places[group[-1]]
            if abs(x - x0) < 0.1 * wide and abs(y - y0) < 0.03 * high:
                group.append(index)
                break
        else:
            groups.append([index])
    return groups


def height(accuracy: float, asked: int) -> float:
    """Return where an accuracy stands: by the logarithm of its errors, so that good methods stand apart."""
    return -math.log(max(100 - accuracy, 50 / asked))


def inside(tick: float, accuracies: list[float]) -> bool:
    """Return whether a tick of the axis is within reach of the accuracies."""
    return (100 - max(accuracies)) / 1.2 <= 100 - tick <= 1.2 * (100 - min(accuracies))


def main() -> None:
    """Print the table of a file of records, and draw its plot if asked to."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("records", type=Path, help="what peers.py --json wrote")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="draw FILE.png")
    args = parser.parse_args()
    records = json.loads(args.records.read_text())
    print("\n".join(lines_of(records)))
    if args.plot is not None:
        draw(records, args.plot)


if __name__ == "__main__":
    main()
