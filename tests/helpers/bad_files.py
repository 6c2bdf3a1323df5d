"""A folder of files that real folders have: damaged, hostile and merely odd ones."""

from __future__ import annotations

import io
import struct
import zlib
from pathlib import Path

import numpy as np
from PIL import Image

from .hostile_photos import png_chunk

RED, BLUE = (200, 30, 30), (30, 30, 200)

# name: the reason that must be given, or the colour that the upper left corner must have
DAMAGED = {
    "empty.jpg": "the file is empty",
    "truncated.jpg": "is damaged",
    "truncated.png": "is damaged",
    "text.jpg": "is not an image that can be read",
    "bomb.png": "more pixels",
    "broken-link.jpg": "is a broken link",
}
ODD = {
    "dot.png": RED,
    "strip.png": RED,
    "cmyk.jpg": RED,
    "16-bit.png": (128, 128, 128),
    "16-bit.tif": (128, 128, 128),
    "float.tif": (128, 128, 128),
    "palette-alpha.png": (255, 255, 255),
    "alpha.png": (255, 255, 255),
    "grey-alpha.png": (255, 255, 255),
    "grey.jpg": (120, 120, 120),
    "black-white.png": (255, 255, 255),
    "animated.gif": RED,
    "animated.webp": RED,
    "rotated.jpg": BLUE,
    "plain.bmp": RED,
    "UPPER.JPEG": RED,
}


def write_bad_files(folder: Path) -> None:
    """Write all of `DAMAGED` and `ODD`, and one good photo, into `folder`."""
    noise = Image.fromarray(np.random.default_rng(0).integers(0, 255, (80, 90, 3), dtype=np.uint8))
    noise.save(folder / "good.jpg")
    (folder / "empty.jpg").touch()
    (folder / "text.jpg").write_text("I am not a photo.\n" * 20)
    for kind in ("jpg", "png"):
        data = io.BytesIO()
        noise.save(data, {"jpg": "JPEG", "png": "PNG"}[kind])
        (folder / f"truncated.{kind}").write_bytes(data.getvalue()[: len(data.getvalue()) // 2])
    (folder / "bomb.png").write_bytes(bomb(100_000, 100_000))
    (folder / "broken-link.jpg").symlink_to(folder / "nowhere.jpg")

    red = Image.new("RGB", (64, 48), RED)
    Image.new("RGB", (1, 1), RED).save(folder / "dot.png")
    Image.new("RGB", (5000, 8), RED).save(folder / "strip.png")
    # Ink percentages that make RED without a colour profile: 255 minus each channel, no black.
    Image.merge("CMYK", [Image.new("L", (64, 48), 255 - c) for c in RED] + [Image.new("L", (64, 48), 0)]).save(
        folder / "cmyk.jpg", quality=95
    )
    Image.fromarray(np.full((48, 64), 128 * 257, np.uint16)).save(folder / "16-bit.png")
    Image.fromarray(np.full((48, 64), 128 * 257, np.uint16)).save(folder / "16-bit.tif")
    Image.fromarray(np.full((48, 64), 128 / 255, np.float32)).save(folder / "float.tif")
    see_through = Image.new("RGBA", (64, 48), (*RED, 0))
    see_through.save(folder / "alpha.png")
    see_through.convert("LA").save(folder / "grey-alpha.png")
    palette = red.convert("P", palette=Image.Palette.ADAPTIVE)
    palette.save(folder / "palette-alpha.png", transparency=palette.getpixel((0, 0)))
    Image.new("L", (64, 48), 120).save(folder / "grey.jpg", quality=95)
    Image.new("1", (64, 48), 1).save(folder / "black-white.png")
    frames = [Image.new("RGB", (64, 48), BLUE)]
    red.save(folder / "animated.gif", save_all=True, append_images=frames, duration=100)
    red.save(folder / "animated.webp", save_all=True, append_images=frames, duration=100, lossless=True)
    red.save(folder / "plain.bmp")
    red.save(folder / "UPPER.JPEG", quality=95)
    # As the sensor saw it: red above blue, lying on its side. Turned upright by 180 degrees, blue is above.
    upside_down = Image.new("RGB", (64, 48), RED)
    upside_down.paste(BLUE, (0, 24, 64, 48))
    exif = Image.Exif()
    exif[0x0112] = 3
    upside_down.save(folder / "rotated.jpg", exif=exif, quality=95)


def bomb(width: int, height: int) -> bytes:
    """A PNG of a few bytes that claims to be `width` x `height` pixels."""
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(b"0" * 99)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(png_chunk(*chunk) for chunk in chunks)
