"""Answers: their ranking of all classes, and "none of these", wherever an answer is shown."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import patchvote
from helpers.command import in_terminal
from patchvote import Answer, ImageClassifier, Photo
from patchvote.cli.output import Table, Wanted, csv_lines, json_lines
from patchvote.models.answers import answer_in
from patchvote.models.evidence import Evidence
from patchvote.models.file import read_model, write_model
from patchvote.models.report import picture
from patchvote.models.report.page import _examples, _mistakes
from patchvote.models.scores import Scores
from patchvote.models.sorting import Sorter
from patchvote.web.learning import mistakes_of as mistakes_of_the_page
from patchvote.web.routes import answer_view

CLASSES = ("bluebell", "daisy", "iris")
PROBABILITY = np.array([0.42, 0.35, 0.23])
REJECTED = Answer.of("1.jpg", CLASSES, PROBABILITY, True, 0.01)
NAMED = Answer.of("2.jpg", CLASSES, PROBABILITY, False, 0.6)
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
    answer = Answer.of("1.jpg", ("a;=1", "b"), np.array([0.1, 0.9]))
    assert "probability of a;'=1" in next(csv_lines([answer], Wanted(answer.classes, 0, True)))


def test_a_table_of_all_classes_leaves_out_and_counts_those_that_nothing_speaks_for():
    classes = tuple(f"class {number}" for number in range(6))
    answer = Answer.of("1.jpg", classes, np.array([0.7, 0.28, 0.01, 0.004, 0.003, 0.003]))

    def lines(*wanted):
        return list(Table.of(["1.jpg"], classes, 80, Wanted(classes, *wanted)).lines([answer]))

    assert [line.split() for line in lines(0, True)[-2:]] == [
        ["class", "2", "1", "%"],
        ["3", "more", "classes", "<", "0.5", "%"],
    ]
    assert "1 more class " in lines(5, True)[-1]
    assert "more class" not in lines(6, True)[-1]
    assert "more class" not in lines(3)[-1]


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
    unreadable = Answer("3.jpg", None)
    assert (unreadable.label, unreadable.probability, unreadable.top()) == (None, None, [])
    assert answer_in(evidence) == REJECTED


def test_the_table_has_a_column_for_the_likeliest_class():
    head, rejected, named = Table.of(["1.jpg", "2.jpg"], CLASSES).lines([REJECTED, NAMED])
    columns = [head.index(name) for name in ("class", "probability", "likeliest", "next likeliest")]

    def cells(row):
        return [row[at:end].strip() for at, end in zip(columns, [*columns[1:], None], strict=True)]

    assert cells(rejected) == ["none of these", "", "bluebell 42 %", "daisy 35 %"]
    assert cells(named) == ["bluebell", "42 %", "", "daisy 35 %"]
    for wanted in (Wanted(CLASSES, 2), Wanted(CLASSES, 2, every=True)):
        _, row, *below = Table.of(["1.jpg"], CLASSES, 80, wanted).lines([REJECTED])
        assert row.split() == ["1.jpg", "none", "of", "these"]
        assert below[0].split() == ["bluebell", "42", "%"]
        assert len(below) == 2 + wanted.every


@pytest.mark.parametrize("columns", [45, 60, 80])
def test_a_narrow_table_leaves_out_the_runner_up_rather_than_the_likeliest(columns):
    _, row = Table.of(["1.jpg"], CLASSES, columns).lines([REJECTED])
    assert row.startswith("1.jpg  none of these")
    assert "42 %" in row
    assert len(row) <= columns
    assert ("daisy" in row) == (columns > 60)


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


def test_a_terminal_shows_the_likeliest_class_faintly(place, monkeypatch):
    model = dataclasses.replace(read_model("m.patchvote"), threshold=1.0, familiarity=None)
    write_model(model, "strict.patchvote")
    monkeypatch.setenv("TERM", "xterm")
    head, row = in_terminal(
        [sys.executable, "-m", "patchvote", "predict", "strict.patchvote", PHOTO], 100, place
    ).splitlines()
    assert "\x1b" not in head
    assert "\x1b[2miris " in row
    assert row.index("none of these") < row.index("\x1b[2m") < row.index("\x1b[22m")


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


def test_a_rejected_photo_is_sorted_into_a_folder_of_its_own(tmp_path):
    (tmp_path / "1.jpg").write_bytes(b"one")
    Sorter(tmp_path / "sorted", CLASSES).put(REJECTED, tmp_path / "1.jpg")
    assert [path.name for path in (tmp_path / "sorted").iterdir()] == ["none of these"]


_DRAW = """
class Element {
  constructor() { this.text = ""; this.classList = { remove() {}, toggle() {} }; this.style = { setProperty() {} }; }
  setAttribute() {}
  addEventListener() {}
  append(...parts) { for (const part of parts) this.text += `${part.text ?? part}\\n`; }
  replaceChildren(...parts) { this.text = ""; this.append(...parts); }
}
globalThis.document = { createElement: () => new Element(), createElementNS: () => new Element() };
globalThis.window = globalThis;
globalThis.localStorage = { getItem: () => null, setItem() {} };
const { fillCard } = await import(process.argv[1]);
const { space } = await import(new URL("workspace.js", process.argv[1]));
space.state = { classes: [] };
const card = new Element();
const answer = { ...JSON.parse(process.argv[2]), current: true };
fillCard(card, { id: "5f", name: "1.jpg", class: null, thumbnail: "", answer }, {});
console.log(card.text);
"""


@pytest.mark.skipif(shutil.which("node") is None, reason="needs node")
def test_a_card_of_the_page_sets_the_likeliest_class_apart():
    static = Path(patchvote.__file__).parent / "web" / "static"

    def said(answer):
        ask = ["node", "--input-type=module", "--eval", _DRAW, (static / "answers.js").as_uri()]
        done = subprocess.run([*ask, json.dumps(answer_view(answer))], capture_output=True, text=True, check=True)
        return [line for line in done.stdout.splitlines() if line]

    rejected = said(REJECTED)
    assert [line for line in rejected if "%" in line] == ["likeliest: bluebell, 42 %"]
    assert rejected.index("None of these") < rejected.index("likeliest: bluebell, 42 %")
    named = said(NAMED)
    assert "42 %" in named
    assert "None of these" not in named
