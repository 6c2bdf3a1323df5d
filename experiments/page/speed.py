"""NBNL against sNBNL, as in the paper: accuracy and seconds side by side, and accuracy over the time of training."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence

import numpy as np

from ..protocol import Protocol
from ..results import Results, Run
from ..voters import parse_voter, title
from .comparison import Comparison, common_cells, compare
from .tables import NETWORK, RECIPES, markdown

_TIMES = ("accuracy", "train_seconds", "test_seconds")


def speed(protocols: Sequence[Protocol], results: Results) -> str:
    """Compare NBNL and sNBNL on the cells that both have, of the paper's pairs where there are domains."""
    lines, notes = [], []
    for protocol in protocols:
        if protocol.paper_times:
            lines.append(_line(f"{protocol.title}, paper", *(protocol.paper_times[kind] for kind in ("nbnl", "snbnl"))))
        for setting, recipe in itertools.product(protocol.settings, RECIPES):
            name = protocol.title + (f", {setting.name}" if len(protocol.settings) > 1 else "")
            runs = [Run(protocol.name, setting.name, voter, recipe, NETWORK) for voter in ("nbnl", "snbnl")]
            found = compare(results, runs[1], runs[0], setting.main)
            if found is not None:
                cells = common_cells(results, *runs, pairs=setting.main)
                means = [[float(np.mean([cell[key] for cell in one.values()])) for key in _TIMES] for one in cells]
                lines.append(_line(f"{name}, ours, {recipe}", *means))
                notes.append(f"- {name}, {recipe}: {_words(found)}")
    if not lines:
        return ""
    header = ["", *(f"{voter} {what}" for what in ("accuracy", "train (s)", "test (s)") for voter in ("NBNL", "sNBNL"))]
    return "\n\n".join([markdown([*header, "speed-up of training", "of testing"], lines), "\n".join(notes)])


def _words(found: Comparison) -> str:
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


# --- accuracy over the time of training -------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Budget:
    """A voter with so many passes (sNBNL) or rounds (NBNL)."""

    kind: str
    rounds: int
    splits: int
    seconds: float  # mean of training
    accuracy: float
    error: float  # standard error of the accuracy; 0 for a single split, where it is unknown


def budgets(protocol: Protocol, results: Results) -> list[Budget]:
    """Return the measured budgets, by voter and seconds, over the splits that all of them have."""
    runs = [(parse_voter(run.voter), stored["cells"]) for run, stored in results.all(protocol.name)]
    runs = [((kind, settings), cells) for (kind, settings), cells in runs if "max_iter" in settings]
    common = set.intersection(*({cell["split"] for cell in cells} for _, cells in runs)) if runs else set()
    found = []
    for (kind, settings), cells in runs:
        chosen = [cell for cell in cells if cell["split"] in common]
        if chosen:
            accuracy = [cell["accuracy"] for cell in chosen]
            error = float(np.std(accuracy, ddof=1) / np.sqrt(len(accuracy))) if len(accuracy) > 1 else 0.0
            seconds = float(np.mean([cell["train_seconds"] for cell in chosen]))
            found.append(Budget(kind, settings["max_iter"], len(chosen), seconds, float(np.mean(accuracy)), error))
    return sorted(found, key=lambda budget: (budget.kind != "snbnl", budget.seconds))


def budget_table(found: Sequence[Budget]) -> str:
    """Return the budgets as a table."""
    rows = []
    for one in found:
        accuracy = f"{one.accuracy:.2f}" + (f" ± {one.error:.2f}" if one.splits > 1 else "")
        rows.append([title(one.kind), str(one.rounds), str(one.splits), f"{one.seconds:.1f}", accuracy])
    header = ["voter", "passes or rounds", "splits", "training (s)", "accuracy (± standard error)"]
    return markdown(header, rows)


def sentence(found: Sequence[Budget]) -> str:
    """Say in words how long each of the two takes to reach sNBNL's best accuracy, within its standard error.

    A single split has no standard error: the accuracy itself must be reached, and the sentence says so.
    """
    ours, theirs = ([one for one in found if one.kind == kind] for kind in ("snbnl", "nbnl"))
    if not ours or not theirs:
        return ""
    words = []
    if _leads(theirs, ours):
        words.append("NBNL is ahead at every budget: whatever time sNBNL takes, NBNL is as accurate in no more time.")
    elif _leads(ours, theirs):
        words.append("NBNL is behind at every budget: whatever time it takes, sNBNL is as accurate in no more time.")
    best = max(ours, key=lambda one: (one.accuracy, -one.seconds))
    single = best.splits == 1
    figure = f"{best.accuracy:.2f} % on one split" if single else f"{best.accuracy:.2f} ± {best.error:.2f} %"
    goal = f"sNBNL's best accuracy, {figure}"
    reaching = [[one for one in some if one.accuracy >= best.accuracy - best.error] for some in (ours, theirs)]
    if not all(reaching):
        longest = max(one.seconds for one in theirs)
        words.append(f"NBNL does not reach {goal} in up to {longest:.1f} s of training.")
        return " ".join(words)
    snbnl, nbnl = (min(some, key=lambda one: one.seconds) for some in reaching)
    ratio = nbnl.seconds / snbnl.seconds
    faster = f"sNBNL is {ratio:.1f} times" if ratio >= 1 else f"NBNL is {1 / ratio:.1f} times"
    words.append(
        f"To reach {goal}{'' if single else ', within that standard error'}, sNBNL takes {snbnl.seconds:.1f} s of "
        f"training (passes: {snbnl.rounds}) and NBNL {nbnl.seconds:.1f} s (rounds: {nbnl.rounds}): at "
        f"equal accuracy {faster} as fast."
    )
    if single:
        words.append("One split has no standard error, so that no allowance is made for chance.")
    return " ".join(words)


def _leads(found: Sequence[Budget], others: Sequence[Budget]) -> bool:
    """Whether for every other budget there is one that takes no longer and is at least as accurate."""
    return all(
        any(one.seconds <= other.seconds and one.accuracy >= other.accuracy for one in found) for other in others
    )
