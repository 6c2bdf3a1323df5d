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


def interlaced_png(width: int, height: int) -> bytes:
    """A black PNG in seven passes."""
    squeeze, pixels = zlib.compressobj(9), []
    for left, top, across, down in (
        (0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2),
    ):  # fmt: skip
        row = bytes(1 + 3 * -(-(width - left) // across))
        pixels += [squeeze.compress(row) for _ in range(-(-(height - top) // down))]
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 1)
    data = b"".join([*pixels, squeeze.flush()])
    return b"\x89PNG\r\n\x1a\n" + png_chunk(b"IHDR", header) + png_chunk(b"IDAT", data) + png_chunk(b"IEND", b"")


def tiff(tags: dict[int, tuple[int, list[int]]], pixels: bytes) -> bytes:
    """A TIFF of these tags: of each its type (3 or 4) and its values. The first offset in 273 or 324 is filled in."""
    size = {3: 2, 4: 4}
    base = 8 + 2 + 12 * len(tags) + 4
    outside = sum(size[kind] * len(values) for kind, values in tags.values() if size[kind] * len(values) > 4)
    entries, data = [], b""
    for tag, (kind, values) in sorted(tags.items()):
        numbers = [base + outside, *values[1:]] if tag in (273, 324) else values
        packed = struct.pack(f"<{len(numbers)}{'H' if kind == 3 else 'L'}", *numbers)
        place = packed.ljust(4, b"\0") if len(packed) <= 4 else struct.pack("<L", base + len(data))
        data += packed if len(packed) > 4 else b""
        entries.append(struct.pack("<HHL4s", tag, kind, len(numbers), place))
    return b"II*\0" + struct.pack("<LH", 8, len(tags)) + b"".join(entries) + bytes(4) + data + pixels


def tiff_with_a_large_tile(side: int) -> bytes:
    """A TIFF of 16 x 16 pixels whose only tile has `side` x `side`."""
    squeeze = zlib.compressobj(9)
    pixels = b"".join([squeeze.compress(bytes(3 * side)) for _ in range(side)] + [squeeze.flush()])
    tags = {256: [16], 257: [16], 258: [8, 8, 8], 259: [8], 262: [2], 277: [3], 322: [side], 323: [side]}
    kinds = {tag: (3, values) for tag, values in tags.items()} | {324: (4, [0]), 325: (4, [len(pixels)])}
    return tiff(kinds, pixels)


def run_length_bmp(width: int, height: int) -> bytes:
    line = bytes([255, 1]) * (width // 255) + (bytes([width % 255, 1]) if width % 255 else b"") + b"\0\0"
    body, start = line * height + b"\0\1", 54 + 1024
    header = struct.pack("<LllHHLLllLL", 40, width, height, 1, 8, 1, len(body), 0, 0, 256, 0)
    return b"BM" + struct.pack("<LHHL", start + len(body), 0, 0, start) + header + bytes(1024) + body


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
        "interlaced.png": interlaced_png(width, height),
        "alpha.png": saved(Image.new("RGBA", size, (*grey, 9)), "PNG", compress_level=1),
        "palette.png": saved(Image.new("P", size, 3), "PNG", compress_level=1, transparency=3, exif=exif),
        "16-bit.png": saved(Image.new("I;16", size), "PNG", compress_level=1, exif=exif),
        "plain.gif": saved(Image.new("P", size), "GIF"),
        "run-length.bmp": run_length_bmp(width, height),
        "one-strip.tif": saved(rgb, "TIFF", compression="tiff_deflate", tiffinfo={278: height, 274: 6}),
        "jpeg.tif": saved(rgb, "TIFF", compression="jpeg", tiffinfo={278: height}),
        "float.tif": saved(Image.new("F", size), "TIFF"),
    }
