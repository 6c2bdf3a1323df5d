"""Answers: their ranking of all classes, and "none of these", wherever an answer is shown."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from patchvote import Answer, ImageClassifier, Photo
from patchvote.cli.output import Wanted, csv_lines, json_lines
from patchvote.models.answers import answer_in
from patchvote.models.evidence import Evidence
from patchvote.models.report import picture
from patchvote.models.report.page import _examples, _mistakes
from patchvote.models.scores import Scores
from patchvote.web.learning import mistakes_of as mistakes_of_the_page

CLASSES = ("bluebell", "daisy", "iris")
PROBABILITY = np.array([0.42, 0.35, 0.23])
REJECTED = Answer("1.jpg", CLASSES, PROBABILITY, True, 0.01)
NAMED = Answer("2.jpg", CLASSES, PROBABILITY, False, 0.6)
PHOTO = "photos/iris/1.jpg"


# --- all classes ------------------------------------------------------------------------------------------------------


def test_answers_rank_all_classes_as_predict_proba_does(place):
    classifier = ImageClassifier.load("m.patchvote")
    (answer,) = classifier.answers([PHOTO])
    (expected,) = classifier.predict_proba([PHOTO])
    assert dict(answer.top()) == pytest.approx(dict(zip(classifier.classes, expected, strict=True)))
    assert [p for _, p in answer.top()] == sorted(expected, reverse=True)
    assert answer.top(2) == [(answer.label, answer.probability), (answer.runner_up, answer.runner_up_probability)]


def test_csv_and_json_hold_the_likeliest_and_every_class(place, command):
    Path("broken.jpg").write_bytes(b"no")
    done = command("predict", "m.patchvote", "broken.jpg", PHOTO, "--top", 3, "--all")
    broken, row = csv.DictReader(io.StringIO(done.out))
    every = {label: float(row[f"probability of {label}"]) for label in ("iris", "rose")}
    ranked = sorted(every, key=every.get, reverse=True)
    assert sum(every.values()) == pytest.approx(1, abs=1e-5)
    assert [row["top_1"], row["top_2"]] == ranked
    assert [float(row[f"top_{rank}_probability"]) for rank in (1, 2)] == [every[label] for label in ranked]
    assert {broken[name] for name in list(row)[9:]} == {""}
    for _ in range(2):  # a file with more columns may be written again
        assert command("predict", "m.patchvote", PHOTO, "--top", 9, "--all", "-o", "a.jsonl").code == 0
    told = json.loads(Path("a.jsonl").read_text())
    assert [one["label"] for one in told["top"]] == list(told["probabilities"]) == ranked
    assert "top" not in json.loads(command("predict", "m.patchvote", PHOTO, "--json").out)


def test_names_of_classes_in_the_header_are_no_formulas():
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


def test_csv_and_json_leave_the_probability_of_the_label_empty():
    for rejected, named in (
        csv.DictReader(csv_lines([REJECTED, NAMED])),
        map(json.loads, json_lines([REJECTED, NAMED])),
    ):
        assert rejected["label"] == "none of these"
        assert rejected["probability"] in ("", None)
        assert (rejected["likeliest"], float(rejected["likeliest_probability"])) == ("bluebell", 0.42)
        assert named["label"] == named["likeliest"] == "bluebell"
        assert named["probability"] == named["likeliest_probability"]


def test_the_picture_of_explain_says_none_of_these(evidence, monkeypatch):
    captions, image = [], Image.new("RGB", (80, 60))
    monkeypatch.setattr(picture, "draw_caption", lambda pen, place, text, ink, width: captions.append(text))
    rejected = picture.draw(evidence, image)
    named = picture.draw(dataclasses.replace(evidence, rejected=False), image)
    assert captions == ["1.jpg", "none of these", "bluebell", "daisy", "1.jpg", "bluebell: 42 %", "daisy: 35 %"]
    assert rejected.height > named.height  # as high as its longest caption


def test_examples_of_a_report_have_no_probability_of_a_rejected_photo(evidence):
    def captions_of(one):
        return [part.split("</figcaption>")[0] for part in _examples([one]).split("<figcaption>")[1:]]

    names = [f"<bdi>{label}</bdi>" for label in CLASSES]
    assert captions_of(evidence) == ["the photo: none of these", *names]
    named = captions_of(dataclasses.replace(evidence, rejected=False))
    assert named[:2] == ["the photo", "<bdi>bluebell</bdi>, 42&nbsp;%"]
    gone = dataclasses.replace(evidence, photo=Photo("1.jpg", Path("gone.jpg")))
    assert _examples([gone]) == ""


def test_a_report_does_not_call_a_rejected_mistake_named(evidence):
    scores = Scores(CLASSES, ("1.jpg",), np.array([2]), PROBABILITY[None], 0.05, np.array([0.01]))
    page = _mistakes(scores, [evidence], None)
    assert "<h3>None of these, is <bdi>iris</bdi></h3>" in page
    assert "likeliest: <bdi>bluebell</bdi>, 42" in page
    assert "confidence 42" not in page
    page = _mistakes(dataclasses.replace(scores, familiarity=np.array([0.6])), [evidence], None)
    assert "<h3>Named <bdi>bluebell</bdi>, is <bdi>iris</bdi></h3>" in page
    (mistake,) = mistakes_of_the_page(scores, {"1.jpg": "5f"})
    assert (mistake["likeliest"], mistake["likeliest_probability"], mistake["rejected"]) == ("bluebell", 0.42, True)
