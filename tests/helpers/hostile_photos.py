"""Photos of a few kilobytes that take a decoder hundreds of megabytes, or for ever; built by hand, in milliseconds."""

from __future__ import annotations

import io
import struct
import zlib

from PIL import Image


def jpeg_segment(marker: int, data: bytes) -> bytes:
    return b"\xff" + bytes([marker]) + struct.pack(">H", len(data) + 2) + data


def flat_jpeg(
    width: int, height: int, *, progressive: bool = False, parted: bool = False, components: int = 3, scans: int = 0
) -> bytes:
    """A grey JPEG without subsampling: baseline, progressive, or baseline with a scan for each component (`parted`).

    Huffman tables have one code each, a single zero bit, so that pixels are zero bytes. `scans` adds that many.
    """
    frame = struct.pack(">BHHB", 8, height, width, components)
    frame += b"".join(bytes([number + 1, 0x11, 0]) for number in range(components))
    one_code = bytes([1] + [0] * 15) + b"\0"
    parts = [b"\xff\xd8", jpeg_segment(0xDB, b"\0" + b"\x10" * 64), jpeg_segment(0xC2 if progressive else 0xC0, frame)]
    parts += [jpeg_segment(0xC4, table + one_code) for table in (b"\0", b"\x10")]
    blocks = -(-width // 8) * -(-height // 8)
    bits, band = (1, b"\0\0\0") if progressive else (2, b"\0\x3f\0")
    groups = [[number] for number in range(components)] if parted else [list(range(components))]
    for group in groups:
        start = bytes([len(group)]) + b"".join(bytes([number + 1, 0]) for number in group) + band
        parts += [jpeg_segment(0xDA, start), bytes(-(-blocks * len(group) * bits // 8))]
    parts += [jpeg_segment(0xDA, bytes([1, 1, 0, 1, 63, 0])) + bytes(-(-blocks // 8))] * scans
    return b"".join([*parts, b"\xff\xd9"])


def png_chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def saved(image: Image.Image, kind: str, **settings: object) -> bytes:
    data = io.BytesIO()
    image.save(data, kind, **settings)
    return data.getvalue()


def costly(width: int, height: int) -> dict[str, bytes]:
    """Photos of this size of every kind that takes a decoder much memory."""
    size, grey = (width, height), (120, 120, 120)
    rgb = Image.new("RGB", size, grey)
    exif = Image.Exif()
    exif[0x0112] = 6
    return {
        "progressive.jpg": flat_jpeg(width, height, progressive=True),
        "parted.jpg": flat_jpeg(width, height, parted=True),
        "cmyk.jpg": flat_jpeg(width, height, progressive=True, components=4),
        "baseline.jpg": flat_jpeg(width, height),
        "lossless.webp": saved(rgb, "WEBP", lossless=True, quality=0, method=0),
        "lossy.webp": saved(rgb, "WEBP", quality=1, method=0),
        "alpha.png": saved(Image.new("RGBA", size, (*grey, 9)), "PNG", compress_level=1),
        "palette.png": saved(Image.new("P", size, 3), "PNG", compress_level=1, transparency=3, exif=exif),
        "16-bit.png": saved(Image.new("I;16", size), "PNG", compress_level=1, exif=exif),
        "plain.gif": saved(Image.new("P", size), "GIF"),
        "plain.bmp": saved(rgb, "BMP"),
        "one-strip.tif": saved(rgb, "TIFF", compression="tiff_deflate", tiffinfo={278: height, 274: 6}),
        "jpeg.tif": saved(rgb, "TIFF", compression="jpeg", tiffinfo={278: height}),
        "float.tif": saved(Image.new("F", size), "TIFF"),
    }
