"""Names from anywhere: in a terminal, a spreadsheet, a page, a picture they are shown, never obeyed."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
import os
import re
import tomllib
import types

import numpy as np
import onnx
import pytest
from PIL import Image

from helpers.command import network_in
from patchvote import Answer, Dense, ImageClassifier, Recipe
from patchvote.cli.output import csv_lines
from patchvote.models.report.card import card

FORMULA, COLOUR, LINES, REVERSED = '=HYPERLINK("x")', "red\x1b[31m\x9b5m", "a\nb", "one\u202eowt"
NO_TEXT = os.fsdecode(b"caf\xe9")
NAMES = (FORMULA, COLOUR, LINES, REVERSED, NO_TEXT)
OBEYED = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    """Photos of five classes, all with names that want to be more than names; and a model of them, and its network."""
    folder = tmp_path_factory.mktemp("hostile")
    rng = np.random.default_rng(0)
    for number, label in enumerate(NAMES):
        (folder / "photos" / label).mkdir(parents=True)
        for name in NAMES:
            pixels = rng.integers(0, 100, (64, 64, 3)) + 30 * number
            Image.fromarray(pixels.astype(np.uint8)).save(folder / "photos" / label / f"{name}.png")
    (folder / "photos" / COLOUR / f"broken{LINES}.jpg").write_bytes(b"no photo")
    recipe = Recipe(str(network_in(folder)), Dense(sides=(64,)))
    ImageClassifier(recipe, cache=False).fit(folder / "photos").save(folder / "m.patchvote")
    return folder / "photos"


@pytest.fixture
def model(photos):
    return photos.with_name("m.patchvote")


def test_no_escape_code_of_a_name_reaches_the_terminal(command, photos, model, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    network = model.with_name("tiny.onnx")
    said = [
        command("fit", photos, "new.patchvote", "--network", network, "--no-cache"),
        command("info", model),
        command("info", model, "--card"),
        command("evaluate", model, photos, "--no-report"),
        command("explain", model, photos / LINES / f"{COLOUR}.png", "-o", tmp_path / "e.png"),
        command("explain", model, photos / LINES / f"{COLOUR}.png", "--class", "\x1b[2J"),
        command("predict", model, photos, "--json"),
        command("extract", photos, tmp_path / "store", "--network", network, "--sides", "64"),
        command("info", tmp_path / "store"),
        command("predict", f"absent{COLOUR}", "x.jpg"),
    ]
    assert [done.code for done in said] == [3, 0, 0, 3, 0, 1, 3, 3, 0, 1]
    for done in said:
        assert not OBEYED.search(done.out + done.err)
        assert NO_TEXT not in done.out + done.err
    assert r"red\x1b[31m\x9b5m/brokena\nb.jpg: " in said[0].err  # all on one line


def test_what_a_model_says_of_itself_stays_text_in_a_card(model):
    loaded = ImageClassifier.load(model).model
    hostile = "<img src=x>\n# Heading\x1b[2J"
    made = dict.fromkeys(loaded.about.made, hostile)
    text = card(dataclasses.replace(loaded, about=dataclasses.replace(loaded.about, method=hostile, made=made)))
    assert text.count(r"\<img src=x\>\\n# Heading\\x1b\[2J") >= 3
    assert not re.search(r"(?<!\\)<img|^# Heading", text, re.MULTILINE)


def test_answers_in_files_are_one_row_per_photo_without_formulas(command, photos, model, tmp_path, monkeypatch):
    done = command("predict", model, photos / FORMULA, "-o", tmp_path / "a.csv")
    assert done.code == 0, done.err
    assert command("predict", model, photos / FORMULA).out == (tmp_path / "a.csv").read_text()
    rows = list(csv.reader(io.StringIO((tmp_path / "a.csv").read_text(), newline="")))
    assert {len(row) for row in rows} == {len(rows[0])}
    assert len((tmp_path / "a.csv").read_text().splitlines()) == len(rows) == 1 + len(NAMES)
    for name in (LINES.replace("\n", "\\n"), "caf\\udce9"):  # a name that is no text costs no answer
        assert f"{photos / FORMULA / name}.png" in [row[0] for row in rows]
    assert not any(cell.startswith(tuple("=+-@\t\r\n")) for row in rows for cell in row)
    assert "'" + FORMULA in [row[3] for row in rows]
    monkeypatch.chdir(photos / NO_TEXT)
    files = [f"{name}.png" for name in NAMES]
    assert command("predict", model, *files, "-o", tmp_path / "a.jsonl").code == 0
    assert [json.loads(line)["file"] for line in (tmp_path / "a.jsonl").read_text().splitlines()] == files


@pytest.mark.parametrize("name", ["a;=1+1;b", "a;\t@SUM(1)", '=1;";=2', "x; +1", "\t=1", "-1", "\uff1d1"])
def test_no_separator_of_a_spreadsheet_makes_a_formula_of_a_name(name):
    answers = [Answer(f"{name}.jpg", (name,), np.array([0.9]))]
    text = "\n".join(csv_lines(answers))
    assert next(csv.DictReader(io.StringIO(text)))["probability"] == "0.9"
    for delimiter in ",;\t":
        for row in csv.reader(io.StringIO(text), delimiter=delimiter):
            for cell in row:
                assert not re.match('[\\s"]*[=+@\uff1d-]', cell), (delimiter, cell)


def test_a_page_a_card_and_a_graph_hold_names_as_names(command, photos, tmp_path):
    tags = tmp_path / "photos"
    for number, label in enumerate(('<img src=x onerror="alert(1)">', "|a|[b](c)`", NO_TEXT)):
        (tags / label).mkdir(parents=True)
        for index in range(3):
            pixels = np.random.default_rng([number, index]).integers(0, 256, (64, 64, 3))
            Image.fromarray(pixels.astype(np.uint8)).save(tags / label / f"{index}'\"<b>.png")
    network = network_in(tmp_path)
    model = tmp_path / "<i>m.patchvote"
    assert command("fit", tags, model, "--network", network, "--no-cache").code == 0
    page = model.with_suffix(".html").read_text()
    assert not re.search(r"<(img src=x|b>\.png|i>m)", page)
    card = command("info", model, "--card").out
    assert '| \\<img src=x onerror="alert(1)"\\> | 3 |' in card
    assert "| \\|a\\|\\[b\\](c)\\` | 3 |" in card
    done = command("export", model, tmp_path / "m.onnx", "--network", network)
    assert done.code == 0, done.err
    kept = {entry.key: entry.value for entry in onnx.load(tmp_path / "m.onnx").metadata_props}
    assert json.loads(kept["classes"]) == list(ImageClassifier.load(model).classes)


def test_the_name_of_a_tensor_stays_a_name_in_the_settings_of_a_tuned_network(tmp_path):
    pytest.importorskip("torch")
    from patchvote.nn import Tuned

    graph = onnx.load(network_in(tmp_path))
    graph.graph.output[0].name = hostile = 'x"\ncolor = "BGR"\n#'
    preprocessing = types.SimpleNamespace(mean=(0.0,), scale=(1.0,), color="RGB")
    spec = types.SimpleNamespace(preprocessing=preprocessing, size=64, stride=32)
    Tuned.save_network(types.SimpleNamespace(graph=graph, spec=spec), tmp_path / "tuned.onnx")
    settings = tomllib.loads((tmp_path / "tuned.toml").read_text())
    assert (settings["output"], settings["color"]) == (hostile, "RGB")
