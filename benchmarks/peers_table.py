"""The records of `peers.py` as a table in Markdown.

python benchmarks/peers_table.py results/bench/peers.json     # what docs/peers.md has between its marks
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Callable
from pathlib import Path

from common import Record

OURS = "patchvote"  # the default, with which every other method is compared

# By column: unit, header, how a cell is written. A record's name is the column's, a comma, and the method's.
COLUMNS: dict[str, tuple[str, str, Callable[[float], str]]] = {
    "fit seconds": ("s", "to learn", lambda value: f"{value:.0f} s"),
    "photo seconds": ("s/photo", "per photo", lambda value: f"{1000 * value:.0f} ms"),
    "gigabytes": ("GB", "peak memory", lambda value: f"{value:.2f} GB"),
    "lines": ("lines", "lines", lambda value: f"{value:.0f}"),
}


def rows_of(records: list[Record]) -> dict[str, list[str]]:
    """Return the cells of each method, in the order of the records."""
    values = {str(one["name"]): float(one["value"]) for one in records}  # type: ignore[arg-type]
    asked = next(value for name, value in values.items() if name.startswith("photos asked"))
    rows = {}
    for key, accuracy in values.items():
        column, _, method = key.partition(", ")
        if column == "did not run":
            rows[method] = [column, *[""] * (len(COLUMNS) + 1)]
        if column == "accuracy":
            error = math.sqrt(accuracy * (100 - accuracy) / asked)
            won, lost, p = (values.get(f"{what}, {method}") for what in ("won", "lost", "p"))
            compared = "" if p is None else f"{won:.0f}:{lost:.0f} ({p:.2g})"
            cells = [write(values[f"{what}, {method}"]) for what, (_, _, write) in COLUMNS.items()]
            rows[method] = [f"{accuracy:.1f} ± {error:.1f}", compared, *cells]
    return rows


def table(records: list[Record]) -> str:
    """Return the table."""
    header = ["method", "accuracy, %", "won:lost (p)", *(title for _, title, _ in COLUMNS.values())]
    lines = [f"| {' | '.join(header)} |", "|---|" + "--:|" * (len(header) - 1)]
    return "\n".join([*lines, *(f"| {name} | {' | '.join(cells)} |" for name, cells in rows_of(records).items())])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("records", type=Path, help="what peers.py --json wrote")
    print(table(json.loads(parser.parse_args().records.read_text())))
