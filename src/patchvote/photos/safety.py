"""Check the header of a photo before a decoder reads it, and predict how much memory the decoding takes.

Decoders read and keep all metadata before the pixels: a few kilobytes of tiny segments, inflating text or offsets can
take minutes or gigabytes. A header that no real photo has is refused here, in a time that does not depend on what the
file claims. The constants of memory are the growth of a process while Pillow 13 decoded 40 million pixels of each
format; `tests/test_decoding_memory.py` checks that none is too low.
"""

from __future__ import annotations

import dataclasses
import math
import struct
from collections.abc import Callable
from typing import Any

from PIL import Image

Longest = Callable[[int, int], int]  # from width and height to the longest side in pixels that will be used

REDUCIBLE = ("L", "LA", "RGB", "RGBA", "CMYK", "YCbCr", "I", "F")

_MAX_PARTS = 10_000  # segments, chunks or blocks of metadata; a photo with an embedded depth map has some hundreds
_MAX_SCANS = 100  # scans of a JPEG, each a pass over all pixels; encoders write about ten
_MAX_JUNK = 1 << 20  # bytes between segments of a JPEG, which Pillow skips one at a time
_MAX_EXIF_PARTS = 100  # EXIF segments of 64 kB; Pillow copies all of them whenever it appends one
_MAX_OFFSETS = 65_536  # strips or tiles of a TIFF; Pillow takes 25 microseconds for each
_COPIES = 4  # copies of the metadata that a decoder makes: read in blocks, joined, kept, and parsed
_TEXT_BYTES = 5 << 20  # memory for one compressed text of a PNG: 1 MB inflated, then up to 4 bytes per character
_VALUE_BYTES = 300  # memory for one number in a tag of a TIFF, as an object; 268 were measured for an offset

# JPEG markers that have no length for Pillow: escapes, TEM, JPG, RST, SOI, EOI and extensions.
_STANDALONE = {0x00, 0x01, 0xC8, *range(0xD0, 0xDA), *range(0xF0, 0xFE)}
_FRAMES = {*range(0xC0, 0xD0)} - {0xC4, 0xC8, 0xCC}
_SEQUENTIAL = {0xC0, 0xC1, 0xC9}
_TIFF_UNITS = {3: 2, 4: 4, 5: 8, 8: 2, 9: 4, 10: 8, 11: 4, 12: 8, 13: 4, 16: 8}  # types of tags that become numbers
_TIFF_OFFSETS = (273, 324)

_SLACK = 6 << 20  # bytes for tables, objects, and five copies of some rows
_WEBP = 12  # bytes per pixel: two RGBA canvases and a copy of one, which exist as long as the image
_AVIF = 16  # planes of up to 16 bits, a frame of pixels, and a copy of it; 12 were measured for AVIF, 10 for HEIC
_BMP = 2  # for run-length encoded images, which Pillow decodes in Python
_JPEG_SAMPLE = 2  # one coefficient; progressive and multi-scan images keep those of all pixels, whatever the scale
_TIFF_JPEG = 8  # coefficients of four components, within one strip or tile of a TIFF


@dataclasses.dataclass(frozen=True)
class Header:
    """Bytes that reading a header may take beside the file, and whether all pixels of a JPEG are in one scan.

    Of one scan, a decoder holds a few rows at a time instead of all.
    """

    opening: int = 0
    one_scan: bool = False


def read_header(content: bytes) -> Header:
    """Read the header of a photo of any format; `ValueError` for one that no real photo has."""
    if content.startswith(b"\xff\xd8\xff"):
        return _jpeg(content)
    if content.startswith(b"\x89PNG\r\n\x1a\n"):
        return _png(content)
    if content[:6] in (b"GIF87a", b"GIF89a"):
        return _gif(content)
    if content[:4] in (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+"):
        return _tiff(content)
    if (content[:4] == b"RIFF" and content[8:12] == b"WEBP") or content[4:8] == b"ftyp":  # AVIF and HEIC
        return Header(opening=_COPIES * len(content))  # the decoder gets the whole file, and copies it
    return Header()


def _jpeg(content: bytes) -> Header:
    if content.count(b"\xff\xda") > _MAX_SCANS:
        raise ValueError(f"it has more than {_MAX_SCANS} scans")
    components = junk = exif = metadata = 0
    position, clean = 2, True
    for _ in range(_MAX_PARTS):
        begin, position = position, content.find(b"\xff", position)
        junk += (position if position >= 0 else len(content)) - begin
        if junk > _MAX_JUNK:
            raise ValueError(f"more than {_MAX_JUNK:,} bytes of it belong to nothing")
        while content[position : position + 1] == b"\xff":
            position += 1
        if position <= 0 or position + 8 > len(content):
            return Header(_COPIES * metadata)
        marker, length = content[position], int.from_bytes(content[position + 1 : position + 3])
        clean = clean and position == begin + 1 and marker not in _STANDALONE
        if marker == 0xDA:
            return Header(_COPIES * metadata, one_scan=clean and content[position + 3] == components)
        if marker in _FRAMES:
            components = content[position + 8] if position + 8 < len(content) else 0
            clean = clean and marker in _SEQUENTIAL
        exif += marker == 0xE1 and content.startswith(b"Exif\0\0", position + 3)
        if exif > _MAX_EXIF_PARTS:
            raise ValueError(f"it has more than {_MAX_EXIF_PARTS} segments of EXIF")
        metadata += 0 if marker in _STANDALONE else length
        position += 1 if marker in _STANDALONE else 1 + length
    raise ValueError(f"it has more than {_MAX_PARTS:,} segments before its pixels")


def _png(content: bytes) -> Header:
    position, opening, others, chunks = 8, 0, 0, 0
    while position + 8 <= len(content):
        length, kind = struct.unpack_from(">I4s", content, position)
        if kind == b"IEND":
            break
        if kind not in (b"IDAT", b"fdAT", b"fcTL"):
            others += 1
            opening += _COPIES * min(length, len(content)) + (_TEXT_BYTES if kind in (b"zTXt", b"iTXt") else 0)
        chunks += 1
        if others > _MAX_PARTS or chunks > 100 * _MAX_PARTS:
            raise ValueError(f"it has more than {_MAX_PARTS:,} chunks of metadata, or far too many in all")
        position += 12 + length
    return Header(opening=opening)


def _gif(content: bytes) -> Header:
    """Read up to the first frame: Pillow keeps what precedes it as one object per block of at most 255 bytes."""
    flags = content[10] if len(content) > 10 else 0
    position = 13 + (3 << (flags & 7) + 1 if flags & 128 else 0)
    in_extension = False
    for _ in range(10 * _MAX_PARTS):
        if position >= len(content):
            return Header(_COPIES * len(content))
        byte = content[position]
        if in_extension:
            position += 1 + byte
            in_extension = byte > 0
        elif byte == ord(","):
            return Header(_COPIES * position)
        else:
            in_extension = byte == ord("!")
            position += 2 if in_extension else 1
    raise ValueError("it has far too many blocks before its first frame")


def _tiff(content: bytes) -> Header:
    order = "<" if content.startswith(b"II") else ">"
    big = content[2:4] in (b"+\0", b"\0+")
    address, count, entry = ("Q", "Q", "HHQ") if big else ("L", "H", "HHL")
    try:
        (start,) = struct.unpack_from(order + address, content, 8 if big else 4)
        (tags,) = struct.unpack_from(order + count, content, start)
        if tags > _MAX_PARTS:
            raise ValueError(f"it has {tags:,} tags")
        opening, position = 0, start + struct.calcsize(order + count)
        for _ in range(tags):
            tag, kind, values = struct.unpack_from(order + entry, content, position)
            if tag in _TIFF_OFFSETS and values > _MAX_OFFSETS:
                raise ValueError(f"it has {values:,} strips or tiles")
            size = values * _TIFF_UNITS.get(kind, 1)
            if size < len(content):  # a tag that claims more than the file holds is not counted
                opening += _VALUE_BYTES * values if kind in _TIFF_UNITS else _COPIES * size
            position += 20 if big else 12
    except (struct.error, OverflowError):  # the file is truncated; the decoder reports it
        return Header()
    return Header(opening=opening)


def footprint(image: Image.Image, size: tuple[int, int], header: Header, longest: Longest | None) -> int:
    """Return an upper bound of the bytes that decoding an image takes, in addition to the file itself.

    The image is opened, with `draft` applied, but not loaded; `size` is that before `draft`.
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
        widest, highest = (max((layer[index] for layer in image.layer), default=1) or 1 for index in (1, 2))
        samples = sum(layer[1] * layer[2] for layer in image.layer) / (widest * highest)  # per pixel
        return 0 if header.one_scan else math.ceil(blocks * _JPEG_SAMPLE * samples)
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


def _number(value: object, default: int = 0) -> int:
    """Return the value of a tag as one number, or the default if it is none."""
    if isinstance(value, tuple) and value:
        value = value[0]
    return max(0, int(value)) if isinstance(value, int | float) else default
