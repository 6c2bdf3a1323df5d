"""Captions of pictures: letters with accents are drawn everywhere, others where a font of the machine has them."""

from __future__ import annotations

import time
from pathlib import Path

import matplotlib
import numpy as np
import pytest
from fontTools.ttLib import TTFont
from PIL import Image, ImageDraw

from patchvote.models.report import captions
from patchvote.models.report.captions import draw_caption, font_of, missing_sentence

BLACK = (0, 0, 0)


@pytest.fixture
def no_fonts(monkeypatch, tmp_path):
    """A machine without any fonts; returns the folder in which a user would install one."""
    for name in ("HOME", "XDG_DATA_HOME", "XDG_DATA_DIRS"):
        monkeypatch.setenv(name, str(tmp_path))
    monkeypatch.setattr(captions.sys, "platform", "linux")

    def forget():
        font_of.cache_clear()
        captions._files.cache_clear()

    forget()
    (tmp_path / "fonts").mkdir()
    yield tmp_path / "fonts"
    forget()


def drawn(text: str, width: float = 300) -> np.ndarray:
    sheet = Image.new("RGB", (320, 40), "white")
    draw_caption(ImageDraw.Draw(sheet), (0, 25), text, BLACK, width)
    return np.asarray(sheet)


@pytest.mark.parametrize("text", ["Ünïcödé", "Straße & Café", "Łódź", "Việt Nam", "Ελλάδα", "Живой", "10 €"])
def test_letters_of_europe_and_vietnam_need_no_font_of_the_machine(text, no_fonts):
    assert missing_sentence([text]) is None


def test_a_letter_with_its_accent_apart_is_drawn_as_one(no_fonts):
    apart = "Cafe\N{COMBINING ACUTE ACCENT}"
    assert missing_sentence([apart]) is None
    assert np.array_equal(drawn(apart), drawn("Café"))


def test_characters_without_a_font_are_named_with_a_font_to_install(no_fonts):
    assert missing_sentence(["桜.jpg", "東京"]) == (
        "Captions show boxes in place of 桜東京: no font on this machine has them. "
        "Install one, such as Noto Sans CJK (package fonts-noto-cjk)."
    )
    assert "Noto Sans of that script" in missing_sentence(["สวัสดี"])
    assert drawn("桜").min() < 128  # a box


def test_an_installed_font_is_found_and_used(no_fonts):
    font = TTFont(Path(matplotlib.get_data_path()) / "fonts" / "ttf" / "DejaVuSans.ttf")
    for table in font["cmap"].tables:
        table.cmap[ord("桜")] = table.cmap.get(ord("W"), ".notdef")
    font.save(no_fonts / "Sakura-Regular.ttf")
    (no_fonts / "broken.ttf").write_text("no font")
    assert missing_sentence(["桜"]) is None
    assert Path(font_of("桜").path).name == "Sakura-Regular.ttf"
    assert np.array_equal(drawn("a桜b"), drawn("aWb"))


def test_a_caption_that_is_too_long_keeps_its_end():
    ink = np.flatnonzero((drawn("long/" * 20 + "name.jpg", 120) < 128).any(axis=(0, 2)))
    assert ink.max() <= 120
    assert np.array_equal(drawn("short.jpg", 120), drawn("short.jpg", 300))


def test_a_name_of_thousands_of_characters_is_shortened_at_once():
    start = time.monotonic()
    assert np.array_equal(drawn("x" * 4_000 + "/name.jpg", 120), drawn("x" * 40 + "/name.jpg", 120))
    assert time.monotonic() - start < 30  # cut off one by one, they took minutes


def test_explain_says_which_font_to_install(no_fonts, place, command):
    Path("photos/iris/0.jpg").rename("桜.jpg")
    done = command("explain", "m.patchvote", "桜.jpg")
    assert done.code == 0
    assert "no font on this machine has them" in done.err
    assert "font" not in command("explain", "m.patchvote", "photos/iris/1.jpg").err
