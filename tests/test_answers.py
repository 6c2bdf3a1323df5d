"""Answers: their ranking of all classes, "none of these" wherever an answer is shown, and the table on a terminal."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
import re
import subprocess
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from helpers.command import in_terminal, words
from patchvote import Answer, ImageClassifier, Photo
from patchvote.cli.output import Wanted, csv_lines, json_lines, table_lines
from patchvote.errors import PhotoError
from patchvote.models.answers import answer_in
from patchvote.models.evidence import Evidence
from patchvote.models.report import picture
from patchvote.models.report.page import _mistakes
from patchvote.models.scores import Scores
from patchvote.utils.terminal import padded, shortened, width
from patchvote.web.learning import mistakes_of as mistakes_of_the_page

CLASSES = ("bluebell", "daisy", "iris")
PROBABILITY = np.array([0.42, 0.35, 0.23])
REJECTED = Answer("1.jpg", CLASSES, PROBABILITY, True, 0.01)
NAMED = Answer("2.jpg", CLASSES, PROBABILITY, False, 0.6)
PHOTO = "photos/iris/1.jpg"


def test_csv_and_json_hold_the_likeliest_and_every_class_as_predict_proba_does(place, command):
    classifier = ImageClassifier.load("m.patchvote")
    expected = dict(zip(classifier.classes, classifier.predict_proba([PHOTO])[0].tolist(), strict=True))
    ranked = sorted(expected, key=expected.get, reverse=True)
    Path("broken.jpg").write_bytes(b"no")
    done = command("predict", "m.patchvote", "broken.jpg", PHOTO, "--top", 3, "--all")
    broken, row = csv.DictReader(io.StringIO(done.out))
    every = {label: float(row[f"probability of {label}"]) for label in ("iris", "rose")}
    assert every == pytest.approx(expected, abs=1e-5)
    assert [row["top_1"], row["top_2"]] == ranked
    assert [float(row[f"top_{rank}_probability"]) for rank in (1, 2)] == [every[label] for label in ranked]
    assert {broken[name] for name in list(row)[9:]} == {""}
    for _ in range(2):  # a file with more columns may be written again
        assert command("predict", "m.patchvote", PHOTO, "--top", 9, "--all", "-o", "a.jsonl").code == 0
    told = json.loads(Path("a.jsonl").read_text())
    assert [one["label"] for one in told["top"]] == list(told["probabilities"]) == ranked
    answer = Answer("1.jpg", ("a;=1", "b"), np.array([0.1, 0.9]))
    assert "probability of a;'=1" in next(csv_lines([answer], Wanted(answer.classes, 0, True)))


# --- none of these ----------------------------------------------------------------------------------------------------


@pytest.fixture
def evidence() -> Evidence:
    votes = np.random.default_rng(0).normal(size=(2, 3))
    boxes = np.array([[0, 0, 0.5, 1], [0.5, 0, 1, 1]])
    photo = Photo("1.jpg", Image.new("RGB", (80, 60)))
    return Evidence("1.jpg", CLASSES, votes, boxes, PROBABILITY, rejected=True, familiarity=0.01, photo=photo)


def test_an_answer_tells_the_likeliest_class_apart_from_its_label(evidence):
    assert (REJECTED.label, REJECTED.probability) == ("none of these", None)
    assert (REJECTED.likeliest, REJECTED.likeliest_probability) == ("bluebell", 0.42)
    assert (NAMED.label, NAMED.probability) == (NAMED.likeliest, NAMED.likeliest_probability) == ("bluebell", 0.42)
    unreadable = Answer("3.jpg")
    assert (unreadable.label, unreadable.probability, unreadable.top()) == (None, None, [])
    assert answer_in(evidence) == REJECTED
    for lines in (csv.DictReader(csv_lines([REJECTED, NAMED])), map(json.loads, json_lines([REJECTED, NAMED]))):
        rejected, named = lines
        assert rejected["label"] == "none of these"
        assert rejected["probability"] in ("", None)
        assert (rejected["likeliest"], float(rejected["likeliest_probability"])) == ("bluebell", 0.42)
        assert named["label"] == named["likeliest"] == "bluebell"
        assert named["probability"] == named["likeliest_probability"]


def test_pictures_and_reports_say_none_of_these(evidence, monkeypatch):
    captions, image, named = [], Image.new("RGB", (80, 60)), dataclasses.replace(evidence, rejected=False)
    monkeypatch.setattr(picture, "draw_caption", lambda pen, place, text, ink, width: captions.append(text))
    assert picture.draw(evidence, image).height > picture.draw(named, image).height  # as high as its longest caption
    assert captions == ["1.jpg", "none of these", "bluebell", "daisy", "1.jpg", "bluebell: 42 %", "daisy: 35 %"]

    scores = Scores(CLASSES, ("1.jpg",), np.array([2]), PROBABILITY[None], 0.05, np.array([0.01]))
    page = _mistakes(scores, [evidence], None)
    assert "None of these, is <bdi>iris" in page
    assert "likeliest: <bdi>bluebell</bdi>, 42" in page
    gone = dataclasses.replace(evidence, photo=Photo("1.jpg", Path("gone.jpg")))
    assert _mistakes(scores, [gone], None) == ""
    page = _mistakes(dataclasses.replace(scores, familiarity=np.array([0.6])), [evidence], None)
    assert "Named <bdi>bluebell</bdi>, is <bdi>iris" in page
    (mistake,) = mistakes_of_the_page(scores, {"1.jpg": "5f"})
    assert (mistake["likeliest"], mistake["likeliest_probability"], mistake["rejected"]) == ("bluebell", 0.42, True)


# --- on a terminal ----------------------------------------------------------------------------------------------------


def test_the_columns_of_the_table_are_aligned_whatever_the_script():
    names, classes = ["a.jpg", "日本の海.jpg", "x/Straße.jpg"], ("cat", "東京", "Wolfshund")
    answers = [
        Answer(names[0], classes, np.array([0.991, 0.004, 0.003])),
        Answer(names[1], classes, np.array([0.1, 0.5, 0.4]), True),
        Answer(names[2], error=PhotoError(names[2], "is broken.")),
    ]
    head, *rows = table_lines(answers, names, Wanted(classes))

    def column(line: str, part: str) -> int:
        return width(line[: line.index(part)])

    for row, label in zip(rows, ("cat", "none of these", "cannot be read"), strict=True):
        assert column(row, label) == column(head, "class")
    assert column(rows[0], " %") == column(head, "probability") + len("probability") - 2
    for row, others in zip(rows, ("東京 0 %", "東京 50 %, Wolfshund 40 %"), strict=False):
        assert column(row, others) == column(head, "next")


def test_more_classes_are_listed_below_the_answer():
    answers = [Answer("1.jpg", CLASSES, np.array([0.7, 0.2, 0.1]), rejected) for rejected in (False, True)]
    for every in (False, True):
        _, *rows = (line.split() for line in table_lines(answers, ["1.jpg"], Wanted(CLASSES, 2, every=every), 80))
        likely, ranked = ["bluebell", "70", "%"], [["daisy", "20", "%"], *([["iris", "10", "%"]] if every else [])]
        assert rows == [["1.jpg", *likely], *ranked, ["1.jpg", "none", "of", "these"], likely, *ranked]


@pytest.mark.parametrize("columns", [60, 100])
@pytest.mark.parametrize("other", ["dog", "dog with a very long name, as of a species in two languages"])
def test_a_name_that_is_too_long_stands_above_its_answer_whole(columns, other):
    names = ["a/very/long/path/to/a/folder/of/photos/of/the/last/summer/" * 2 + "1.jpg", "2.jpg"]
    answers = [Answer(name, ("cat", other), np.array([0.9, 0.1])) for name in names]
    head, name, row, last = table_lines(answers, names, Wanted(("cat", other)), columns)
    assert max(width(head), width(row), width(last)) <= columns
    assert (name, row.index("cat"), last.index("cat")) == (names[0], head.index("class"), head.index("class"))
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


def test_text_is_padded_and_shortened_by_the_columns_that_it_takes():
    assert padded("桜", 4) + "|" == "桜  |"
    assert shortened("日本の海.jpg", 8) == "…海.jpg"
