"""Cells of results, and a process that adds and folds them: what a started process runs, it imports by name."""

from __future__ import annotations

from pathlib import Path

from patchvote.protocols.draws import Draw
from patchvote.protocols.results import Results, Run
from patchvote.protocols.splits import Split

RUN = Run("p", "random", "nbnn", "dense", "efficientnet-lite0")
MADE_WITH = {"settings": {"q": 2.0}, "drawn": {"seed": 0}}


def cell(split: int, pair: str | None = None, **more: object) -> dict[str, object]:
    return {"pair": pair, "split": split, "hits": "10", "accuracy": 50.0, "versions": {"numpy": "2"}, **more}


def add_and_fold(folder: Path, number: int) -> None:
    results = Results(folder)
    results.keep_draws("p", {Draw("random", None, number): Split([f"a{number}"], ["b"])})
    for split in range(1, 16):
        results.add(RUN, MADE_WITH, cell(split, pair=f"{number}-x"))
        if split % 4 == number:
            results.fold("p")
