"""Captions of pictures, in every script for which there is a font.

Pillow's own font has no accents. The package holds a subset of DejaVu Sans with Latin, Greek and Cyrillic letters
(`font/`, with its licence); characters that it lacks are drawn with the first font of this machine that has them. Fonts
for Chinese, Japanese and Korean take several megabytes each, so none is in the package.
"""

from __future__ import annotations

import bisect
import functools
import itertools
import os
import sys
import unicodedata
from collections.abc import Iterable, Iterator
from importlib import resources
from pathlib import Path

from PIL import ImageDraw, ImageFont

Font = ImageFont.FreeTypeFont
_SIZE = 16  # pixels
_MAX_FONTS = 1000  # files of this machine that are tried; opening one takes about a millisecond
_ENDINGS = (".ttf", ".otf", ".ttc")
# Parts of the names of fonts that are tried first: plain ones with many characters, of Linux, macOS and Windows.
_FIRST = (
    "notosanscjk",
    "notosans-",
    "dejavusans.",
    "wqy",
    "droidsansfallback",
    "pingfang",
    "hiragino",
    "msyh",
    "malgun",
)
_NEVER = ("lastresort", "adobeblank")  # fonts that have a picture for every character, and the letter for none
_NO_CHARACTER = "\U0010fffe"  # drawn as every font draws what it does not have
_INVISIBLE = ("Mn", "Me", "Cf", "Zs", "Cc")  # categories of characters that are drawn with what stands before them


def draw_caption(
    pen: ImageDraw.ImageDraw, place: tuple[float, float], text: str, ink: tuple[int, int, int], width: float
) -> None:
    """Draw a caption from its left end on the baseline; of a text that is too long for the width, the end."""
    left, baseline = place
    for font, part in _runs(_short(text, width)):
        pen.text((left, baseline), part, ink, font, anchor="ls")
        left += font.getlength(part)


def missing_sentence(texts: Iterable[str]) -> str | None:
    """Return a sentence on the characters for which there is no font, and which to install; None if there are none."""
    characters = "".join(dict.fromkeys("".join(texts)))
    missing = [one for one in unicodedata.normalize("NFC", characters) if _is_visible(one) and font_of(one) is None]
    if not missing:
        return None
    east_asian = any(unicodedata.east_asian_width(one) in "WF" for one in missing)
    name = "Noto Sans CJK (package fonts-noto-cjk)" if east_asian else "Noto Sans of that script (package fonts-noto)"
    shown = "".join(missing[:10]) + "…" * (len(missing) > 10)
    return f"Captions show boxes in place of {shown}: no font on this machine has them. Install one, such as {name}."


@functools.cache
def font_of(character: str) -> Font | None:
    """Return the first font that has a character, or None."""
    if _has(_own(), character):
        return _own()
    return next((font for font in map(_opened, _files()) if font is not None and _has(font, character)), None)


def _runs(text: str) -> Iterator[tuple[Font, str]]:
    """Yield the parts of a text that are drawn with one font each."""
    fonts: list[Font] = []
    text = unicodedata.normalize("NFC", text)
    for character in text:
        before = fonts[-1] if fonts else _own()
        fonts.append((font_of(character) or _own()) if _is_visible(character) else before)
    for font, pairs in itertools.groupby(zip(fonts, text, strict=True), key=lambda pair: pair[0]):
        yield font, "".join(character for _, character in pairs)


def _short(text: str, width: float) -> str:
    """Shorten a caption from the left, where paths are least informative, until it fits."""

    def fits(part: str) -> bool:
        return sum(font.getlength(run) for font, run in _runs(part)) <= width

    if fits(text):
        return text
    # By bisection: a name may have thousands of characters, and each is measured whenever one is cut off.
    return "…" + text[bisect.bisect_left(range(len(text)), True, key=lambda start: fits("…" + text[start:])) :]


def _is_visible(character: str) -> bool:
    return unicodedata.category(character) not in _INVISIBLE


def _has(font: Font, character: str) -> bool:
    return bytes(font.getmask(character)) != bytes(font.getmask(_NO_CHARACTER))


@functools.cache
def _own() -> Font:
    with resources.as_file(resources.files(__package__) / "font" / "DejaVuSans-subset.ttf") as file:
        return ImageFont.truetype(file, _SIZE)


@functools.cache
def _opened(file: Path) -> Font | None:
    try:
        return ImageFont.truetype(file, _SIZE)
    except (OSError, ValueError):  # damaged, or of bitmaps in other sizes
        return None


@functools.cache
def _files() -> tuple[Path, ...]:
    """Return the font files of this machine, those first that are plain and have many characters."""
    found = {
        Path(folder, name): None
        for root in _folders()
        for folder, _, names in os.walk(root)
        for name in sorted(names)
        if name.lower().endswith(_ENDINGS) and not any(part in name.lower() for part in _NEVER)
    }

    def order(path: Path) -> tuple[bool, bool, str]:
        name = path.name.lower()
        return not any(part in name for part in _FIRST), "regular" not in name, name

    return tuple(sorted(found, key=order)[:_MAX_FONTS])


def _folders() -> list[Path]:
    """Return the folders that systems keep fonts in."""
    if sys.platform == "win32":
        roots = (os.environ.get("WINDIR"), "Fonts"), (os.environ.get("LOCALAPPDATA"), "Microsoft/Windows/Fonts")
        return [Path(root, below) for root, below in roots if root]
    home = Path.home()
    if sys.platform == "darwin":
        return [home / "Library/Fonts", Path("/Library/Fonts"), Path("/System/Library/Fonts")]
    shared = os.environ.get("XDG_DATA_DIRS") or "/usr/local/share:/usr/share"
    own = os.environ.get("XDG_DATA_HOME") or str(home / ".local/share")
    return [home / ".fonts", *(Path(root, "fonts") for root in (own, *shared.split(":")) if root)]
