r"""Answers as text: rows of CSV, lines of JSON, a table for people.

JSON holds names exactly. CSV is made for spreadsheets, so two things differ there: a cell that a spreadsheet would take
for a formula gets an apostrophe in front, as OWASP advises, and bytes of a file name that are not UTF-8 are written as
escapes such as ``\udcff``. The table shows names as a terminal can show them.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from ..models.answers import Answer
from ..models.scores import Scores
from ..utils.terminal import printable, printable_json
from ..voters.votes import NONE

# What spreadsheets begin a formula with, full-width letters included, and the white space that they skip before it.
_FORMULA = re.compile("[=+\\-@\t\r\n\uff1d\uff0b\uff0d\uff20]")


def answers_of(scores: Scores) -> Iterator[Answer]:
    """Return the answers that were compared with what they should have been."""
    for name, probability in zip(scores.names, scores.probability, strict=True):
        first, second = np.argsort(-probability, kind="stable")[:2]
        chances = float(probability[first]), float(probability[second])
        labels = scores.classes[first], scores.classes[second]
        yield Answer(name, labels[0], chances[0], labels[1], chances[1], chances[0] < scores.threshold)


def row(answer: Answer) -> dict[str, Any]:
    """Return an answer as plain values by column."""
    return {
        "file": answer.name,
        "label": NONE if answer.rejected else answer.label or "",
        "probability": round(answer.probability, 4),
        "likeliest": answer.label or "",
        "runner_up": answer.runner_up or "",
        "runner_up_probability": round(answer.runner_up_probability, 4),
        "error": answer.error.reason if answer.error else "",
    }


def json_lines(answers: Iterable[Answer]) -> Iterator[str]:
    """Write one object per answer."""
    for answer in answers:
        yield printable_json(row(answer))


def csv_lines(answers: Iterable[Answer]) -> Iterator[str]:
    """Write a head and one row per answer; a name with a newline in it makes a row of several lines, in quotes."""
    head = None
    for answer in answers:
        cells = row(answer)
        if head is None:
            head = list(cells)
            yield _csv_row(head)
        yield _csv_row([cell(value) for value in cells.values()])


def cell(value: Any) -> Any:
    r"""Return a value as a cell that no spreadsheet takes for a formula.

    Examples
    --------
    >>> cell('=HYPERLINK("http://example.com")'), cell("a=b"), cell(-0.5)
    ('\'=HYPERLINK("http://example.com")', 'a=b', -0.5)
    """
    if not isinstance(value, str):
        return value
    text = value.encode("utf-8", "backslashreplace").decode("utf-8")
    return f"'{text}" if _FORMULA.match(text) else text


def _csv_row(cells: list[Any]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\r\n").writerow(cells)  # with this terminator, both characters are quoted
    return text.getvalue()[:-2]


def table_lines(answers: Iterable[Answer]) -> Iterator[str]:
    """Write one line per answer for people."""
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
