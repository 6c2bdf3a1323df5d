"""Predict how much memory the decoding of a photo takes.

The constants are bytes per pixel, measured as the growth of a process while Pillow 13 decoded 40 million pixels of each
format. `tests/test_decoding_memory.py` checks that none is too low.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from PIL import Image

from .headers import Header

Longest = Callable[[int, int], int]

REDUCIBLE = ("L", "LA", "RGB", "RGBA", "CMYK", "YCbCr", "I", "F")

_SLACK = 6 << 20  # bytes for tables, objects, and five copies of some rows
_WEBP = 12  # two RGBA canvases and a copy of one, which exist as long as the image
_AVIF = 16  # planes of up to 16 bits, a frame of pixels, and a copy of it; 12 were measured for AVIF, 10 for HEIC
_BMP = 2  # for run-length encoded images, which Pillow decodes in Python
_JPEG_SAMPLE = 2  # one coefficient; progressive and multi-scan images keep those of all pixels, whatever the scale
_TIFF_JPEG = 8  # coefficients of four components, within one strip or tile of a TIFF


def footprint(image: Image.Image, size: tuple[int, int], header: Header, longest: Longest | None) -> int:
    """Return an upper bound of the bytes that decoding an image takes, in addition to the file itself.

    Parameters
    ----------
    image : Pillow image
        Image that is opened, with `draft` applied, but not loaded.
    size : tuple of ints
        Width and height before `draft`.
    header : Header
        Header of the image's file.
    longest : function, optional
        Function from width and height to the longest side that will be used.
    """
    pixels = image.width * image.height
    stored = pixels * _stored(image.mode)
    factor = reduction(image, longest)
    if factor > 1 and image.mode in REDUCIBLE:
        copies = 2 if image.mode in ("LA", "RGBA") else 1  # Pillow multiplies these by alpha before it reduces them
        finished = copies * stored + 12 * math.ceil(pixels / factor**2)
    else:
        finished = pixels * _finished(image.mode)
    if image.format == "WEBP":
        peak = finished + pixels * _WEBP
    elif image.format in ("AVIF", "HEIF"):
        peak = finished + size[0] * size[1] * _AVIF
    else:
        peak = max(stored + _decoder(image, size, header), finished)
    return header.opening + peak + _SLACK


def reduction(image: Image.Image, longest: Longest | None) -> int:
    """Return the integer factor that reduces an image to no less than twice the longest side that will be used."""
    return max(1, max(image.size) // (2 * longest(image.width, image.height))) if longest is not None else 1


def _stored(mode: str) -> int:
    """Return the bytes per pixel of a Pillow image: three channels take four bytes."""
    return 1 if mode in ("1", "L", "P") else 2 if mode.startswith("I;16") else 4


def _finished(mode: str) -> int:
    """Return the bytes per pixel while an image is converted to upright RGB or grey at its full size."""
    if mode in ("1", "L"):
        return 2  # the image and a copy
    if mode.startswith("I;16"):
        return 6  # the image, and twice as much while it is converted to an array
    return 12 if mode in ("I", "F") else 8


def _decoder(image: Any, size: tuple[int, int], header: Header) -> int:
    """Return the bytes that a decoder takes in addition to the image that it fills."""
    pixels = size[0] * size[1]
    if image.format in ("JPEG", "MPO"):
        blocks = (size[0] + 32) * (size[1] + 32)  # rounded up to whole blocks, of up to 32 pixels
        return 0 if header.one_scan else math.ceil(blocks * _JPEG_SAMPLE * _samples(image.layer))
    if image.format == "BMP":
        return pixels * _BMP
    if image.format == "TIFF":
        tags = image.tag_v2
        block = max(
            _number(tags.get(322)) * _number(tags.get(323)),  # a tile may be larger than the image
            size[0] * min(size[1], _number(tags.get(278), size[1])),
        )
        bits = tags.get(258, 1)
        sample = max(1, math.ceil((max(bits) if isinstance(bits, tuple) else bits) / 8))
        jpeg = _TIFF_JPEG if _number(tags.get(259)) in (6, 7) else 0
        rotated = pixels * _stored(image.mode) if _number(tags.get(274), 1) != 1 else 0  # Pillow rotates a TIFF itself
        return int(block * (_number(tags.get(277), 1) * sample + jpeg) + rotated)
    return 0


def _samples(layers: list[tuple[int, int, int, int]]) -> float:
    """Return the samples per pixel of a JPEG whose components have these sampling factors."""
    widest, highest = (max((layer[index] for layer in layers), default=1) or 1 for index in (1, 2))
    return sum(layer[1] * layer[2] for layer in layers) / (widest * highest)


def _number(value: object, default: int = 0) -> int:
    """Return the value of a tag as one number, or the default if it is none."""
    if isinstance(value, tuple) and value:
        value = value[0]
    return max(0, int(value)) if isinstance(value, int | float) else default
