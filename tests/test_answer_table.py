"""The table of answers on a terminal, and how lines are wrapped there."""

from __future__ import annotations

import re
import subprocess

import numpy as np
import pytest

from helpers.command import in_terminal, words
from patchvote.cli.output import Wanted, table_lines
from patchvote.errors import PhotoError
from patchvote.models.answers import Answer
from patchvote.utils.terminal import padded, shortened, width, wrapped


def test_the_columns_of_the_table_are_aligned_whatever_the_script():
    names, classes = ["a.jpg", "日本の海.jpg", "x/Straße.jpg"], ("cat", "東京", "Wolfshund")
    answers = [
        Answer(names[0], classes, np.array([0.991, 0.004, 0.003])),
        Answer(names[1], classes, np.array([0.1, 0.5, 0.4]), True),
        Answer(names[2], error=PhotoError(names[2], "is broken.")),
    ]
    head, *rows = table_lines(answers, names, Wanted(classes))
    assert head.split() == ["photo", "class", "probability", "next", "likeliest"]

    def column(line: str, part: str) -> int:
        return width(line[: line.index(part)])

    for row, label in zip(rows, ("cat", "none of these", "cannot be read"), strict=True):
        assert column(row, label) == column(head, "class")
    assert column(rows[0], " %") == column(head, "probability") + len("probability") - 2
    for row, others in zip(rows, ("東京 0 %", "東京 50 %, Wolfshund 40 %"), strict=False):
        assert column(row, others) == column(head, "next")


def test_more_classes_are_listed_below_the_answer():
    classes, answers = ("cat", "dog", "eel"), []
    for rejected in (False, True):
        answers.append(Answer("1.jpg", classes, np.array([0.7, 0.2, 0.1]), rejected))
    for wanted in (Wanted(classes, 2), Wanted(classes, 2, every=True)):
        _, *rows = (line.split() for line in table_lines(answers, ["1.jpg"], wanted, 80))
        likely, ranked = ["cat", "70", "%"], [["dog", "20", "%"], *([["eel", "10", "%"]] if wanted.every else [])]
        assert rows == [["1.jpg", *likely], *ranked, ["1.jpg", "none", "of", "these"], likely, *ranked]


@pytest.mark.parametrize("columns", [60, 80, 100])
@pytest.mark.parametrize("other", ["dog", "dog with a very long name, as of a species in two languages"])
def test_a_name_that_is_too_long_stands_above_its_answer_whole(columns, other):
    long, short = "a/very/long/path/to/a/folder/of/photos/of/the/last/summer/" * 2 + "1.jpg", "2.jpg"
    classes, names = ("cat", other), [long, short]
    answers = [Answer(name, classes, np.array([0.9, 0.1])) for name in names]
    head, name, row, last = table_lines(answers, names, Wanted(classes), columns)
    assert max(width(head), width(row), width(last)) <= columns
    assert (name, row.index("cat"), last.index("cat")) == (long, head.index("class"), head.index("class"))
    assert last.startswith("2.jpg ")


def test_sentences_wrap_at_words_on_a_terminal_and_not_in_a_pipe(place):
    run = words("info", "m.patchvote")
    piped = subprocess.run(run, capture_output=True, text=True, check=True).stdout
    shown = in_terminal(run, columns=50)
    lines = shown.splitlines()
    assert all(len(line) <= 50 or len(line.split()) == 1 for line in lines)  # a long path has a line of its own
    assert max(map(len, piped.splitlines())) > 100
    assert shown.split() == piped.split()  # no word was broken
    assert all(line.startswith(" " * 13) or re.match(r"\w", line) for line in lines)


def test_numbers_with_their_units_and_commands_are_not_broken():
    text = "accuracy 96.8 % (at most 5.0 GB), 12 %; and 3 dogs"
    for columns in range(5, len(text)):
        lines = wrapped(text, columns)
        assert " ".join(lines) == text
        assert not any(line.startswith(("%", "GB")) for line in lines)
    command = "`patchvote evaluate m.patchvote photos`"
    assert wrapped(f"see {command} now", 20) == ["see", command, "now"]
    assert wrapped("ab cd ef", 5, indent=2) == ["ab cd", "  ef"]
    assert padded("桜", 4) + "|" == "桜  |"
    assert shortened("日本の海.jpg", 8) == "…海.jpg"
