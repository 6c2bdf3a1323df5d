"""Words of the code that users need not know: they are explained where they appear, or not used."""

from __future__ import annotations

import dataclasses
import re
import subprocess
import sys

import numpy as np
import pytest
from typer.testing import CliRunner

from helpers.command import in_terminal
from patchvote.cli import _COMMANDS, make_app
from patchvote.cli.answer_table import Table
from patchvote.cli.bags import _class_lines
from patchvote.errors import PhotoError
from patchvote.models.answers import Answer
from patchvote.models.file import read_model
from patchvote.models.report.card import accuracy_of
from patchvote.utils.terminal import padded, shortened, width, wrapped
from patchvote.voters.registry import OWN, voter_class

WORDS = re.compile(r"\b(bags?|recipes?|fingerprints?|shards?|moments)\b(?!-)", re.IGNORECASE)


@pytest.mark.parametrize("command", [*_COMMANDS, "demo"])
def test_the_help_of_a_command_uses_no_words_of_the_code(command):
    said = CliRunner().invoke(make_app(), [command, "--help"])
    assert said.exit_code == 0
    assert not WORDS.search(said.output), WORDS.search(said.output)


def test_what_fit_evaluate_and_info_print_uses_no_words_of_the_code(place, command):
    for words in (
        ("fit", "photos", "new.patchvote", "--network", "tiny.onnx", "--cache", "cache"),
        ("fit", "photos", "snbnl.patchvote", "--network", "tiny.onnx", "--cache", "cache", "--voter", "snbnl"),
        ("evaluate", "new.patchvote", "photos"),
        ("explain", "new.patchvote", "photos/iris/0.jpg"),
        ("extract", "photos", "store", "--network", "tiny.onnx"),
        ("info", "store"),
        ("info", "new.patchvote"),
        ("info", "new.patchvote", "--card"),
        ("info", "photos"),
    ):
        done = command(*words)
        text = done.out + done.err
        assert not WORDS.search(text), (words, WORDS.search(text))


def test_every_voter_says_how_parts_vote():
    for kind in OWN:
        assert re.search(r"\b(part|parts) of a photo\b", voter_class(kind).description), kind


def test_fit_says_which_method_it_uses(place, command):
    options = ("--network", "tiny.onnx", "--no-cache", "--no-report")
    for voter, kind in (("auto", "moment-ridge"), ("snbnl", "snbnl")):
        out = command("fit", "photos", f"{voter}.patchvote", *options, "--voter", voter).out
        assert f"method: {kind}: each part of a photo votes by " in out


# --- rejected photos, added photos ----------------------------------------------------------------------------------


def test_evaluate_says_how_many_rejected_photos_would_have_been_right(place, command):
    out = command("evaluate", "m.patchvote", "photos", "--no-report", "--threshold", 0.5).out
    found = re.search(r'(\d+) would be rejected as "none of these", .*; the likeliest class is right for (\w+) of', out)
    assert found, out
    assert int(found[1]) > 1
    assert found[2] in ("all", "none") or int(found[2]) < int(found[1])


def test_the_accuracy_of_before_names_classes_that_are_new_since():
    from patchvote.models.about import About

    added = [{"date": "", "images": {"lily": 2, "rose": 1}, "new_classes": ["lily"]}]
    scores = {"interval": [0.5, 0.9], "accuracy": 0.8, "images": 10}
    said = accuracy_of(About(held_out=scores, added=added))
    assert "That was measured before 3 photos were added (among them the new class lily)" in said


def test_a_long_list_of_classes_is_cut_in_what_evaluate_prints(place, command):
    from patchvote.cli.evaluate import _scores_lines
    from test_report import make_scores

    lines = _scores_lines(make_scores(tuple(f"species {number:03d}" for number in range(300)), 3000))
    assert sum(line.startswith("  species") for line in lines) == 30
    assert any(re.fullmatch(r"  270 more classes do (as well or )?better; the report and .*", line) for line in lines)


def test_classes_that_are_not_listed_do_as_well_where_all_are_right():
    from patchvote.cli.evaluate import _scores_lines
    from patchvote.models.scores import Scores

    classes = tuple(f"species {number:02d}" for number in range(40))
    names, numbers, answers = tuple(map(str, range(40))), np.arange(40), np.eye(40)
    assert "  10 more classes do as well; the report and --json have all of them" in _scores_lines(
        Scores(classes, names, numbers, answers)
    )
    some = answers[[1, 0, *range(2, 40)]]
    assert "  10 more classes do as well or better; the report and --json have all of them" in _scores_lines(
        Scores(classes, names * 2, np.tile(numbers, 2), np.vstack([some, answers[[*range(1, 35), 0, *range(35, 40)]]]))
    )
    mixed = np.vstack([answers[[*range(1, 30), 0, *range(30, 40)]], answers])
    assert "  10 more classes do better; the report and --json have all of them" in _scores_lines(
        Scores(classes, names * 2, np.tile(numbers, 2), mixed)
    )


# --- columns and lines ----------------------------------------------------------------------------------------------


def test_the_columns_of_the_table_are_aligned_whatever_the_script():
    names, classes = ["a.jpg", "日本の海.jpg", "x/Straße.jpg"], ["cat", "東京", "Wolfshund"]
    answers = [
        Answer(names[0], "cat", 0.991, "東京", 0.004, False),
        Answer(names[1], "東京", 0.5, "Wolfshund", 0.4, True),
        Answer(names[2], None, 0.0, None, 0.0, False, PhotoError(names[2], "is broken.")),
    ]
    head, *rows = Table.of(names, classes).lines(answers)
    assert head.split() == ["photo", "class", "probability", "likeliest", "next", "likeliest"]
    at = width(head[: head.index("class")])
    for row, label in zip(rows, ("cat", "none of these", "cannot be read"), strict=True):
        assert width(row[: row.index(label)]) == at
    assert width(rows[0][: rows[0].index(" %")]) == width(head[: head.index("probability")]) + len("probability") - 2
    assert width(rows[1][: rows[1].index("東京 50 %")]) == width(head[: head.index("likeliest")])
    for row, second in zip(rows, ("東京 0 %", "Wolfshund 40 %"), strict=False):
        assert width(row[: row.index(second)]) == width(head[: head.index("next")])


@pytest.mark.parametrize("columns", [70, 80, 100])
def test_the_table_fits_the_terminal_unless_that_is_very_narrow(columns):
    names = ["a/very/long/path/to/a/folder/of/photos/of/the/last/summer/" * 2 + "1.jpg"]
    answer = Answer(names[0], "cat", 0.9, "dog", 0.1, False)
    for classes in (["cat", "dog"], ["cat", "dog with a very long name, as of a species in two languages"]):
        head, name, row = Table.of(names, classes, columns).lines([answer])
        assert max(width(head), width(row)) <= columns
        assert name == names[0]  # never cut
        assert row.index("cat") == head.index("class")


def test_names_that_fit_stand_beside_their_answers_and_others_above_them():
    names = ["new/1.jpg", "new/" + 30 * "x" + ".jpg"]
    answers = [Answer(name, "velocipede", 0.9, "dog", 0.1, True) for name in names]
    _, first, second, third = Table.of(names, ["velocipede", "dog"], 80).lines(answers)
    assert first.startswith("new/1.jpg ")
    assert second == names[1]
    assert third.startswith(" " * len(names[0]))
    assert "none of these" in third
    assert "velocipede 90 %" in third


@pytest.mark.parametrize("columns", [60, 70, 80, 90])
def test_names_stand_beside_their_answers_wherever_there_is_room(columns):
    names = [f"unl/keyboard_{number}.jpg" for number in range(60, 70)]
    answers = [Answer(name, "backpack", 0.9, "laptop", 0.1, True) for name in names]
    head, *rows = Table.of(names, ["backpack", "laptop"], columns).lines(answers)
    assert len(rows) == len(names)
    for name, row in zip(names, rows, strict=True):
        assert row.startswith(f"{name} ")
        assert "none of these" in row
        assert "90 %" in row
        assert width(row) <= columns
    assert ("next likeliest" in head) == (columns >= 80)


def test_a_number_and_its_unit_stay_on_one_line():
    text = "accuracy 96.8 % (at most 5.0 GB), 12 %; and 3 dogs"
    for columns in range(5, len(text)):
        lines = wrapped(text, columns)
        assert " ".join(lines) == text
        assert not any(line.startswith(("%", "GB")) for line in lines)


def test_sentences_wrap_at_words_on_a_terminal_and_not_in_a_pipe(place):
    run = [sys.executable, "-m", "patchvote", "info", "m.patchvote"]
    piped = subprocess.run(run, capture_output=True, text=True, check=True).stdout
    shown = in_terminal(run, columns=50)
    lines = shown.splitlines()
    assert all(len(line) <= 50 or len(line.split()) == 1 for line in lines)  # a long path has a line of its own
    assert max(map(len, piped.splitlines())) > 100
    assert shown.split() == piped.split()  # no word was broken
    assert all(line.startswith(" " * 11) or re.match(r"\w", line) for line in lines)


def test_commands_in_backquotes_and_rows_are_not_broken():
    command = "`patchvote evaluate m.patchvote photos`"
    assert wrapped(f"see {command} now", 20) == ["see", command, "now"]
    assert wrapped("ab cd ef", 5, indent=2) == ["ab cd", "  ef"]
    assert padded("桜", 4) + "|" == "桜  |"
    assert shortened("日本の海.jpg", 8) == "…海.jpg"


def test_a_reader_that_takes_the_first_lines_ends_predict_quietly(place):
    run = f"{sys.executable} -m patchvote predict m.patchvote photos | head -1; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", run], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("file,label,")


def test_classes_of_a_store_are_aligned_whatever_their_letters():
    head, *lines = _class_lines({"brick": 12, "桜": 3, "a\x1bb": 1})
    assert head == "3 classes"
    assert {width(line.rstrip("█")) for line in lines} == {width(lines[0].rstrip("█"))}


def test_the_share_that_is_rejected_is_of_photos_like_the_learned_ones_and_as_rough_as_the_photos_are_few(place):
    from patchvote.models.report.card import rejects

    model = read_model("m.patchvote")
    for count, rough in ((50, " (with 50 photos held out, 1 to 13 %)"), (2000, "")):
        familiarity = dataclasses.replace(model.familiarity, held_out=np.linspace(0, 1, count))
        said = rejects(dataclasses.replace(model, familiarity=familiarity))
        assert f"about 5 % of photos like those it learned from{rough}; more of photos unlike these" in said


def test_a_model_that_held_no_photo_out_rejects_none(place, command):
    for label in ("iris", "rose"):
        (place / "two" / label).mkdir(parents=True)
        photo = min((place / "photos" / label).iterdir())
        (place / "two" / label / photo.name).write_bytes(photo.read_bytes())
    options = ("--network", "tiny.onnx", "--no-cache", "--no-report")
    assert command("fit", "two", "two.patchvote", *options).code == 0
    assert "rejects    no photo: none was held out" in command("info", "two.patchvote").out
    assert "none of these" not in command("predict", "two.patchvote", "photos").out
    assert command("predict", "two.patchvote", "photos", "--threshold", 0.1).code == 1
