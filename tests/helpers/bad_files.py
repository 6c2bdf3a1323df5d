"""A folder of files that real folders have: damaged, hostile and merely odd ones."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path

import numpy as np
from PIL import Image

from .hostile_photos import png_chunk

RED, BLUE = (200, 30, 30), (30, 30, 200)

# name: the reason that must be given
DAMAGED = {
    "empty.jpg": "the file is empty",
    "truncated.jpg": "is damaged",
    "truncated.png": "is damaged",
    "text.jpg": "is not an image that can be read",
    "bomb.png": "more pixels",
    "broken-link.jpg": "is a broken link",
}
SIZE, GREY, WHITE = (64, 48), (128, 128, 128), (255, 255, 255)
PLAIN, SEE_THROUGH, MIDDLE = Image.new("RGB", SIZE, RED), Image.new("RGBA", SIZE, (*RED, 0)), np.full((48, 64), 128)
PALETTE = PLAIN.convert("P", palette=Image.Palette.ADAPTIVE)
# As the sensor saw it: red above blue, lying on its side. Turned upright by 180 degrees, blue is above.
UPSIDE_DOWN, TURNED = PLAIN.copy(), Image.Exif()
UPSIDE_DOWN.paste(BLUE, (0, 24, *SIZE))
TURNED[0x0112] = 3
MOVING = {"save_all": True, "append_images": [Image.new("RGB", SIZE, BLUE)], "duration": 100}
# Ink percentages that make RED without a colour profile: 255 minus each channel, no black.
INKS = Image.merge("CMYK", [Image.new("L", SIZE, ink) for ink in (*(255 - channel for channel in RED), 0)])

# name: an image, how it is saved, and the colour that its upper left corner must have
SAVED = {
    "dot.png": (Image.new("RGB", (1, 1), RED), {}, RED),
    "strip.png": (Image.new("RGB", (5000, 8), RED), {}, RED),
    "cmyk.jpg": (INKS, {"quality": 95}, RED),
    "16-bit.png": (Image.fromarray((MIDDLE * 257).astype(np.uint16)), {}, GREY),
    "16-bit.tif": (Image.fromarray((MIDDLE * 257).astype(np.uint16)), {}, GREY),
    "float.tif": (Image.fromarray((MIDDLE / 255).astype(np.float32)), {}, GREY),
    "alpha.png": (SEE_THROUGH, {}, WHITE),
    "grey-alpha.png": (SEE_THROUGH.convert("LA"), {}, WHITE),
    "palette-alpha.png": (PALETTE, {"transparency": PALETTE.getpixel((0, 0))}, WHITE),
    "grey.jpg": (Image.new("L", SIZE, 120), {"quality": 95}, (120, 120, 120)),
    "black-white.png": (Image.new("1", SIZE, 1), {}, WHITE),
    "animated.gif": (PLAIN, MOVING, RED),
    "animated.webp": (PLAIN, MOVING | {"lossless": True}, RED),
    "plain.bmp": (PLAIN, {}, RED),
    "UPPER.JPEG": (PLAIN, {"quality": 95}, RED),
    "rotated.jpg": (UPSIDE_DOWN, {"exif": TURNED, "quality": 95}, BLUE),
}
ODD = {name: colour for name, (_, _, colour) in SAVED.items()}


def write_bad_files(folder: Path) -> None:
    """Write all of `DAMAGED` and `ODD`, and one good photo, into `folder`."""
    noise = Image.fromarray(np.random.default_rng(0).integers(0, 255, (80, 90, 3), dtype=np.uint8))
    noise.save(folder / "good.jpg")
    (folder / "empty.jpg").touch()
    (folder / "text.jpg").write_text("I am not a photo.\n" * 20)
    for kind in ("jpg", "png"):
        noise.save(path := folder / f"truncated.{kind}")
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    (folder / "bomb.png").write_bytes(bomb(100_000, 100_000))
    (folder / "broken-link.jpg").symlink_to(folder / "nowhere.jpg")
    for name, (image, options, _) in SAVED.items():
        image.save(folder / name, **options)


def bomb(width: int, height: int) -> bytes:
    """A PNG of a few bytes that claims to be `width` x `height` pixels."""
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(b"0" * 99)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(png_chunk(*chunk) for chunk in chunks)
