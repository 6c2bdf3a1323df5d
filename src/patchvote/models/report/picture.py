"""Pictures of evidence: the photo, lit where it speaks for a class and dim where it does not."""

from __future__ import annotations

import io

import numpy as np
from PIL import Image, ImageDraw, ImageFont
from PIL.PngImagePlugin import PngInfo

from ...utils.marks import NAME
from ...utils.terminal import printable
from ..evidence import Evidence

_GLOW, _TINT = np.array([255, 120, 0], np.float32), 0.3  # photos without colour need some to be seen to glow
_GAP, _CAPTION = 12, 30
_INK, _PAPER = (24, 26, 32), (255, 255, 255)


def glow(evidence: Evidence, image: Image.Image, label: str) -> Image.Image:
    """Draw the photo in colour where it speaks for a class, grey and dim where it does not.

    Light grows with the square root of the votes for the class less the strongest for another, so that parts that speak
    softly can be seen beside the loudest, which is fully lit.
    """
    width, height = image.size
    small = max(1, round(width / 8)), max(1, round(height / 8))
    votes = evidence.contrast(label, *small)
    share = np.sqrt(np.clip(votes / max(float(votes.max()), 1e-12), 0, 1))
    wide = Image.fromarray(share.astype(np.float32)).resize(image.size, Image.Resampling.BICUBIC)
    light = np.clip(np.asarray(wide, np.float32), 0, 1)[:, :, None]
    colour = np.asarray(image.convert("RGB"), np.float32)
    grey = np.asarray(image.convert("L"), np.float32)[:, :, None]
    dim = 24 + 0.4 * grey
    tinted = colour * (1 - _TINT) + _GLOW * _TINT
    return Image.fromarray((dim * (1 - light) + tinted * light).clip(0, 255).astype(np.uint8))


def draw(evidence: Evidence, image: Image.Image, labels: list[str] | None = None, side: int = 420) -> Image.Image:
    """Draw a photo beside its evidence for some classes, each with its probability.

    Parameters
    ----------
    evidence : Evidence
        What to draw.
    image : Pillow image
        The upright photo.
    labels : list of str, optional
        The classes; the likeliest and the runner-up by default.
    side : int
        Longest side of each picture in pixels.
    """
    labels = list(evidence.ranking[:2]) if labels is None else labels
    image = _fit(image, side)
    panels = [(image.convert("RGB"), evidence.name)]
    for label in labels:
        chance = evidence.probability[evidence.number(label)]
        panels.append((glow(evidence, image, label), f"{label}: {100 * chance:.0f} %"))
    return _beside(panels)


def draw_matches(
    evidence: Evidence, image: Image.Image, others: dict[str, Image.Image], count: int = 5, side: int = 150
) -> Image.Image:
    """Draw parts of a photo above the parts of training photos that they look like.

    Parameters
    ----------
    evidence : Evidence
        With matches.
    image : Pillow image
        The upright photo.
    others : dict
        The upright training photos, by name; matches in photos that are not here are left out.
    count : int
        How many to draw.
    side : int
        Of each part, in pixels.
    """
    columns = []
    for match in [match for match in evidence.matches if match.name in others][:count]:
        here, there = _crop(image, match.box, side), _crop(others[match.name], match.there, side)
        both = Image.new("RGB", (side, 2 * side + _GAP // 2), _PAPER)
        both.paste(here, (0, 0))
        both.paste(there, (0, side + _GAP // 2))
        columns.append((both, match.name))
    return _beside(columns) if columns else Image.new("RGB", (side, _GAP), _PAPER)


def encoded(image: Image.Image) -> bytes:
    """Return a picture as the bytes of a PNG file."""
    data, notes = io.BytesIO(), PngInfo()
    notes.add_text("Software", NAME)
    image.save(data, "PNG", optimize=True, pnginfo=notes)
    return data.getvalue()


def _fit(image: Image.Image, side: int) -> Image.Image:
    scale = side / max(image.size)
    size = max(1, round(image.width * scale)), max(1, round(image.height * scale))
    return image.resize(size, Image.Resampling.LANCZOS)


def _crop(image: Image.Image, box: tuple[float, float, float, float], side: int) -> Image.Image:
    """Cut a part and as much around it as makes it a square of pixels, as far as there is any."""
    left, top, right, bottom = np.array(box) * np.tile(image.size, 2)
    half = max(right - left, bottom - top) / 2
    middle = (left + right) / 2, (top + bottom) / 2
    edges = middle[0] - half, middle[1] - half, middle[0] + half, middle[1] + half
    return image.convert("RGB").resize((side, side), Image.Resampling.BICUBIC, _inside(edges, image.size))


def _inside(edges: tuple[float, float, float, float], size: tuple[int, int]) -> tuple[float, float, float, float]:
    left, top, right, bottom = edges
    return max(0.0, left), max(0.0, top), min(float(size[0]), right), min(float(size[1]), bottom)


def _beside(panels: list[tuple[Image.Image, str]]) -> Image.Image:
    width = sum(image.width for image, _ in panels) + _GAP * (len(panels) + 1)
    height = max(image.height for image, _ in panels) + 2 * _GAP + _CAPTION
    sheet = Image.new("RGB", (width, height), _PAPER)
    pen, font, left = ImageDraw.Draw(sheet), ImageFont.load_default(16), _GAP
    for image, caption in panels:
        sheet.paste(image, (left, _GAP))
        text = _short(printable(caption), font, image.width)
        pen.text((left, height - _CAPTION - 2), text, _INK, font)
        left += image.width + _GAP
    return sheet


def _short(text: str, font: ImageFont.FreeTypeFont | ImageFont.ImageFont, width: int) -> str:
    """Cut a caption from the left, where paths say least, until it fits."""
    if font.getlength(text) <= width:
        return text
    while text and font.getlength("…" + text) > width:
        text = text[1:]
    return "…" + text
