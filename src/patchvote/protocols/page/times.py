"""Accuracy over training time: NBNL and sNBNL with budgets from short to long, and the speed-up at equal accuracy."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from ..protocol import Protocol
from ..results import Results
from ..voters import parse_voter, title
from .tables import markdown

FIRST, SECOND = "snbnl", "nbnl"  # kinds that are compared


@dataclasses.dataclass(frozen=True)
class Budget:
    """A voter with so many passes or rounds.

    Parameters
    ----------
    kind : str
        Kind of the voter.
    rounds : int
        Passes of sNBNL, or rounds of NBNL.
    splits : int
        Number of splits.
    seconds : float
        Mean seconds of training.
    accuracy, error : float
        Mean accuracy over splits in per cent, and its standard error; 0 for a single split, where it is unknown.
    """

    kind: str
    rounds: int
    splits: int
    seconds: float
    accuracy: float
    error: float


def budgets(protocol: Protocol, results: Results) -> list[Budget]:
    """Return the measured budgets, by voter and in the order of their seconds.

    Only splits that every one of them has are counted: a single further split would shift its mean.
    """
    runs = [(parse_voter(run.voter), kept["cells"]) for run, kept in results.all(protocol.name)]
    runs = [((kind, settings), cells) for (kind, settings), cells in runs if "max_iter" in settings]
    if not runs:
        return []
    common = set.intersection(*({cell["split"] for cell in cells} for _, cells in runs))
    found = []
    for (kind, settings), cells in runs:
        chosen = [cell for cell in cells if cell["split"] in common]
        if chosen:
            accuracy = [cell["accuracy"] for cell in chosen]
            error = float(np.std(accuracy, ddof=1) / np.sqrt(len(accuracy))) if len(accuracy) > 1 else 0.0
            seconds = float(np.mean([cell["train_seconds"] for cell in chosen]))
            found.append(
                Budget(kind, settings["max_iter"], len(chosen), seconds, float(np.mean(accuracy)), error),
            )
    return sorted(found, key=lambda budget: (budget.kind != FIRST, budget.seconds))


def table(found: Sequence[Budget]) -> str:
    """Return the budgets as a table."""
    return markdown(
        ["voter", "passes or rounds", "splits", "training (s)", "accuracy (± standard error)"],
        [
            [
                title(one.kind),
                str(one.rounds),
                str(one.splits),
                f"{one.seconds:.1f}",
                f"{one.accuracy:.2f}" + (f" ± {one.error:.2f}" if one.splits > 1 else ""),
            ]
            for one in found
        ],
    )


def sentence(found: Sequence[Budget]) -> str:
    """Say in words how long each of the two takes to reach sNBNL's best accuracy, within its standard error.

    A single split has no standard error: the accuracy itself must be reached, and the sentence says so. Nothing where
    one of them has no results.
    """
    ours = [one for one in found if one.kind == FIRST]
    theirs = [one for one in found if one.kind == SECOND]
    if not ours or not theirs:
        return ""
    words = []
    if _leads(theirs, ours):
        words.append("NBNL is ahead at every budget: whatever time sNBNL takes, NBNL is as accurate in no more time.")
    elif _leads(ours, theirs):
        words.append("NBNL is behind at every budget: whatever time it takes, sNBNL is as accurate in no more time.")
    best = max(ours, key=lambda one: (one.accuracy, -one.seconds))
    level = best.accuracy - best.error
    reached = [_first(one, level) for one in (ours, theirs)]
    single = best.splits == 1
    figure = f"{best.accuracy:.2f} % on one split" if single else f"{best.accuracy:.2f} ± {best.error:.2f} %"
    goal = f"sNBNL's best accuracy, {figure}"
    if reached[0] is None or reached[1] is None:
        longest = max(one.seconds for one in theirs)
        words.append(f"NBNL does not reach {goal} in up to {longest:.1f} s of training.")
        return " ".join(words)
    ratio = reached[1].seconds / reached[0].seconds
    faster = f"sNBNL is {ratio:.1f} times" if ratio >= 1 else f"NBNL is {1 / ratio:.1f} times"
    words.append(
        f"To reach {goal}{'' if single else ', within that standard error'}, sNBNL takes {reached[0].seconds:.1f} s of "
        f"training (passes: {reached[0].rounds}) and NBNL {reached[1].seconds:.1f} s (rounds: {reached[1].rounds}): at "
        f"equal accuracy {faster} as fast."
    )
    if single:
        words.append("One split has no standard error, so that no allowance is made for chance.")
    return " ".join(words)


def _first(found: Sequence[Budget], level: float) -> Budget | None:
    """Return the shortest training that reaches an accuracy."""
    return min((one for one in found if one.accuracy >= level), key=lambda one: one.seconds, default=None)


def _leads(found: Sequence[Budget], others: Sequence[Budget]) -> bool:
    """Whether for every other budget there is one that takes no longer and is at least as accurate."""
    return all(
        any(one.seconds <= other.seconds and one.accuracy >= other.accuracy for one in found) for other in others
    )
