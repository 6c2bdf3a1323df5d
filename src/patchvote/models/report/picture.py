"""Pictures of evidence: the photo, bright where it supports a class and dim elsewhere, with captions.

Pillow's own font has no accents. The package holds a subset of DejaVu Sans with Latin, Greek and Cyrillic letters
(`font/`, with its licence). Fonts for Chinese, Japanese and Korean take several megabytes each, so captions in other
scripts take a font of this machine.
"""

from __future__ import annotations

import bisect
import contextlib
import functools
import io
import unicodedata
from collections.abc import Iterable
from importlib import resources

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageDraw, ImageFont
from PIL.PngImagePlugin import PngInfo

from ...utils.terminal import printable
from ...voters.votes import NONE
from ..evidence import Evidence

_GLOW, _TINT = np.array([255, 120, 0], np.float32), 0.3  # a tint of orange shows evidence on grey photos, too
_GAP, _CAPTION = 12, 30  # pixels between pictures, and height of a caption
_BASELINE = 14  # pixels from the top of a caption to its baseline
_INK, _PAPER = (24, 26, 32), (255, 255, 255)
_SIZE = 16  # pixels of a letter
# Fonts with many characters, of Linux, macOS and Windows, in the order in which they are tried.
_FONTS = (
    *(f"NotoSansCJK-Regular.{ending}" for ending in ("ttc", "otf")),
    *("DejaVuSans.ttf", "NotoSans-Regular.ttf", "wqy-zenhei.ttc", "wqy-microhei.ttc", "DroidSansFallbackFull.ttf"),
    *("PingFang.ttc", "Hiragino Sans GB.ttc", "AppleSDGothicNeo.ttc", "Arial Unicode.ttf"),
    *("msyh.ttc", "msgothic.ttc", "malgun.ttf", "Nirmala.ttf", "LeelawUI.ttf", "segoeui.ttf"),
    *(f"NotoSans{script}-Regular.ttf" for script in ("Thai", "Devanagari", "Arabic", "Hebrew", "Bengali", "Tamil")),
)
_NO_CHARACTER = "\U0010fffe"  # drawn as every font draws what it does not have
_INVISIBLE = ("Mn", "Me", "Cf", "Zs", "Cc")  # categories of characters that are drawn with what stands before them


def glow(evidence: Evidence, image: Image.Image, label: str) -> Image.Image:
    """Draw the photo in colour where it supports a class, grey and dim elsewhere.

    Brightness is the square root of the votes for the class minus the strongest for another, relative to the maximum:
    weak evidence is visible beside the strongest.
    """
    width, height = image.size
    grid = max(1, round(width / 8)), max(1, round(height / 8))
    votes = evidence.contrast(label, *grid)
    return lit(image, np.sqrt(np.clip(votes / max(float(votes.max()), 1e-12), 0, 1)))


def lit(image: Image.Image, brightness: npt.NDArray[np.float64]) -> Image.Image:
    """Draw the photo in colour where a map of any size is 1, grey and dim where it is 0."""
    enlarged = Image.fromarray(brightness.astype(np.float32)).resize(image.size, Image.Resampling.BICUBIC)
    light = np.clip(np.asarray(enlarged, np.float32), 0, 1)[:, :, None]
    colour = np.asarray(image.convert("RGB"), np.float32)
    dim = 24 + 0.4 * np.asarray(image.convert("L"), np.float32)[:, :, None]
    tinted = colour * (1 - _TINT) + _GLOW * _TINT
    return Image.fromarray((dim * (1 - light) + tinted * light).clip(0, 255).astype(np.uint8))


def draw(evidence: Evidence, image: Image.Image, labels: list[str] | None = None, side: int = 420) -> Image.Image:
    """Draw an upright photo beside its evidence for some classes, by default the two likeliest.

    Each has its probability, unless the photo is none of them. `side` is the longest of each picture, in pixels.
    """
    labels = list(evidence.ranking[:2]) if labels is None else labels
    scale = side / max(image.size)
    size = max(1, round(image.width * scale)), max(1, round(image.height * scale))
    image = image.resize(size, Image.Resampling.LANCZOS)
    panels = [(image.convert("RGB"), [evidence.name, NONE] if evidence.rejected else [evidence.name])]
    for label in labels:
        share = "" if evidence.rejected else f": {100 * evidence.probability[evidence.number(label)]:.0f} %"
        panels.append((glow(evidence, image, label), [f"{label}{share}"]))
    return _beside(panels)


def draw_matches(
    evidence: Evidence, image: Image.Image, others: dict[str, Image.Image], count: int = 5, side: int = 150
) -> Image.Image:
    """Draw parts of an upright photo above the most similar parts of training photos, `others` by name.

    Matches in photos that are not given are left out. `side` is that of each part, in pixels.
    """
    columns = []
    for match in [match for match in evidence.matches if match.name in others][:count]:
        part, trained = _crop(image, match.box, side), _crop(others[match.name], match.there, side)
        both = Image.new("RGB", (side, 2 * side + _GAP // 2), _PAPER)
        both.paste(part, (0, 0))
        both.paste(trained, (0, side + _GAP // 2))
        columns.append((both, [match.name]))
    return _beside(columns) if columns else Image.new("RGB", (side, _GAP), _PAPER)


def encoded(image: Image.Image) -> bytes:
    """Return a picture as the bytes of a PNG file."""
    data, metadata = io.BytesIO(), PngInfo()
    metadata.add_text("Software", "patchvote")
    image.save(data, "PNG", pnginfo=metadata)  # `optimize` takes twice as long for 1 % fewer bytes
    return data.getvalue()


def _crop(image: Image.Image, box: tuple[float, float, float, float], side: int) -> Image.Image:
    """Crop the square of pixels around a part, as far as it is within the image."""
    corners = np.reshape(box, (2, 2)) * image.size
    middle, half = corners.mean(axis=0), np.ptp(corners, axis=0).max() / 2
    edges = np.clip([middle - half, middle + half], 0, image.size)
    return image.convert("RGB").resize((side, side), Image.Resampling.BICUBIC, tuple(edges.ravel().tolist()))


def _beside(panels: list[tuple[Image.Image, list[str]]]) -> Image.Image:
    """Draw pictures in a row, each above the lines of its caption."""
    width = sum(image.width for image, _ in panels) + _GAP * (len(panels) + 1)
    below = max(image.height for image, _ in panels) + 2 * _GAP
    height = below + _CAPTION * max(len(lines) for _, lines in panels)
    sheet = Image.new("RGB", (width, height), _PAPER)
    pen, left = ImageDraw.Draw(sheet), _GAP
    for image, lines in panels:
        sheet.paste(image, (left, _GAP))
        for number, line in enumerate(lines):
            draw_caption(pen, (left, below + number * _CAPTION + _BASELINE), printable(line), _INK, image.width)
        left += image.width + _GAP
    return sheet


# --- captions ---------------------------------------------------------------------------------------------------------


def draw_caption(
    pen: ImageDraw.ImageDraw, place: tuple[float, float], text: str, ink: tuple[int, int, int], width: float
) -> None:
    """Draw a caption from its left end on the baseline; of a text that is too long for the width, the end."""
    text = unicodedata.normalize("NFC", text)
    font = _font_for(text)
    if font.getlength(text) > width:
        # By bisection: a name may have thousands of characters, and each is measured whenever one is cut off.
        def fits(start: int) -> bool:
            return font.getlength("…" + text[start:]) <= width

        text = "…" + text[bisect.bisect_left(range(len(text)), True, key=fits) :]
    pen.text(place, text, ink, font, anchor="ls")


def missing_sentence(texts: Iterable[str]) -> str | None:
    """Return a sentence on the characters that captions lack, and which font to install; None if there are none."""
    missing = dict.fromkeys(character for text in texts for character in _missing(_font_for(text), text))
    if not missing:
        return None
    shown = "".join(missing)[:10] + "…" * (len(missing) > 10)
    return (
        f"Captions show boxes in place of {shown}: no common font of this machine has them. Install Noto Sans of their "
        "script (for Chinese, Japanese and Korean, the package fonts-noto-cjk)."
    )


@functools.lru_cache(1000)
def _font_for(text: str) -> ImageFont.FreeTypeFont:
    """Return the package's own font, or the font of this machine that has more of the characters of a text."""
    own = _own_font()
    return min([own, *_machine_fonts()], key=lambda font: len(_missing(font, text))) if _missing(own, text) else own


def _missing(font: ImageFont.FreeTypeFont, text: str) -> list[str]:
    nothing = bytes(font.getmask(_NO_CHARACTER))
    visible = (one for one in unicodedata.normalize("NFC", text) if unicodedata.category(one) not in _INVISIBLE)
    return [one for one in visible if bytes(font.getmask(one)) == nothing]


@functools.cache
def _own_font() -> ImageFont.FreeTypeFont:
    with resources.as_file(resources.files(__package__) / "font" / "DejaVuSans-subset.ttf") as file:
        return ImageFont.truetype(file, _SIZE)


@functools.cache
def _machine_fonts() -> list[ImageFont.FreeTypeFont]:
    found = []
    for name in _FONTS:
        with contextlib.suppress(OSError):  # Pillow looks for it in the folders that the system keeps fonts in
            found.append(ImageFont.truetype(name, _SIZE))
    return found
