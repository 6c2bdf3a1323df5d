"""Tables of the benchmark of rejection, as Markdown, from the records of its trials."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

FILE = "trials.jsonl"
KINDS = ("near", "camera", "far", "very far")
SCORES = {
    "probability": "top probability",
    "logit": "largest score before the softmax",
    "energy": "energy",
    "margin": "margin",
    "neighbour": "nearest neighbour",
    "class mean": "nearest class mean",
    "familiarity": "**familiarity**",
}
BEFORE = "before"  # the rule of earlier versions
NAMES = {**SCORES, BEFORE: "as before: probability"}
Trial = dict[str, Any]


def read_trials(path: Path) -> list[Trial]:
    """Return the records of a file, if there are any."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def mean_of(trials: Iterable[Trial], score: str, kind: str, figure: str) -> float:
    """Return the mean of a figure: over the trials of a source and number of photos first, then over these."""
    by_source: dict[tuple[str, int], list[float]] = {}
    for trial in trials:
        found = trial["scores"][score].get(kind, {}).get(figure)
        if found is not None:
            by_source.setdefault((trial["source"], trial["per_class"]), []).append(found)
    return float(np.mean([np.mean(values) for values in by_source.values()])) if by_source else float("nan")


def cell(value: float, form: str = ".1f") -> str:
    """Return a figure as text; a dash if there is none."""
    return "-" if np.isnan(value) else f"{value:{form}}"


def auroc_table(trials: list[Trial]) -> str:
    """Return the AUROC of every score on every kind of strangers, by voter."""
    lines = ["| voter | trials | score | near | other camera | far | very far |", "|---|---|---|---|---|---|---|"]
    for voter in dict.fromkeys(trial["voter"] for trial in trials):
        own = [trial for trial in trials if trial["voter"] == voter]
        for score, name in SCORES.items():
            cells = [cell(mean_of(own, score, kind, "auroc"), ".3f") for kind in KINDS]
            lines.append(f"| {voter} | {len(own)} | {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def rejection_table(trials: list[Trial]) -> str:
    """Return the shares of photos that are rejected, by voter: known ones, those of another camera, and strangers."""
    lines = [
        "| voter | score | known | known, other camera | near | other camera | far | very far |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for voter in dict.fromkeys(trial["voter"] for trial in trials):
        own = [trial for trial in trials if trial["voter"] == voter]
        for score in (BEFORE, "logit", "neighbour", "familiarity"):
            kinds = ("known", "camera known", *KINDS)
            cells = [cell(100 * mean_of(own, score, kind, "rejected")) for kind in kinds]
            lines.append(f"| {voter} | {NAMES[score]} | {' | '.join(cells)} |")
    return "\n".join(lines)


def source_table(trials: list[Trial], voter: str) -> str:
    """Return the figures of one voter by source and number of photos: near strangers and other cameras."""
    lines = [
        "| source | photos per class | score | AUROC near | near rejected | other camera, strangers rejected | other "
        "camera, known rejected | known rejected |",
        "|---|---|---|---|---|---|---|---|",
    ]
    own = [trial for trial in trials if trial["voter"] == voter]
    for source, photos in dict.fromkeys((trial["source"], trial["per_class"]) for trial in own):
        some = [trial for trial in own if (trial["source"], trial["per_class"]) == (source, photos)]
        for score in (BEFORE, "logit", "neighbour", "class mean", "familiarity"):
            figures = [
                100 * mean_of(some, score, kind, "rejected") for kind in ("near", "camera", "camera known", "known")
            ]
            cells = [cell(one) for one in figures]
            auroc = f"{mean_of(some, score, 'near', 'auroc'):.3f}"
            lines.append(f"| {source} | {photos} | {NAMES[score]} | {auroc} | {' | '.join(cells)} |")
    return "\n".join(lines)
