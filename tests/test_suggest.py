"""Which photos to label next: uncertain, unlike one another, each once."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from patchvote import ImageClassifier
from patchvote.models.suggest import _CANDIDATES, next_labels, uncertainty


@given(st.integers(0, 10_000), st.integers(1, 12))
def test_those_that_are_chosen_are_different_uncertain_and_in_order(seed, count):
    rng = np.random.default_rng(seed)
    photos = int(rng.integers(1, 80))
    probability, means = rng.dirichlet(np.ones(4), photos), rng.random((photos, 6))
    chosen = next_labels(probability, means, count)
    assert len(chosen) == len(set(chosen.tolist())) == min(count, photos)
    doubt = uncertainty(probability)
    np.testing.assert_allclose(doubt, [1 - (sorted(row)[-1] - sorted(row)[-2]) for row in probability])
    assert list(doubt[chosen]) == sorted(doubt[chosen], reverse=True)
    assert set(chosen) <= set(np.argsort(-doubt, kind="stable")[: _CANDIDATES * count])


def test_of_two_kinds_of_uncertain_photos_both_are_chosen():
    rng = np.random.default_rng(0)
    means = np.r_[np.tile([1.0, 0.1], (9, 1)), np.tile([0.1, 1.0], (3, 1))] + 0.01 * rng.random((12, 2))
    lead = np.linspace(0, 0.1, 12)  # the first kind is the more uncertain one
    probability = np.stack([0.5 + lead / 2, 0.5 - lead / 2], axis=1)
    assert sorted(index >= 9 for index in next_labels(probability, means, 2)) == [False, True]
    assert next_labels(probability[:9], means[:9], 2).max() < 9


def test_of_copies_one_is_chosen_the_most_uncertain():
    probability = np.array([[0.9, 0.1], [0.5, 0.5], [0.6, 0.4]])
    means = np.eye(3)
    assert next_labels(probability, means, 3, np.array([0, 0, 2])).tolist() == [1, 2]


@pytest.fixture
def unlabelled(place):
    (place / "new").mkdir()
    for index in range(8):
        pixels = np.random.default_rng(index).integers(0, 100, (64, 64, 3)) + 17 * index
        Image.fromarray(pixels.astype(np.uint8)).save(place / "new" / f"{index}.png")
    return place / "new"


def test_the_command_suggests_uncertain_photos_like_predict_prints_them(unlabelled, place, command):
    shutil.copy(unlabelled / "3.png", unlabelled / "copy of 3.png")
    shutil.copy(place / "photos/iris/1.jpg", unlabelled / "learned.jpg")
    (unlabelled / "broken.jpg").write_bytes(b"no photo")
    done = command("suggest", "m.patchvote", "new", "-n", 3, "--json")
    assert done.code == 3
    assert "skipped new/broken.jpg" in done.err
    rows = [json.loads(line) for line in done.out.splitlines()]
    assert len(rows) == 3
    margins = [row["likeliest_probability"] - row["runner_up_probability"] for row in rows]
    assert margins == sorted(margins)
    answers = [json.loads(line) for line in command("predict", "m.patchvote", "new", "--json").out.splitlines()]
    by_file = {row["file"]: row for row in answers}
    assert all(row == by_file[row["file"]] for row in rows)
    done = command("suggest", "m.patchvote", "new", "-n", 50)
    everything = done.out.splitlines()
    assert len(everything) == 1 + 8  # the copy, the learned and the broken one are left out
    answers = ImageClassifier.load("m.patchvote").suggest(unlabelled, 3)
    assert [f"new/{answer.name}" for answer in answers] == [row["file"] for row in rows]


def test_suggested_photos_are_copied_for_labelling(unlabelled, place, command):
    done = command("suggest", "m.patchvote", "new", "-n", 4, "-o", "next.csv", "--copy-into", "label")
    assert done.code == 0, done.err
    names = [line.split(",")[0].removeprefix("new/") for line in (place / "next.csv").read_text().splitlines()[1:]]
    assert sorted(path.name for path in (place / "label").iterdir()) == sorted(names)
    assert len(list(unlabelled.iterdir())) == 8
    assert "`patchvote add m.patchvote label`" in done.err
    assert command("suggest", "m.patchvote", "new", "-n", 4, "-q").err == ""
