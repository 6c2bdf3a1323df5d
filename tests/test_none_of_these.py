"""A photo that is "none of these" has no probability of a class beside its label, wherever its answer is shown."""

from __future__ import annotations

import csv
import dataclasses
import json
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import patchvote
from helpers.command import in_terminal, words
from patchvote import Answer, Photo
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


@pytest.fixture
def evidence() -> Evidence:
    votes = np.random.default_rng(0).normal(size=(2, 3))
    boxes = np.array([[0, 0, 0.5, 1], [0.5, 0, 1, 1]])
    photo = Photo("1.jpg", Image.new("RGB", (80, 60)))
    return Evidence("1.jpg", CLASSES, votes, boxes, PROBABILITY, rejected=True, familiarity=0.01, photo=photo)


@pytest.fixture
def captions(monkeypatch) -> list[str]:
    """Captions of the pictures that are drawn."""
    drawn: list[str] = []
    monkeypatch.setattr(picture, "draw_caption", lambda pen, place, text, ink, width: drawn.append(text))
    return drawn


def test_an_answer_tells_the_likeliest_class_apart_from_its_label():
    assert (REJECTED.label, REJECTED.probability) == ("none of these", None)
    assert (REJECTED.likeliest, REJECTED.likeliest_probability) == ("bluebell", 0.42)
    assert (NAMED.label, NAMED.probability) == (NAMED.likeliest, NAMED.likeliest_probability) == ("bluebell", 0.42)
    unreadable = Answer("3.jpg", None)
    assert (unreadable.label, unreadable.probability) == (None, None)


def test_the_table_has_a_column_for_the_likeliest_class():
    head, rejected, named = Table.of(["1.jpg", "2.jpg"], CLASSES).lines([REJECTED, NAMED])
    columns = [head.index(name) for name in ("class", "probability", "likeliest", "next likeliest")]

    def cells(row):
        return [row[at:end].strip() for at, end in zip(columns, [*columns[1:], None], strict=True)]

    assert cells(rejected) == ["none of these", "", "bluebell 42 %", "daisy 35 %"]
    assert cells(named) == ["bluebell", "42 %", "", "daisy 35 %"]


@pytest.mark.parametrize("columns", [45, 60, 80])
def test_a_narrow_table_leaves_out_the_runner_up_rather_than_the_likeliest(columns):
    _, row = Table.of(["1.jpg"], CLASSES, columns).lines([REJECTED])
    assert row.startswith("1.jpg  none of these")
    assert "42 %" in row
    assert len(row) <= columns
    assert ("daisy" in row) == (columns > 60)


def test_a_table_of_more_classes_lists_the_likeliest_with_the_others():
    for wanted in (Wanted(CLASSES, 2), Wanted(CLASSES, 2, every=True)):
        _, row, *below = Table.of(["1.jpg"], CLASSES, 80, wanted).lines([REJECTED])
        assert row.split() == ["1.jpg", "none", "of", "these"]
        assert below[0].split() == ["bluebell", "42", "%"]
        assert len(below) == 2 + wanted.every


def test_csv_and_json_leave_the_probability_of_the_label_empty():
    answers = [REJECTED, NAMED]
    for rejected, named in (csv.DictReader(csv_lines(answers)), map(json.loads, json_lines(answers))):
        assert rejected["label"] == "none of these"
        assert rejected["probability"] in ("", None)
        assert (rejected["likeliest"], float(rejected["likeliest_probability"])) == ("bluebell", 0.42)
        assert named["label"] == named["likeliest"] == "bluebell"
        assert named["probability"] == named["likeliest_probability"]
        assert list(rejected)[1:5] == ["label", "probability", "likeliest", "likeliest_probability"]


def test_a_terminal_shows_the_likeliest_class_faintly(place, monkeypatch):
    model = dataclasses.replace(read_model("m.patchvote"), threshold=1.0, familiarity=None)
    write_model(model, "strict.patchvote")
    ask = words("predict", "strict.patchvote", "photos/iris/1.jpg")
    monkeypatch.setenv("TERM", "xterm")
    head, row = in_terminal(ask, 100, place).splitlines()
    assert "\x1b" not in head
    assert "\x1b[2miris " in row
    assert row.index("none of these") < row.index("\x1b[2m") < row.index("\x1b[22m")
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b" not in in_terminal(ask, 100, place)


def test_the_picture_of_explain_says_none_of_these(evidence, captions):
    image = Image.new("RGB", (80, 60))
    picture.draw(evidence, image)
    assert captions == ["1.jpg", "none of these", "bluebell", "daisy"]
    captions.clear()
    picture.draw(dataclasses.replace(evidence, rejected=False), image)
    assert captions == ["1.jpg", "bluebell: 42 %", "daisy: 35 %"]


def test_a_picture_is_as_high_as_its_longest_caption(evidence):
    image = Image.new("RGB", (80, 60))
    heights = [picture.draw(one, image).height for one in (evidence, dataclasses.replace(evidence, rejected=False))]
    assert heights[0] > heights[1]


def test_the_answer_of_evidence_is_that_of_the_photo(evidence):
    assert answer_in(evidence) == REJECTED


def test_examples_of_a_report_have_no_probability_of_a_rejected_photo(evidence):
    def captions_of(one):
        return [part.split("</figcaption>")[0] for part in _examples([one]).split("<figcaption>")[1:]]

    names = [f"<bdi>{label}</bdi>" for label in CLASSES]
    assert captions_of(evidence) == ["the photo: none of these", *names]
    named = captions_of(dataclasses.replace(evidence, rejected=False))
    assert named[:2] == ["the photo", "<bdi>bluebell</bdi>, 42&nbsp;%"]


def test_a_report_does_not_call_a_rejected_mistake_named(evidence):
    scores = Scores(CLASSES, ("1.jpg",), np.array([2]), PROBABILITY[None], 0.05, np.array([0.01]))
    page = _mistakes(scores, [evidence], None)
    assert "<h3>None of these, is <bdi>iris</bdi></h3>" in page
    assert "likeliest: <bdi>bluebell</bdi>, 42" in page
    assert "confidence 42" not in page
    kept = dataclasses.replace(scores, familiarity=np.array([0.6]))
    page = _mistakes(kept, [evidence], None)
    assert "<h3>Named <bdi>bluebell</bdi>, is <bdi>iris</bdi></h3>" in page
    (mistake,) = mistakes_of_the_page(scores, {"1.jpg": "5f"})
    assert mistake == {
        "photo": "5f",
        "label": "iris",
        "likeliest": "bluebell",
        "likeliest_probability": 0.42,
        "rejected": True,
    }


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
