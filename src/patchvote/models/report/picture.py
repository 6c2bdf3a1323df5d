"""Pictures of evidence: the photo, bright where it supports a class and dim elsewhere."""

from __future__ import annotations

import io

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageDraw
from PIL.PngImagePlugin import PngInfo

from ...utils.file_kinds import NAME
from ...utils.terminal import printable
from ...voters.votes import NONE
from ..evidence import Evidence
from .captions import draw_caption

_GLOW, _TINT = np.array([255, 120, 0], np.float32), 0.3  # a tint of orange shows evidence on grey photos, too
_GAP, _CAPTION = 12, 30  # pixels between pictures, and height of a caption
_BASELINE = 14  # pixels from the top of a caption to its baseline
_INK, _PAPER = (24, 26, 32), (255, 255, 255)


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
    metadata.add_text("Software", NAME)
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
