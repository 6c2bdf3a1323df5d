"""`predict --sort-into`: photos in a folder per class; nothing is overwritten, lost or put elsewhere."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from helpers.command import content
from patchvote import ImageClassifier
from patchvote.models.answers import Answer
from patchvote.models.file import write_model
from patchvote.models.sorting import Sorter
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


@pytest.mark.parametrize("how", [(), ("--move",), ("--link",)])
def test_rejected_photos_have_a_folder_and_those_that_an_earlier_run_put_elsewhere_stay(how, place, command):
    model = ImageClassifier.load("m.patchvote").model
    write_model(dataclasses.replace(model, threshold=1.0, familiarity=None), place / "strict.patchvote")
    done = command("predict", "strict.patchvote", "photos/iris", "--sort-into", "new", "-q")
    assert (done.code, done.err) == (0, "")
    assert {path.name for path in (place / "new").iterdir()} == {"none of these"}
    assert "another folder" not in command("predict", "m.patchvote", "photos", "--sort-into", "sorted").err
    before = content(place / "sorted")
    done = command("predict", "strict.patchvote", "photos", "--sort-into", "sorted", *how)
    assert done.code == 0, done.err
    named_before = sum(not name.startswith("none of these/") for name in before)
    assert f"{named_before} photos are in another folder of sorted" in done.err
    assert before.items() <= content(place / "sorted").items()


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


def test_words_that_cannot_be_meant_are_refused_before_any_work(place, command):
    before = content(place)
    for words, says, code in (
        (("--link",), "--link", 2),
        (("--move",), "--move", 2),
        (("--sort-into", "sorted", "--link", "--move"), "exclude", 2),
        (("--sort-into", "m.patchvote"), "not a folder", 1),
    ):
        done = command("predict", "m.patchvote", "photos", *words)
        assert (done.code, says in done.err) == (code, True)
        assert content(place) == before


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
