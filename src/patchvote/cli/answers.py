"""Answers as text for programs: rows of CSV, lines of JSON. `answer_table` has the table for people.

JSON holds names exactly. CSV is read by spreadsheets and shown by terminals (`utils.terminal`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from ..models.answers import Answer, row
from ..models.scores import Scores
from ..utils.terminal import csv_of, printable_json

SHOWN = 0.005  # probability from which on a table of all classes lists a class: less would be shown as 0 %


@dataclasses.dataclass(frozen=True)
class Wanted:
    """Which probabilities are written besides those of the likeliest class and the runner-up.

    Parameters
    ----------
    classes : tuple of str
        Classes of the model.
    top : int
        Number of likeliest classes.
    every : bool
        Whether the probability of every class is written.
    """

    classes: tuple[str, ...] = ()
    top: int = 0
    every: bool = False

    def cells(self, answer: Answer) -> dict[str, Any]:
        """Return the further columns of a row: the same for every answer, empty where a photo could not be read."""
        columns: dict[str, Any] = {}
        likeliest = answer.top(self.top) if self.top else []
        for rank in range(min(self.top, len(self.classes))):
            label, probability = likeliest[rank] if likeliest else ("", None)
            columns |= {f"top_{rank + 1}": label, f"top_{rank + 1}_probability": _exact(probability)}
        if self.every:
            values = [None] * len(self.classes) if answer.probabilities is None else answer.probabilities.tolist()
            columns |= {f"probability of {label}": _exact(p) for label, p in zip(self.classes, values, strict=True)}
        return columns

    def plain(self, answer: Answer) -> dict[str, Any]:
        """Return the further entries of a JSON object."""
        entries: dict[str, Any] = {}
        if self.top:
            entries["top"] = [{"label": label, "probability": _exact(p)} for label, p in answer.top(self.top)]
        if self.every:
            entries["probabilities"] = {label: _exact(p) for label, p in answer.top()}
        return entries

    @property
    def below(self) -> bool:
        """Whether a table lists classes below the answer, on a line each."""
        return self.every or self.top > 1

    def shown(self, answer: Answer) -> list[tuple[str, float]]:
        """Return the classes that a table lists below the answer: all that are wanted, except the label."""
        if not self.below:
            return []
        ranked = enumerate(answer.top(None if self.every else self.top), 1)
        listed = [(label, p) for rank, (label, p) in ranked if p >= SHOWN or rank <= max(self.top, 1)]
        return listed if answer.rejected else listed[1:]

    def left_out(self, answer: Answer) -> int:
        """Return how many of all classes a table does not list, since all of them are hardly likely."""
        return len(answer.top()) - len(self.shown(answer)) - (not answer.rejected) if self.every else 0


def _exact(probability: float | None) -> float | None:
    return None if probability is None else round(probability, 6)


LIKELIEST = Wanted()


def answers_of(scores: Scores) -> Iterator[Answer]:
    """Yield the answers that were compared with labels."""
    rejected = scores.rejected.tolist()
    familiarity = [None] * len(scores) if scores.familiarity is None else scores.familiarity.tolist()
    for index, name in enumerate(scores.names):
        yield Answer.of(name, scores.classes, scores.probability[index], rejected[index], familiarity[index])


def json_lines(
    answers: Iterable[Answer], wanted: Wanted = LIKELIEST, more: Callable[[], Mapping[str, Any]] = dict
) -> Iterator[str]:
    """Yield one JSON object per answer, extended by `more()`, which is called after the answer was computed."""
    for answer in answers:
        yield printable_json({**row(answer), **wanted.plain(answer), **more()})


def csv_lines(answers: Iterable[Answer], wanted: Wanted = LIKELIEST) -> Iterator[str]:
    """Yield a header and one row per answer, each on one line."""
    return csv_of({**row(answer), **wanted.cells(answer)} for answer in answers)
