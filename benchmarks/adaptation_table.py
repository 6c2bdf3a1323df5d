"""Table of adaptation trials: the gain of adapting where it helps, and its effect where it should be refused.

`benchmarks/adaptation.py` runs the trials and writes one line of JSON per trial.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from common import ROOT  # noqa: F401 - makes `experiments` importable
from experiments.page.tables import markdown

Trial = dict[str, Any]

FILE = "trials.jsonl"
TITLES = {
    "pairs": "Another camera: the paper's pairs",
    "other pairs": "Another camera: the other pairs",
    "styles": "Drawings made of photos by filters",
    "strangers": "Strangers alone",
    "mixtures": "Strangers among photos of the classes",
    "few classes": "Few classes, or unequal shares",
    "few photos": "Few photos",
}
_AVERAGED = (
    "photos",
    "plain",
    "insisting",
    "adapted",
    "rejected_before",
    "rejected_after",
    "strangers_before",
    "strangers_after",
    "error_before",
    "error_after",
    "confidence",
)


def read_trials(folder: Path) -> list[Trial]:
    """Read the trials in a folder; none where there is no such file."""
    path = folder / FILE
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []


def summary(trials: Iterable[Trial]) -> list[Trial]:
    """Return one row per name, in order: the means over its trials, their number, and how many were refused.

    Examples
    --------
    >>> trial = dict.fromkeys(_AVERAGED) | {"group": "pairs", "name": "a-b", "adapted": 90.0, "refused": False}
    >>> (row,) = summary([trial, trial | {"adapted": 80.0, "refused": True}])
    >>> row["adapted"], row["plain"], row["trials"], row["refused"]
    (85.0, None, 2, 1)
    """
    by_name: dict[tuple[str, str], list[Trial]] = {}
    for trial in trials:
        by_name.setdefault((trial["group"], trial["name"]), []).append(trial)
    return [
        {"group": group, "name": name, "trials": len(same), "refused": sum(trial["refused"] for trial in same)}
        | {key: _mean([trial[key] for trial in same]) for key in _AVERAGED}
        for (group, name), same in by_name.items()
    ]


def table(trials: Sequence[Trial]) -> str:
    """Return the table of adaptation as Markdown, one part per group."""
    parts, rows = [], summary(trials)
    header = ["target", "trials", "plain", "without safeguards", "adapted", "refused", "rejected before", "after"]
    header += ["strangers rejected before", "after", "calibration error before", "after"]
    for group, title in TITLES.items():
        group_rows = [row for row in rows if row["group"] == group]
        if not group_rows:
            continue
        lines = [_line(row["name"], row) for row in group_rows]
        if len(group_rows) > 1 and group in ("pairs", "other pairs"):
            means = {key: _mean([row[key] for row in group_rows]) for key in _AVERAGED}
            counts = {key: sum(row[key] for row in group_rows) for key in ("trials", "refused")}
            lines.append(_line("**mean**", means | counts))
        parts += [f"**{title}**", markdown(header, lines)]
    return "\n\n".join(parts)


def _line(name: str, row: Trial) -> list[str]:
    cells = [name, str(row["trials"]), *(_number(row[key]) for key in ("plain", "insisting", "adapted"))]
    cells.append(f"{row['refused']} of {row['trials']}" if row["refused"] else "")
    keys = ("rejected_before", "rejected_after", "strangers_before", "strangers_after", "error_before", "error_after")
    return [*cells, *(_number(row[key], 1) for key in keys)]


def _mean(values: Sequence[float | None]) -> float | None:
    numbers = [value for value in values if value is not None]
    return float(np.mean(numbers)) if numbers else None


def _number(value: float | None, digits: int = 2) -> str:
    return "" if value is None else f"{value:.{digits}f}"
