"""What is said about a model is what was done."""

from __future__ import annotations

import dataclasses
import json
import shutil

import pytest

from helpers.command import network_in
from patchvote.models.about import About
from patchvote.models.report.card import accuracy_of


@pytest.fixture
def fitted(command, photo_folder, tmp_path):
    """A model made with a network that takes no time, and what `fit` said."""
    photos = shutil.copytree(photo_folder, tmp_path / "photos")
    words = (
        "fit",
        photos,
        tmp_path / "m.patchvote",
        "--network",
        network_in(tmp_path),
        "--no-cache",
        "--no-report",
        "--force",
    )
    return tmp_path, photos, words, command(*words)


def test_info_says_that_the_accuracy_was_measured_before_photos_were_added(fitted, command, real_photos):
    folder, _, words, _ = fitted
    assert command(*words, "--voter", "snbnl").code == 0
    assert "was measured before" not in command("info", folder / "m.patchvote").out
    (folder / "more" / "cat").mkdir(parents=True)
    shutil.copy(real_photos / "chelsea.png", folder / "more" / "cat")
    shutil.copy(real_photos / "coins.png", folder / "more" / "cat")
    assert command("add", folder / "m.patchvote", folder / "more", "--no-cache").code == 0
    said = command("info", folder / "m.patchvote").out
    assert "That was measured before 2 photos were added" in said
    assert "That was measured before 2 photos were added" in command("info", folder / "m.patchvote", "--card").out


def test_the_accuracy_of_an_adapted_model_is_said_to_be_of_before():
    scores = {"interval": [0.5, 0.9], "accuracy": 0.8, "images": 10}
    about, added = About(held_out=scores), {"date": "", "images": {"a": 2, "b": 1}}
    assert "measured before" not in accuracy_of(about)
    adapted = dataclasses.replace(about, adapted={"photos": 3})
    assert "before it was adapted to other photos" in accuracy_of(adapted)
    both = accuracy_of(dataclasses.replace(adapted, added=[added]))
    assert "before 3 photos were added and it was adapted to other photos" in both


def test_a_class_with_one_photo_is_named_as_missing_from_the_accuracy(fitted, command, real_photos):
    _, photos, words, before = fitted
    assert "says nothing of" not in before.out
    (photos / "cat").mkdir()
    shutil.copy(real_photos / "chelsea.png", photos / "cat")
    assert "This says nothing of cat (it has one photo): a class is measured on photos" in command(*words).out
    told = json.loads(command(*words, "--json").out)
    assert told["held_out"]["left_out"] == {"cat": "it has one photo"}


def test_classes_without_a_photo_are_named_by_evaluate(fitted, command):
    folder, photos, _, _ = fitted
    shutil.rmtree(photos / "grass")
    done = command("evaluate", folder / "m.patchvote", photos, "--no-report")
    assert "This says nothing of grass: none of these photos is of it." in done.out


def test_photos_that_cannot_be_read_by_their_type_are_counted_and_named(fitted, command):
    folder, photos, words, before = fitted
    assert (before.code, before.err) == (0, "")
    (photos / "brick" / "notes.txt").write_text("not a photo")
    assert command(*words).err == ""
    for name in ("brick/IMG_1.NEF", "brick/IMG_2.nef", "grass/raw.cr2"):
        (photos / name).write_bytes(b"photo")
    said = "passed over files: 2 with .nef, 1 with .cr2 (the first is brick/IMG_1.NEF)"
    for command_words in (
        words,
        ("evaluate", folder / "m.patchvote", photos, "--no-report"),
        ("add", folder / "m.patchvote", photos, "--no-cache"),
        ("extract", photos, folder / "store", "--network", folder / "tiny.onnx"),
    ):
        done = command(*command_words)
        assert said in done.err, command_words
        assert "Convert such photos" in done.err
        assert done.code == 3
        told = json.loads(command(*command_words, "--json").out)
        assert told["passed_over"]["types"] == {".nef": 2, ".cr2": 1}
    done = command("predict", folder / "m.patchvote", photos)
    assert said in done.err
    assert (done.code, done.out.count("\n")) == (3, 41)


def test_a_class_folder_without_photos_is_named(fitted, command):
    _, photos, words, _ = fitted
    (photos / "tulip").mkdir()
    (photos / "rose" / "old").mkdir(parents=True)
    done = command(*words)
    assert "no photo was found in the folders rose, tulip: they do not become classes." in done.err
    assert done.code == 0
    assert json.loads(command(*words, "--json").out)["passed_over"]["empty"] == ["rose", "tulip"]


def test_a_folder_of_such_files_alone_is_refused_with_a_way_on(command, tmp_path):
    (tmp_path / "cat").mkdir()
    (tmp_path / "cat" / "1.jxl").write_bytes(b"photo")
    done = command("fit", tmp_path, tmp_path / "m.patchvote")
    assert done.code == 1
    assert "1 with .jxl" in done.err
    assert "Convert" in done.err


def test_photos_of_a_target_that_cannot_be_read_by_their_type_are_named_too(fitted, command):
    folder, photos, words, _ = fitted
    target = shutil.copytree(photos, folder / "target")
    (target / "brick" / "IMG_1.jxl").write_bytes(b"photo")
    (target / "empty").mkdir()
    done = command(*words, "--target", target)
    assert "1 with .jxl (the first is brick/IMG_1.jxl)" in done.err
    assert "empty" not in done.err
    assert done.code == 3
