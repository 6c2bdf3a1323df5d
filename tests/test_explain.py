"""Pictures of evidence as a command: of many photos, with captions in every script for which there is a font."""

from __future__ import annotations

import io
import json
import shutil
import sys
from pathlib import Path

import matplotlib
import numpy as np
import pytest
from fontTools.ttLib import TTFont
from PIL import Image, ImageDraw

from patchvote import ImageClassifier, PatchvoteError
from patchvote.models.report import picture
from patchvote.models.report.picture import draw_caption, missing_sentence


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


# --- many photos ------------------------------------------------------------------------------------------------------


def test_a_folder_of_photos_becomes_a_folder_of_pictures(place, command):
    done = command("explain", "m.patchvote", "photos/iris")
    assert done.code == 0, done.err
    assert names(place / "evidence") == {f"{i}-evidence.png" for i in range(6)}
    assert "photos/iris/3.jpg:\n" in done.out
    assert "wrote evidence/3-evidence.png" in done.out
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
    assert len(names(place / "out")) == 5
    told = [json.loads(line) for line in done.out.splitlines()]
    assert [one["photo"] for one in told if "error" in one] == ["photos/iris/2.jpg"]
    assert command("explain", "m.patchvote", "photos/iris/2.jpg", "nope.jpg").code == 1
    assert command("explain", "m.patchvote", "photos/iris/2.jpg").code == 1
    classifier = ImageClassifier.load("m.patchvote")
    found = list(classifier.explain_each(["photos/iris/1.jpg", "photos/iris/2.jpg", "photos/rose/1.jpg"]))
    assert [evidence.name for evidence in found] == ["photos/iris/1.jpg", "photos/rose/1.jpg"]
    assert [error.name for error in classifier.skipped] == ["photos/iris/2.jpg"]
    with pytest.raises(PatchvoteError, match="explain_each takes many"):
        classifier.explain("photos")


def test_arrays_and_matches_of_many_photos_from_standard_input_have_names_of_their_own(place, command, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.StringIO("photos/iris/1.jpg\nphotos/rose/1.jpg\n"))
    done = command("explain", "n.patchvote", "-", "--arrays", "npz", "--photos", "photos")
    assert done.code == 0, done.err
    stems = ("1-evidence", "1-evidence (2)")
    assert names(place / "evidence") == {f"{stem}{more}.png" for stem in stems for more in ("", "-matches")}
    assert names(place / "npz") == {f"{stem}.npz" for stem in stems}


def test_pictures_are_made_again_but_no_other_file_is_replaced(place, command):
    shutil.copytree("photos/iris", "new")
    words = ("explain", "m.patchvote", "new", "-o", "new/why")
    assert command(*words).code == 0
    done = command(*words)
    assert done.code == 0
    assert "left out 6 photos in new/why" in done.err  # the folder may be among the photos
    shutil.copy("photos/iris/1.jpg", "new/why/3-evidence.png")
    done = command(*words)
    assert done.code == 1
    assert "patchvote did not write" in done.err


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


def test_letters_of_europe_and_vietnam_need_no_font_of_the_machine(no_fonts):
    apart = "Cafe\N{COMBINING ACUTE ACCENT}"
    assert missing_sentence(["Ünïcödé", "Straße & Café", "Łódź", "Việt Nam", "Ελλάδα", "Живой", "10 €", apart]) is None
    assert np.array_equal(drawn(apart), drawn("Café"))


def test_characters_without_a_font_are_named_once_until_a_font_is_installed(no_fonts, place, command):
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
