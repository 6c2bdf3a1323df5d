"""Answers as text: rows of CSV, lines of JSON, a table for people.

JSON holds names exactly. CSV is read by spreadsheets and shown by terminals (`utils.csv_text`). The table shows names
as a terminal can show them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from ..models.answers import Answer
from ..models.rows import row
from ..models.scores import Scores
from ..utils.csv_text import csv_of
from ..utils.terminal import printable, printable_json


def answers_of(scores: Scores) -> Iterator[Answer]:
    """Yield the answers that were compared with labels."""
    for index, (name, probability) in enumerate(zip(scores.names, scores.probability, strict=True)):
        first, second = np.argsort(-probability, kind="stable")[:2]
        highest, next_highest = float(probability[first]), float(probability[second])
        labels = scores.classes[first], scores.classes[second]
        rejected = bool(scores.rejected[index])
        familiarity = None if scores.familiarity is None else float(scores.familiarity[index])
        yield Answer(name, labels[0], highest, labels[1], next_highest, rejected, familiarity=familiarity)


def json_lines(answers: Iterable[Answer], more: Callable[[], Mapping[str, Any]] = dict) -> Iterator[str]:
    """Yield one JSON object per answer, extended by `more()`, which is called after the answer was computed."""
    for answer in answers:
        yield printable_json({**row(answer), **more()})


def csv_lines(answers: Iterable[Answer]) -> Iterator[str]:
    """Yield a header and one row per answer, each on one line."""
    return csv_of(map(row, answers))


def table_lines(answers: Iterable[Answer]) -> Iterator[str]:
    """Yield one line per answer, for people."""
    for answer in answers:
        name = printable(answer.name)
        name = name if len(name) <= 48 else "…" + name[-47:]
        if answer.error is not None:
            yield f"{name:<48}  cannot be read"
            continue
        cells = row(answer)
        label = f"{cells['label']} ({answer.label}?)" if answer.rejected else cells["label"]
        second = f"{answer.runner_up} {100 * answer.runner_up_probability:.0f} %"
        yield printable(f"{name:<48}  {100 * answer.probability:3.0f} %  {label:<24}  else {second}")
