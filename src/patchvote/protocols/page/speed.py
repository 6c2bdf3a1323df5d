"""NBNL against sNBNL, as in the paper: accuracy, seconds of training and testing, speed-up, and the sign test."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np

from ..protocol import Protocol
from ..results import Results, Run
from .comparison import Comparison, common_cells, compare
from .summary import NETWORK
from .tables import RECIPES, markdown

_TIMES = ("accuracy", "train_seconds", "test_seconds")


def speed(protocols: Sequence[Protocol], results: Results) -> str:
    """Compare NBNL and sNBNL on the cells that both have, of the paper's pairs where there are domains."""
    lines, notes = [], []
    for protocol in protocols:
        if protocol.paper_times:
            nbnl, snbnl = protocol.paper_times["nbnl"], protocol.paper_times["snbnl"]
            lines.append(_line(f"{protocol.title}, paper", nbnl, snbnl))
        for setting, recipe in itertools.product(protocol.settings, RECIPES):
            name = protocol.title + (f", {setting.name}" if len(protocol.settings) > 1 else "")
            nbnl_run, snbnl_run = (
                Run(protocol.name, setting.name, voter, recipe, NETWORK) for voter in ("nbnl", "snbnl")
            )
            cells = common_cells(results, nbnl_run, snbnl_run, pairs=setting.main)
            found = compare(results, snbnl_run, nbnl_run, setting.main)
            if found is None:
                continue
            means = [[float(np.mean([cell[key] for cell in one.values()])) for key in _TIMES] for one in cells]
            lines.append(_line(f"{name}, ours, {recipe}", *means))
            notes.append(f"- {name}, {recipe}: {_sentence(found)}")
    header = ["", *(f"{voter} {what}" for what in ("accuracy", "train (s)", "test (s)") for voter in ("NBNL", "sNBNL"))]
    if not lines:
        return ""
    return "\n\n".join([markdown([*header, "speed-up of training", "of testing"], lines), "\n".join(notes)])


def _sentence(found: Comparison) -> str:
    """Say in words how sNBNL compares with NBNL."""
    error = f" ± {found.error:.2f}" if found.splits > 1 else ""
    splits = f"standard error over {found.splits} splits" if found.splits > 1 else "one split"
    verdict = "they differ" if found.p < 0.05 else "no difference is shown"
    return (
        f"sNBNL minus NBNL is {found.difference:+.2f}{error} points ({splits}). Of the photos that one of the two "
        f"classifies correctly in more splits than the other, each counted once, NBNL has {found.second} and "
        f"sNBNL {found.first}; sign test p = {found.p:.3g}: at p < 0.05 {verdict}."
    )


def _line(name: str, nbnl: Sequence[float], snbnl: Sequence[float]) -> list[str]:
    times = [f"{value:.2f}" if k == 0 else f"{value:.1f}" for k in range(3) for value in (nbnl[k], snbnl[k])]
    return [name, *times, f"{nbnl[1] / snbnl[1]:.1f} times", f"{nbnl[2] / snbnl[2]:.1f} times"]
