"""The records of `peers.py` as a table, a sentence on where a peer is better, and a plot.

Everything is made from the records alone, so that a page can be compared with them (tests/test_peers_table.py).

    python benchmarks/peers_table.py results/bench/peers.json          # prints what README.md has between its marks
    python benchmarks/peers_table.py peers.json --plot peers           # draws peers.png and peers.svg
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Callable
from pathlib import Path

from common import Record, save_plot

NAME = "peers"  # of the marks around the table
OURS = "patchvote"  # the default, with which every other method is compared
CHANCE = 0.05  # differences with a larger p are called chance
COMMAND = "make bench PHOTOS=scene15"

# By column: unit, header, how a cell is written. A record's name is the column's, a comma, and the method's.
Cell = Callable[[float], str]
COLUMNS: dict[str, tuple[str, str, Cell]] = {
    "fit seconds": ("s", "to learn", lambda value: f"{value:.0f} s"),
    "photo seconds": ("s/photo", "per photo", lambda value: f"{1000 * value:.0f} ms"),
    "gigabytes": ("GB", "peak memory", lambda value: f"{value:.2f} GB"),
    "model megabytes": ("MB", "model", lambda value: f"{value:.1f} MB"),
    "lines": ("lines", "lines", lambda value: f"{value:.0f}"),
}
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
    return [*lines, "", legend(), "", better(methods)]


def against(figures: dict[str, float]) -> str:
    """Return the comparison with our default, photo by photo."""
    if "p" not in figures:
        return ""
    return f"{figures['won']:.0f} : {figures['lost']:.0f} ({probability(figures['p'])})"


def probability(p: float) -> str:
    """Write the p of a sign test."""
    return "< 0.001" if p < 0.001 else f"{p:.3f}" if p < 0.1 else f"{p:.2f}"


def legend() -> str:
    """Return what the columns mean, and the command."""
    return (
        f"`{COMMAND}` measures all methods in one run, one after the other, each in processes of its own that find "
        "nothing in a cache. ± is the standard error that so many test photos leave. Won are photos that this method "
        "alone has right, lost those that the default of patchvote alone has right, with the p of a sign test. Seconds "
        "include starting the program and reading the photos; memory is that of the larger process; lines are those "
        "that a user writes."
    )


def better(methods: Methods) -> str:
    """Say which methods are ahead of our default, by column; figures that are written alike are level."""
    ours, others = methods[OURS], {name: one for name, one in methods.items() if name != OURS}
    ahead = {name: one for name, one in others.items() if one["accuracy"] > ours["accuracy"]}
    sure = [name for name, one in ahead.items() if one["p"] < CHANCE]
    maybe = [f"{name} (p = {probability(one['p'])})" for name, one in ahead.items() if one["p"] >= CHANCE]
    words = ["in accuracy: " + ("; ".join(sure) or "none beyond chance")]
    if maybe:
        words[0] += ", and ahead by no more than chance explains: " + "; ".join(maybe)
    titles = ("in time to learn", "in time per photo", "in peak memory", "in the model's size", "in lines to write")
    for title, (column, (_, _, write)) in zip(titles, COLUMNS.items(), strict=True):
        found = [
            f"{name} ({write(one[column])})"
            for name, one in sorted(others.items(), key=lambda item: item[1][column])
            if one[column] < ours[column] and write(one[column]) != write(ours[column])
        ]
        words.append(f"{title}: {'; '.join(found) or 'none'}")
    return "\n".join(["Better than the default of patchvote are, in this run,", "", *(f"- {one}." for one in words)])


# --- the plot ---------------------------------------------------------------------------------------------------------


def draw(records: list[Record], file: Path) -> None:
    """Draw accuracy against seconds per photo and against seconds to learn, with the names between both panels."""
    from matplotlib.figure import Figure
    from matplotlib.patches import ConnectionPatch

    methods, (asked, _) = methods_of(records), count_of(records, "photos asked")
    names = sorted(methods, key=lambda name: -methods[name]["accuracy"])
    figure = Figure(figsize=(12, 1.6 + 0.32 * len(names)), layout="constrained")
    left, middle, right = figure.subplots(1, 3, width_ratios=(1, 1.15, 1))
    middle.set(xlim=(0, 1), ylim=(len(names) - 0.5, -0.5))
    middle.axis("off")
    for panel, column, title in (
        (left, "photo seconds", "seconds per photo"),
        (right, "fit seconds", "seconds to learn"),
    ):
        panel.set(xscale="log", xlabel=title, ylabel="accuracy, %")
        for row, name in enumerate(names):
            x, y = methods[name][column], height(methods[name]["accuracy"], asked)
            colour = "C3" if name == OURS else "C0" if name.startswith(OURS) else "0.25"
            panel.plot(x, y, "o", color=colour, markersize=6, zorder=3)
            edge = (0.0, row) if panel is left else (1.0, row)
            line = ConnectionPatch((x, y), edge, "data", "data", axesA=panel, axesB=middle, color=colour)
            line.set(linewidth=0.6, alpha=0.5)
            line.set_in_layout(False)
            figure.add_artist(line)
        ticks = [tick for tick in (10, 20, 40, 60, 70, 80, 85, 90, 95, 98, 99, 100) if inside(tick, methods)]
        panel.set_yticks([height(tick, asked) for tick in ticks], [str(tick) for tick in ticks])
        panel.set_yticks([], minor=True)
        panel.grid(alpha=0.3)
    right.yaxis.tick_right()
    right.yaxis.set_label_position("right")
    for row, name in enumerate(names):
        weight = "bold" if name == OURS else "normal"
        middle.text(0.5, row, name, ha="center", va="center", fontsize=8, weight=weight)
    save_plot(figure, file)


def height(accuracy: float, asked: int) -> float:
    """Return where an accuracy stands: by the logarithm of its errors, so that good methods stand apart."""
    return -math.log(max(100 - accuracy, 50 / asked))


def inside(tick: float, methods: Methods) -> bool:
    """Return whether a tick of the axis is within reach of the methods' accuracies."""
    errors = [100 - one["accuracy"] for one in methods.values()]
    return min(errors) / 1.5 <= 100 - tick <= 1.5 * max(errors)


def main() -> None:
    """Print the table of a file of records, and draw its plot if asked to."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("records", type=Path, help="what peers.py --json wrote")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="draw FILE.png and FILE.svg")
    args = parser.parse_args()
    records = json.loads(args.records.read_text())
    print("\n".join(lines_of(records)))
    if args.plot is not None:
        draw(records, args.plot)


if __name__ == "__main__":
    main()
