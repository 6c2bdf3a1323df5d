"""Probabilities of more classes than two: in CSV, in JSON and on a terminal."""

from __future__ import annotations

import csv
import io
import json

import numpy as np
import pytest

from helpers.command import in_terminal, patchvote, words
from patchvote import ImageClassifier
from patchvote.cli.output import Table, Wanted, csv_lines
from patchvote.models.answers import Answer


@pytest.fixture(scope="module")
def model(photo_folder, tmp_path_factory):
    """A model of four classes."""
    path = tmp_path_factory.mktemp("top") / "m.patchvote"
    ImageClassifier(cache=False).fit(photo_folder).save(path)
    return path


def test_answers_rank_all_classes_as_predict_proba_does(model, photo_folder):
    classifier = ImageClassifier.load(model)
    photo = next((photo_folder / "brick").iterdir())
    (answer,) = classifier.answers([photo])
    (expected,) = classifier.predict_proba([photo])
    assert dict(answer.top()) == pytest.approx(dict(zip(classifier.classes, expected, strict=True)))
    assert [p for _, p in answer.top()] == sorted(expected, reverse=True)
    assert answer.top(2) == [(answer.label, answer.probability), (answer.runner_up, answer.runner_up_probability)]


def test_csv_has_columns_for_the_likeliest_and_for_every_class(model, photo_folder, tmp_path):
    (tmp_path / "broken.jpg").write_bytes(b"no")
    photo = next((photo_folder / "grass").iterdir())
    done = patchvote("predict", model, tmp_path / "broken.jpg", photo, "--top", "3", "--all")
    broken, row = csv.DictReader(io.StringIO(done.stdout))
    assert list(row)[9:15] == ["top_1", "top_1_probability", "top_2", "top_2_probability", "top_3", "top_3_probability"]
    every = {label: float(row[f"probability of {label}"]) for label in ("Straße & Café", "brick", "grass", "gravel")}
    assert sum(every.values()) == pytest.approx(1, abs=1e-5)
    ranked = sorted(every, key=every.get, reverse=True)
    assert [row[f"top_{rank}"] for rank in (1, 2, 3)] == ranked[:3]
    assert [float(row[f"top_{rank}_probability"]) for rank in (1, 2, 3)] == [every[label] for label in ranked[:3]]
    assert {broken[name] for name in list(row)[9:]} == {""}


def test_json_holds_the_same(command, model, photo_folder, tmp_path):
    photo = next((photo_folder / "grass").iterdir())
    assert command("predict", model, photo, "--top", "9", "--all", "-o", tmp_path / "a.jsonl").code == 0
    told = json.loads((tmp_path / "a.jsonl").read_text())
    assert [one["label"] for one in told["top"]] == list(told["probabilities"])
    assert told["top"][0] == {"label": "grass", "probability": told["probabilities"]["grass"]}
    assert "top" not in json.loads(command("predict", model, photo, "--json").out)


def test_a_file_with_more_columns_may_be_written_again(command, model, photo_folder, tmp_path):
    photo = next((photo_folder / "grass").iterdir())
    for _ in range(2):
        assert command("predict", model, photo, "--all", "-o", tmp_path / "a.csv").code == 0


def test_a_terminal_lists_them_below_the_likeliest(model, photo_folder):
    photo = next((photo_folder / "gravel").iterdir())
    head, name, *lines = in_terminal(words("predict", model, photo, "--top", "3")).splitlines()
    assert head.split() == ["photo", "class", "probability"]
    assert name == str(photo)  # longer than its column
    assert len(lines) == 3
    assert "gravel" in lines[0]
    assert all(line.startswith(" " * 16) for line in lines)


def test_a_table_of_all_classes_leaves_out_those_that_nothing_speaks_for():
    classes = tuple("abcd")
    answer = Answer("1.jpg", "a", 0.9, "b", 0.098, classes=classes, probabilities=np.array([0.9, 0.098, 0.002, 0.0]))
    for wanted, classes_shown in ((Wanted(classes, 0, True), 2), (Wanted(classes, 3, True), 3), (Wanted(classes), 1)):
        table = Table.of(["1.jpg"], classes, None, wanted)
        listed = [line for line in table.lines([answer]) if " more class" not in line]
        assert len(listed) == 1 + classes_shown


def test_names_of_classes_in_the_header_are_no_formulas():
    classes = ("a;=1", "b")
    answer = Answer("1.jpg", "b", 0.9, "a;=1", 0.1, classes=classes, probabilities=np.array([0.1, 0.9]))
    header = next(csv_lines([answer], Wanted(classes, 0, True)))
    assert "probability of a;'=1" in header


def test_a_table_of_all_classes_says_how_many_it_does_not_list():
    classes = tuple(f"class {number}" for number in range(6))
    probability = np.array([0.7, 0.28, 0.01, 0.004, 0.003, 0.003])
    answer = Answer("1.jpg", "class 0", 0.7, "class 1", 0.28, classes=classes, probabilities=probability)
    lines = list(Table.of(["1.jpg"], classes, 80, Wanted(classes, 0, every=True)).lines([answer]))
    assert [line.split() for line in lines[-2:]] == [
        ["class", "2", "1", "%"],
        ["3", "more", "classes", "<", "0.5", "%"],
    ]
    assert "1 more class " in list(Table.of(["1.jpg"], classes, 80, Wanted(classes, 5, every=True)).lines([answer]))[-1]
    assert (
        "more class" not in list(Table.of(["1.jpg"], classes, 80, Wanted(classes, 6, every=True)).lines([answer]))[-1]
    )
    assert "more class" not in list(Table.of(["1.jpg"], classes, 80, Wanted(classes, 3)).lines([answer]))[-1]
