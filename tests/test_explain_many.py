"""Many photos are explained at once: pictures in a folder, one photo after the other."""

from __future__ import annotations

import io
import json
import shutil
import sys

import pytest
from PIL import Image

from patchvote import ImageClassifier, PatchvoteError
from patchvote.models.report import captions


def test_a_folder_of_photos_becomes_a_folder_of_pictures(place, command):
    done = command("explain", "m.patchvote", "photos/iris")
    assert done.code == 0, done.err
    assert sorted(path.name for path in (place / "evidence").iterdir()) == [f"{i}-evidence.png" for i in range(6)]
    assert "photos/iris/3.jpg:\n" in done.out
    assert f"wrote {'evidence/3-evidence.png'}" in done.out
    assert Image.open("evidence/3-evidence.png").width > 400


def test_names_that_collide_do_not_overwrite(place, command):
    (place / "a.csv").write_text("file_name\nphotos/iris/1.jpg\nphotos/rose/1.jpg\n")
    shutil.copy("photos/rose/1.jpg", "1.JPG")
    done = command("explain", "m.patchvote", "a.csv", "1.JPG", "photos/iris/1.jpg", "-o", "new", "--json")
    told = [json.loads(line) for line in done.out.splitlines()]
    files = [one["files"] for one in told]
    assert files == [[f"new/1-evidence{number}.png"] for number in ("", " (2)", " (3)", " (4)")]
    assert [one["photo"] for one in told][:3] == ["photos/iris/1.jpg", "photos/rose/1.jpg", "1.JPG"]
    contents = [(place / file).read_bytes() for (file,) in files]
    assert contents[0] == contents[3]
    assert len(set(contents)) == 3


def test_a_bad_photo_is_named_and_skipped(place, command):
    (place / "photos" / "iris" / "2.jpg").write_bytes(b"no photo")
    done = command("explain", "m.patchvote", "photos/iris/*.jpg", "-o", "out", "--json")
    assert done.code == 3
    assert "skipped photos/iris/2.jpg: " in done.err
    assert len(list((place / "out").iterdir())) == 5
    told = [json.loads(line) for line in done.out.splitlines()]
    assert [one["photo"] for one in told if "error" in one] == ["photos/iris/2.jpg"]
    done = command("explain", "m.patchvote", "photos/iris/2.jpg", "nope.jpg")
    assert done.code == 1
    assert command("explain", "m.patchvote", "photos/iris/2.jpg").code == 1


def test_paths_come_from_standard_input_as_well(place, command, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.StringIO("photos/iris/1.jpg\nphotos/rose/2.jpg\n"))
    assert command("explain", "m.patchvote", "-", "-q").code == 0
    assert len(list((place / "evidence").iterdir())) == 2


def test_arrays_and_matches_of_many_photos_have_names_of_their_own(place, command):
    done = command(
        "explain", "n.patchvote", "photos/iris/1.jpg", "photos/rose/1.jpg", "--arrays", "npz", "--photos", "photos"
    )
    assert done.code == 0, done.err
    assert sorted(path.name for path in (place / "evidence").iterdir()) == [
        "1-evidence (2)-matches.png",
        "1-evidence (2).png",
        "1-evidence-matches.png",
        "1-evidence.png",
    ]
    assert sorted(path.name for path in (place / "npz").iterdir()) == ["1-evidence (2).npz", "1-evidence.npz"]


def test_pictures_are_made_again_but_no_other_file_is_replaced(place, command):
    words = ("explain", "m.patchvote", "photos/iris/1.jpg", "photos/iris/3.jpg")
    for _ in range(2):
        assert command(*words).code == 0
    shutil.copy("photos/iris/1.jpg", "evidence/3-evidence.png")
    done = command(*words)
    assert done.code == 1
    assert "patchvote did not make" in done.err


def test_the_folder_of_pictures_may_be_among_the_photos(place, command):
    (place / "new").mkdir()
    shutil.copy("photos/iris/1.jpg", "new/1.jpg")
    words = ("explain", "m.patchvote", "new", "-o", "new/why")
    assert command(*words).code == 0
    done = command(*words)
    assert done.code == 0
    assert "left out 1 photo in new/why" in done.err
    assert [path.name for path in (place / "new" / "why").iterdir()] == ["1-evidence.png"]


def test_in_python_photos_that_cannot_be_read_are_left_out(place):
    classifier = ImageClassifier.load("m.patchvote")
    (place / "broken.jpg").write_bytes(b"no")
    found = list(classifier.explain_each(["photos/iris/1.jpg", "broken.jpg", "photos/rose/1.jpg"]))
    assert [evidence.name for evidence in found] == ["photos/iris/1.jpg", "photos/rose/1.jpg"]
    assert [error.name for error in classifier.skipped] == ["broken.jpg"]
    with pytest.raises(PatchvoteError, match="got 12: explain_each takes many"):
        classifier.explain("photos")


def test_characters_without_a_font_are_told_once_per_command(place, command, monkeypatch):
    monkeypatch.setattr(captions, "font_of", lambda character: captions._own() if character.isascii() else None)
    for name in ("桜 1.jpg", "東京.jpg", "桜 2.jpg"):
        shutil.copy("photos/iris/1.jpg", place / name)
    done = command("explain", "m.patchvote", "桜 1.jpg", "桜 2.jpg", "東京.jpg")
    assert done.code == 0
    assert done.err.count("boxes in place of 桜東京") == done.err.count("boxes in place of") == 1


def test_pictures_are_called_like_their_photos(place, command):
    names = ['it\'s "q" & <b>', "-y", "100 %"]
    for name in names:
        shutil.copy("photos/iris/1.jpg", place / f"{name}.jpg")
    assert command("explain", "m.patchvote", *(f"./{name}.jpg" for name in names)).code == 0
    assert {path.name for path in (place / "evidence").iterdir()} == {f"{name}-evidence.png" for name in names}
