"""Table of the benchmark of networks, as Markdown, from its records."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from patchvote.utils.files import write_file

FILE = "cells.jsonl"
NAME = "measured networks"  # of the place on the page
COST = "cost"  # the method of records that hold the cost of a network
Record = dict[str, Any]

TITLES = {
    "lite0": "EfficientNet-Lite0",
    "lite2": "EfficientNet-Lite2",
    "vit-last": "ViT-Tiny, tokens of the last block",
    "vit-block9": "ViT-Tiny, tokens of block 9",
    "vit-class": "ViT-Tiny, class token",
    "vit-last-class": "ViT-Tiny, last block and class token",
    "vit-last-block9": "ViT-Tiny, last block and block 9",
    "lite0+lite2": "Lite0 + Lite2",
    "lite0+vit": "Lite0 + ViT-Tiny (last block and class token)",
    "lite2+vit": "Lite2 + ViT-Tiny (last block and class token)",
}
SETS = {"scene15": "Scene-15", "office": "Office", "photos": "photos"}
METHODS = {
    "default": "default",
    "bag-svm": "bag-svm",
    "pooled-svm(scales=each)": "pooled",
    "adapted": "bag-svm, adapted",
    "adapted(scales=each)": "pooled, adapted",
}
KEY = ("set", "pair", "split", "train", "test", "network", "method")  # what makes two records the same cell


def read_records(folder: Path) -> list[Record]:
    """Return the records in a folder, if there are any."""
    path = folder / FILE
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []


def write_records(folder: Path, records: Iterable[Record]) -> None:
    """Write all records, in order; the file is complete at any time."""
    folder.mkdir(parents=True, exist_ok=True)
    write_file(folder / FILE, [f"{json.dumps(record)}\n".encode() for record in records])


def key_of(record: Record) -> tuple[Any, ...]:
    """Return what identifies the cell of a record."""
    return tuple(record.get(name) for name in KEY)


def accuracy_of(records: Iterable[Record], set_name: str, network: str, method: str) -> float | None:
    """Return the mean accuracy in percent: over the splits of every pair of domains first, then over pairs."""
    by_pair: dict[str | None, list[float]] = {}
    for record in records:
        if (record["set"], record["network"], record["method"]) == (set_name, network, method):
            by_pair.setdefault(record["pair"], []).append(record["accuracy"])
    return 100 * float(np.mean([np.mean(values) for values in by_pair.values()])) if by_pair else None


def lines_of(records: Sequence[Record]) -> list[str]:
    """Return the lines of the page: the table, and how many photos and splits it is made of."""
    cells = [record for record in records if record["method"] != COST]
    if not cells:
        return ["Not measured yet: `python benchmarks/networks.py --results results/networks` makes the records."]
    columns = [
        (name, method)
        for name in SETS
        for method in METHODS
        if any((cell["set"], cell["method"]) == (name, method) for cell in cells)
    ]
    header = ["network", "features", "ms per photo", *(f"{SETS[name]}: {METHODS[method]}" for name, method in columns)]
    lines = [_row(header), _row(["---"] * len(header))]
    costs = {record["network"]: record for record in records if record["method"] == COST}
    for network, title in TITLES.items():
        found = [accuracy_of(cells, name, network, method) for name, method in columns]
        if any(value is not None for value in found):
            cost = costs.get(network, {})
            milliseconds = f"{1000 * cost['cpu_seconds']:.0f}" if cost else ""
            values = ["" if value is None else f"{value:.1f}" for value in found]
            lines.append(_row([title, str(cost.get("features", "")), milliseconds, *values]))
    return [*lines, "", *_sizes(cells)]


def _sizes(cells: Sequence[Record]) -> list[str]:
    """Say how many photos, splits and pairs every set has."""
    sentences = []
    for name in SETS:
        own = [cell for cell in cells if cell["set"] == name]
        if own:
            pairs = {cell["pair"] for cell in own if cell["pair"]}
            splits = len({cell["split"] for cell in own})
            tested = sorted({cell["test_photos"] for cell in own})
            photos = f"{tested[0]:,}" if len(tested) == 1 else f"{tested[0]:,} to {tested[-1]:,}"
            domains = f", {len(pairs)} pair{'s' if len(pairs) > 1 else ''} of domains" if pairs else ""
            sentences.append(f"{SETS[name]}: {splits} split{'s' if splits > 1 else ''}{domains}, {photos} test photos.")
    commits = ", ".join(sorted({str(cell.get("commit")) for cell in cells}))
    return [" ".join([*sentences, f"Commit {commits}."])]


def _row(values: Sequence[str]) -> str:
    return f"| {' | '.join(values)} |"
