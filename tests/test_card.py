"""What is said about a model is what was done: its card, and what commands say of photos that they left out."""

from __future__ import annotations

import dataclasses
import json
import shutil

import numpy as np
import pytest

from helpers.quick_network import QUICK, QuickNetwork
from helpers.small_models import ridge_model
from patchvote import ImageClassifier
from patchvote.models.about import About
from patchvote.models.report.card import accuracy_of, card

HELD_OUT = {"interval": [0.5, 0.9], "accuracy": 0.8, "images": 10}


@pytest.mark.parametrize(
    ("about", "said"),
    [
        ({}, "(95 % confidence)."),
        ({"adapted": {"photos": 3}}, "That was measured before it was adapted to other photos: `patchvote evaluate`"),
        ({"added": [{"date": "", "images": {"a": 2, "b": 1}}]}, "measured before 3 photos were added: `patchvote"),
        (
            {"added": [{"date": "", "images": {"c": 1}, "new_classes": ["c"]}], "adapted": {"photos": 3}},
            "before 1 photo was added (among them the new class c) and it was adapted to other photos",
        ),
        ({"held_out": None, "images": {"a": 1, "b": 1}}, "Two per class that do not look alike are the least"),
        ({"held_out": None, "images": {"a": 3, "b": 3}}, "no photo was held out. `patchvote evaluate` measures it"),
        (
            {"held_out": HELD_OUT | {"classes": {"a": {"images": 0}}, "left_out": {"a": "it has one photo"}}},
            "This says nothing of a (it has one photo): a class is measured on photos",
        ),
    ],
)
def test_the_accuracy_is_told_with_what_was_not_measured_and_what_happened_since(about, said):
    assert said in accuracy_of(About(**{"held_out": HELD_OUT} | about))
    assert ("measured before" in accuracy_of(About(**{"held_out": HELD_OUT} | about))) == ("before" in said)


def test_adding_photos_writes_the_card_anew():
    rng = np.random.default_rng(0)
    photos = [(rng.integers(0, 90, (64, 64, 3)) + 150 * (number % 2)).astype(np.uint8) for number in range(12)]
    classifier = ImageClassifier(QUICK, voter="snbnl", backbone=QuickNetwork(), cache=False)
    classifier.fit(photos[:10], ["a", "b"] * 5).add(photos[10:], ["a", "b"])
    assert "That was measured before 2 photos were added" in classifier.model.card
    assert "- added" in classifier.model.card


def test_the_card_holds_names_as_names_and_commands_as_code():
    model = ridge_model()
    copies = {
        "groups": 1,
        "photos": 2,
        "examples": [["<b>.jpg", "`x`|y.jpg"]],
        "in_several_classes": 2,
        "examples_in_several_classes": [[["1.jpg", "a"], ["*.jpg", "b"]]],
    }
    about = dataclasses.replace(model.about, held_out=HELD_OUT, copies=copies, cut=["<i>"], added=[])
    text = card(dataclasses.replace(model, about=about))
    for part in (
        "It names a photo as one of: a, b, c.",
        "| a | 4 |",
        r"(\<b\>.jpg ~ `x`\|y.jpg)",
        r"1.jpg (a) ~ \*.jpg (b); and 1 more.",
        r"cut it short: \<i\>. A larger `--budget`",
        "Fewer than 10 photos were seen of: a, b, c.",
    ):
        assert part in text
    assert "; `fit --target` and `predict --adapt` make up" in text


# --- photos that are left out -----------------------------------------------------------------------------------------


def test_photos_that_cannot_be_read_by_their_type_are_counted_and_named(place, command):
    for name in ("iris/IMG_1.NEF", "iris/IMG_2.nef", "rose/raw.cr2", "rose/notes.txt"):
        (place / "photos" / name).write_bytes(b"photo")
    for words in (
        ("fit", "photos", "new.patchvote", "--network", "tiny.onnx", "--no-cache", "--no-report", "--force"),
        ("evaluate", "m.patchvote", "photos", "--no-report"),
        ("add", "m.patchvote", "photos", "--no-cache"),
        ("predict", "m.patchvote", "photos"),
    ):
        done = command(*words, "--json")
        assert "2 with .nef, 1 with .cr2 (the first is iris/IMG_1.NEF)" in done.err, words
        assert done.code == 3, words
        told = json.loads(done.out.splitlines()[-1])
        assert words[0] == "predict" or told["passed_over"]["types"] == {".nef": 2, ".cr2": 1}
    target = ("--target", "photos/rose", "--insist", "--network", "tiny.onnx", "--no-cache", "--no-report", "--force")
    (place / "photos" / "iris").rename(place / "iris")
    shutil.copytree("photos/rose", "labelled/rose", ignore=shutil.ignore_patterns("*.cr2"))
    shutil.copytree("iris", "labelled/iris", ignore=shutil.ignore_patterns("*.nef", "*.NEF"))
    assert "1 with .cr2" in command("fit", "labelled", "new.patchvote", *target).err


def test_class_folders_without_photos_are_named_and_evaluated_classes_too(place, command):
    (place / "photos" / "tulip").mkdir()
    (place / "photos" / "oak" / "old").mkdir(parents=True)
    done = command("fit", "photos", "new.patchvote", "--network", "tiny.onnx", "--no-cache", "--no-report", "--json")
    assert done.code == 0
    assert "no photo was found in oak, tulip" in done.err
    assert json.loads(done.out)["passed_over"]["empty"] == ["oak", "tulip"]
    for photo in (place / "photos" / "rose").iterdir():
        photo.unlink()
    assert (
        "This says nothing of rose: none of these photos is of it"
        in command("evaluate", "m.patchvote", "photos", "--no-report").out
    )
