"""Evidence: maps of votes, pictures of them, and the training photos that pulled a photo to its class."""

from __future__ import annotations

import dataclasses
import json
import re
import shutil
from pathlib import Path

import matplotlib
import numpy as np
import pytest
from fontTools.ttLib import TTFont
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image, ImageDraw

from helpers.quick_network import loaded, quick, shades
from patchvote import Bags, Evidence, ImageClassifier, LocalNBNN, PatchvoteError, Photo
from patchvote.models.report import picture
from patchvote.models.report.picture import draw_caption, glow, missing_sentence

TRACING = ("moment-ridge", "nbnn", "local-nbnn")


def some_evidence(count: int = 20, seed: int = 0, boxes: np.ndarray | None = None) -> Evidence:
    rng = np.random.default_rng(seed)
    if boxes is None:
        boxes = np.sort(rng.uniform(0, 1, (count, 2, 2)), axis=1).reshape(count, 4)
    votes = rng.normal(size=(count, 3))
    return Evidence("photo.jpg", ("cat", "dog", "fox"), votes, boxes, np.array([0.2, 0.5, 0.3]))


# --- maps -------------------------------------------------------------------------------------------------------------


@given(st.integers(1, 40), st.integers(1, 40), st.integers(0, 1000))
def test_a_map_adds_up_to_the_decision_value(width, height, seed):
    evidence = some_evidence(seed=seed)
    for number, label in enumerate(evidence.classes):
        assert evidence.map(label, width, height).sum() == pytest.approx(evidence.decision[number], abs=1e-9)


def test_maps_and_contrasts_are_what_the_definition_says():
    evidence = some_evidence(5)
    expected = np.zeros((12, 16))
    for vote, (left, top, right, bottom) in zip(evidence.votes[:, 1], evidence.boxes, strict=True):
        for y in range(12):
            for x in range(16):
                wide = max(0, min(right, (x + 1) / 16) - max(left, x / 16)) / (right - left)
                high = max(0, min(bottom, (y + 1) / 12) - max(top, y / 12)) / (bottom - top)
                expected[y, x] += vote / 5 * wide * high
    np.testing.assert_allclose(evidence.map("dog", 16, 12), expected, atol=1e-12)
    smaller = some_evidence(1, boxes=np.array([[0.51, 0.51, 0.52, 0.52]]))  # than a pixel: it keeps its vote
    assert smaller.map("cat", 2, 2)[1, 1] == pytest.approx(smaller.votes[0, 0])
    others = evidence.votes[:, [0, 2]].max(axis=1)
    np.testing.assert_allclose(evidence.advantage("dog"), evidence.votes[:, 1] - others)
    assert evidence.contrast("dog", 8, 8).sum() == pytest.approx(evidence.advantage("dog").mean())
    with pytest.raises(PatchvoteError, match="Did you mean 'dog'"):
        evidence.map("dgo", 2, 2)


# --- pictures ---------------------------------------------------------------------------------------------------------


def test_the_photo_is_lit_where_it_speaks_for_the_class_and_dim_elsewhere():
    boxes = np.array([[0, 0, 0.5, 1], [0.5, 0, 1, 1]])
    evidence = Evidence("p", ("cat", "dog"), np.array([[5.0, 0], [0, 5.0]]), boxes, np.array([0.5, 0.5]))
    image = Image.new("RGB", (160, 80), (200, 60, 60))
    lit = np.asarray(glow(evidence, image, "cat"), np.int64)
    assert lit[40, 20, 0] - lit[40, 20, 2] > 80  # red, as the photo is
    assert np.ptp(lit[40, 140]) < 5  # grey
    assert np.ptp(np.asarray(glow(evidence, image, "dog"), np.int64)[40, 20]) < 5


def test_evidence_is_drawn_beside_its_photo_or_without_it_if_that_is_gone(tmp_path):
    path = tmp_path / "p.png"
    Image.effect_noise((90, 60), 80).convert("RGB").save(path)
    evidence = dataclasses.replace(some_evidence(), photo=Photo("p.png", path))
    shown = np.asarray(evidence.plot(["cat"], side=90), float)[12:72, 12:102]
    assert np.abs(shown - np.asarray(Image.open(path))).mean() < 3
    assert evidence._repr_png_()[:4] == b"\x89PNG"
    path.unlink()
    assert evidence.plot(side=80).width > 240


# --- training photos --------------------------------------------------------------------------------------------------


def test_local_nbnn_adds_up_the_votes_that_each_image_has_given():
    rng, labels = np.random.default_rng(0), np.array(list("abc") * 8)
    bags = Bags.of([rng.random((12, 9)) + 2 * np.eye(9)["abc".index(label)] for label in labels])
    voter = LocalNBNN(confidence=0).fit(bags, labels)
    photo = Bags.of([rng.random((12, 9)) + 1])
    for number in range(3):
        pulls = voter.scorer().pulls(photo, number)
        assert pulls.sum() == pytest.approx(voter.votes(photo)[:, number].sum(), rel=1e-5)
        assert not pulls[labels != "abc"[number]].any()


@pytest.fixture(scope="module")
def mislabelled():
    """Photos of three shades; the last, a dark one, has the label of the light ones."""
    photos, labels = shades(25)
    return photos, [*labels[:-1], "light"]


@pytest.mark.parametrize("voter", TRACING)
def test_a_wrong_label_is_named_where_it_pulls_and_names_travel_with_the_model(voter, mislabelled, tmp_path):
    photos, labels = mislabelled
    classifier = quick(voter).fit(photos, labels)
    evidence = classifier.explain([photos[-1]], "light")
    assert evidence.pulls[0].name == "image 24"
    assert {pull.label for pull in evidence.pulls} == {"light"}
    shares = [pull.share for pull in evidence.pulls]
    assert shares == sorted(shares, reverse=True)
    assert 0 < sum(shares) <= 1 + 1e-9
    classifier.save(tmp_path / "m.patchvote")
    again = loaded(tmp_path / "m.patchvote")
    assert again.explain([photos[-1]], "light").pulls == evidence.pulls
    grey = np.roll(photos[1], 1, axis=0)
    again.add([grey], ["light"])
    assert again.explain([grey], "light").pulls[0].name == "image 0"
    assert len(again.model.names) == 26


@pytest.mark.parametrize("voter", TRACING)
def test_mistakes_name_photos_that_were_learned_from_and_never_themselves(voter, mislabelled):
    photos, labels = mislabelled
    classifier = quick(voter).fit(photos, labels, held_out=["image 24"])
    (mistake,) = [one for one in classifier.mistakes() if one.name == "image 24"]
    assert {labels[int(pull.name.removeprefix("image "))] for pull in mistake.pulls} == {"dark"}


def test_explain_prints_them_and_says_where_it_cannot(place, command):
    photo = "photos/iris/1.jpg"
    assert re.search(r"pulled it most to iris.*\d %  iris/\d.jpg\n", command("explain", "m.patchvote", photo).out, re.S)
    told = json.loads(command("explain", "n.patchvote", photo, "--json").out)
    assert told["pulls"][0] == {"name": "iris/1.jpg", "label": "iris", "share": pytest.approx(1.0)}
    ImageClassifier.load("m.patchvote").save("small.patchvote", memory=False)
    ImageClassifier.load("m.patchvote", cache=False).adapt("photos", insist=True).save("adapted.patchvote")
    ImageClassifier("tiny.onnx", voter="snbnl", cache=False).fit("photos").save("s.patchvote")
    for model, said in (("s", "snbnl"), ("adapted", "adapted"), ("small", "memory")):
        assert said in command("explain", f"{model}.patchvote", photo).out


# --- many photos ------------------------------------------------------------------------------------------------------


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_a_folder_of_photos_becomes_a_folder_of_pictures_which_may_be_made_again(place, command):
    done = command("explain", "m.patchvote", "photos/iris")
    assert done.code == 0, done.err
    assert names(place / "evidence") == {f"{i}-evidence.png" for i in range(6)}
    assert Image.open("evidence/3-evidence.png").width > 400
    words = ("explain", "m.patchvote", "photos/iris", "-o", "photos/iris/why")
    assert command(*words).code == command(*words).code == 0  # the folder may be among the photos
    shutil.copy("photos/iris/1.jpg", "photos/iris/why/3-evidence.png")
    done = command(*words)
    assert (done.code, "--force" in done.err) == (1, True)


def test_names_that_collide_do_not_overwrite(place, command):
    (place / "a.csv").write_text("file_name\nphotos/iris/1.jpg\nphotos/rose/1.jpg\n")
    shutil.copy("photos/rose/1.jpg", "1.JPG")
    done = command("explain", "m.patchvote", "a.csv", "1.JPG", "photos/iris/1.jpg", "-o", "new", "--json")
    told = [json.loads(line) for line in done.out.splitlines()]
    assert [one["photo"] for one in told][:3] == ["photos/iris/1.jpg", "photos/rose/1.jpg", "1.JPG"]
    assert [one["files"] for one in told] == [[f"new/1-evidence{more}.png"] for more in ("", " (2)", " (3)", " (4)")]
    contents = [(place / file).read_bytes() for one in told for file in one["files"]]
    assert (contents[0] == contents[3], len(set(contents))) == (True, 3)
    done = command("explain", "n.patchvote", "photos/*/1.jpg", "--arrays", "npz", "--photos", "photos")
    assert done.code == 0, done.err
    stems = ("1-evidence", "1-evidence (2)")
    assert names(place / "evidence") == {f"{stem}{more}.png" for stem in stems for more in ("", "-matches")}
    assert names(place / "npz") == {f"{stem}.npz" for stem in stems}


def test_a_bad_photo_is_named_and_skipped(place, command):
    (place / "photos" / "iris" / "2.jpg").write_bytes(b"no photo")
    done = command("explain", "m.patchvote", "photos/iris/*.jpg", "-o", "out", "--json")
    assert done.code == 3
    assert "skipped photos/iris/2.jpg: " in done.err
    assert len(names(place / "out")) == 5
    told = [json.loads(line) for line in done.out.splitlines()]
    assert [one["photo"] for one in told if "error" in one] == ["photos/iris/2.jpg"]
    assert command("explain", "m.patchvote", "photos/iris/2.jpg", "nope.jpg").code == 1


# --- captions ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def no_fonts(monkeypatch, tmp_path):
    """A machine without any fonts; returns the folder in which a user would install one."""
    for name in ("HOME", "XDG_DATA_HOME", "XDG_DATA_DIRS"):
        monkeypatch.setenv(name, str(tmp_path))
    (tmp_path / "fonts").mkdir()

    def forget():
        picture._font_for.cache_clear()
        picture._machine_fonts.cache_clear()

    forget()
    yield tmp_path / "fonts"
    forget()


def drawn(text: str, width: float = 300) -> np.ndarray:
    sheet = Image.new("RGB", (320, 40), "white")
    draw_caption(ImageDraw.Draw(sheet), (0, 25), text, (0, 0, 0), width)
    return np.asarray(sheet)


def test_characters_without_a_font_are_named_once_until_a_font_is_installed(no_fonts, place, command):
    apart = "Cafe\N{COMBINING ACUTE ACCENT}"
    assert missing_sentence(["Straße & Café", "Łódź", "Việt Nam", "Ελλάδα", "Живой", "10 €", apart]) is None
    assert np.array_equal(drawn(apart), drawn("Café"))
    assert "boxes in place of 桜東京: no" in missing_sentence(["桜.jpg", "東京"])
    box = drawn("桜")
    assert box.min() < 128
    shutil.copy("photos/iris/1.jpg", place / "桜 1.jpg")
    assert command("explain", "m.patchvote", "桜 1.jpg", "photos/iris/1.jpg").err.count("boxes in place of 桜:") == 1
    font = TTFont(Path(matplotlib.get_data_path()) / "fonts" / "ttf" / "DejaVuSans.ttf")
    for table in font["cmap"].tables:
        table.cmap[ord("桜")] = table.cmap.get(ord("W"), ".notdef")
    font.save(no_fonts / "NotoSans-Regular.ttf")
    (no_fonts / "msgothic.ttc").write_text("no font")
    picture._font_for.cache_clear()
    picture._machine_fonts.cache_clear()
    assert missing_sentence(["桜"]) is None
    assert not np.array_equal(drawn("桜"), box)
