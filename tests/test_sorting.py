"""Photos in a folder per class, where nothing is overwritten, lost or put elsewhere; and which to label next."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from helpers.command import content
from patchvote.models.answers import Answer
from patchvote.models.sorting import Sorter
from patchvote.models.suggest import _CANDIDATES, next_labels, uncertainty
from test_placing import HOSTILE


@pytest.mark.parametrize("how", ["copied", "linked", "moved"])
def test_photos_are_copied_linked_or_moved_into_a_folder_per_class(how, place, command):
    before, flag = content(place / "photos"), {"linked": ["--link"], "moved": ["--move"]}.get(how, [])
    done = command("predict", "m.patchvote", "photos", "photos/iris/1.jpg", "--sort-into", "sorted", *flag)
    assert done.code == 0, done.err
    assert done.err.startswith(f"{how} 12 photos into sorted: ")
    assert content(place / "photos") == ({} if how == "moved" else before)
    rows = {tuple(line.split(",")[:2]) for line in done.out.splitlines()[1:]}
    found = [path for path in (place / "sorted").rglob("*") if not path.is_dir()]
    assert all(path.is_symlink() == (how == "linked") for path in found)
    expected = sorted((name.split("/")[-1], label.strip('"')) for name, label in rows)
    assert sorted((path.name.replace(" (2)", ""), path.parent.name) for path in found) == expected
    assert sorted(content(place / "sorted").values()) == sorted(before.values())


def test_a_second_run_adds_nothing_and_a_folder_inside_the_photos_is_left_out(place, command):
    run = ("predict", "m.patchvote", "photos", "--sort-into", "photos/sorted")
    command(*run)
    before = content(place)
    for how, said in (((), "copied 0 photos"), (("--link",), "linked 0 photos")):  # no links beside copies
        done = command(*run, *how)
        assert done.code == 0
        assert "left out 12 photos in photos/sorted" in done.err
        assert said in done.err
        assert content(place) == before  # also photos of one name in one class, which got numbers
    done = command("predict", "m.patchvote", "photos", "--sort-into", "photos")
    assert (done.code, "already" in done.err) == (1, True)


def test_photos_that_cannot_be_read_or_put_there_are_told_and_the_others_are_sorted(place, command):
    (place / "photos/iris/broken.jpg").write_bytes(b"no photo")
    (place / "photos/iris/link.jpg").symlink_to(place / "photos/iris/1.jpg")
    done = command("predict", "m.patchvote", "photos/iris", "--sort-into", "sorted", "--move")
    assert done.code == 3
    assert "skipped photos/iris/broken.jpg" in done.err
    assert "photos/iris/link.jpg: it cannot be moved" in done.err
    assert {path.name for path in (place / "photos/iris").iterdir()} == {"broken.jpg", "link.jpg"}


def test_no_class_of_a_model_leads_out_of_the_folder(tmp_path):
    (tmp_path / "in").mkdir()
    sorter = Sorter(tmp_path / "a" / "b" / "sorted", HOSTILE)
    for index, label in enumerate(HOSTILE):
        source = tmp_path / "in" / f"{index}.jpg"
        source.write_text(label, encoding="utf-8", errors="surrogatepass")
        sorter.put(Answer(source.name, (label,), np.array([0.9])), source)
    rejected = tmp_path / "in" / "rejected.jpg"
    rejected.write_text("rejected")
    sorter.put(Answer("rejected.jpg", tuple(HOSTILE[:1]), np.array([0.1]), rejected=True), rejected)
    files = [path for path in tmp_path.rglob("*") if path.is_file() and path.parent.name != "in"]
    assert {path.parents[1] for path in files} == {tmp_path / "a" / "b" / "sorted"}
    assert len({path.parent for path in files}) == len(HOSTILE) + 1
    assert content(tmp_path / "a/b/sorted/none of these") == {"rejected.jpg": b"rejected"}


# --- which to label next ----------------------------------------------------------------------------------------------


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


def test_of_two_kinds_of_uncertain_photos_both_are_chosen_and_of_copies_one():
    rng = np.random.default_rng(0)
    means = np.r_[np.tile([1.0, 0.1], (9, 1)), np.tile([0.1, 1.0], (3, 1))] + 0.01 * rng.random((12, 2))
    lead = np.linspace(0, 0.1, 12)  # the first kind is the more uncertain one
    probability = np.stack([0.5 + lead / 2, 0.5 - lead / 2], axis=1)
    assert sorted(index >= 9 for index in next_labels(probability, means, 2)) == [False, True]
    assert next_labels(probability[:9], means[:9], 2).max() < 9
    probability = np.array([[0.9, 0.1], [0.5, 0.5], [0.6, 0.4]])  # of copies, the most uncertain one
    assert next_labels(probability, np.eye(3), 3, np.array([0, 0, 2])).tolist() == [1, 2]


def test_the_command_suggests_uncertain_photos_like_predict_prints_them(place, command):
    unlabelled = place / "new"
    unlabelled.mkdir()
    for index in range(8):
        pixels = np.random.default_rng(index).integers(0, 100, (64, 64, 3)) + 17 * index
        Image.fromarray(pixels.astype(np.uint8)).save(unlabelled / f"{index}.png")
    shutil.copy(unlabelled / "3.png", unlabelled / "copy of 3.png")
    shutil.copy(place / "photos/iris/1.jpg", unlabelled / "learned.jpg")
    (unlabelled / "broken.jpg").write_bytes(b"no photo")
    done = command("suggest", "m.patchvote", "new", "-n", 3, "--json")
    assert (done.code, "skipped new/broken.jpg" in done.err) == (3, True)
    rows = [json.loads(line) for line in done.out.splitlines()]
    assert len(rows) == 3
    margins = [row["likeliest_probability"] - row["runner_up_probability"] for row in rows]
    assert margins == sorted(margins)
    answers = [json.loads(line) for line in command("predict", "m.patchvote", "new", "--json").out.splitlines()]
    by_file = {row["file"]: row for row in answers}
    assert all(row == by_file[row["file"]] for row in rows)
    everything = command("suggest", "m.patchvote", "new", "-n", 50).out.splitlines()
    assert len(everything) == 1 + 8  # the copy, the learned and the broken one are left out
    command("suggest", "m.patchvote", "new", "-n", 4, "-o", "next.csv", "--copy-into", "label")
    names = [line.split(",")[0].removeprefix("new/") for line in (place / "next.csv").read_text().splitlines()[1:]]
    assert sorted(path.name for path in (place / "label").iterdir()) == sorted(names)
