"""Answers as text for programs: rows of CSV, lines of JSON. `answer_table` has the table for people.

JSON holds names exactly. CSV is read by spreadsheets and shown by terminals (`utils.csv_text`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from ..models.answers import Answer
from ..models.rows import row
from ..models.scores import Scores
from ..utils.csv_text import csv_of
from ..utils.terminal import printable_json


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
