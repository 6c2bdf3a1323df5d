"""Check the header of a photo before a decoder reads it.

Decoders read and keep all metadata before the pixels: millions of tiny segments, text that inflates a thousandfold,
offsets that become objects. A few kilobytes of it can take minutes or gigabytes. A header that no real photo has is
refused here, in a time that does not depend on what the file claims.
"""

from __future__ import annotations

import dataclasses
import struct

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


@dataclasses.dataclass(frozen=True)
class Header:
    """Properties of a header that decide how much memory a decoder takes.

    Parameters
    ----------
    opening : int
        Bytes that reading the header may take, in addition to the file itself.
    one_scan : bool
        Whether all pixels of a JPEG are in one scan, so that a decoder holds a few rows at a time instead of all.
    """

    opening: int = 0
    one_scan: bool = False


def read_header(content: bytes) -> Header:
    """Read the header of a photo of any format.

    Raises
    ------
    ValueError
        The header exceeds a limit that no real photo reaches.
    """
    if content.startswith(b"\xff\xd8\xff"):
        return _jpeg(content)
    if content.startswith(b"\x89PNG\r\n\x1a\n"):
        return _png(content)
    if content[:6] in (b"GIF87a", b"GIF89a"):
        return _gif(content)
    if content[:4] in (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+"):
        return _tiff(content)
    if content[:4] == b"RIFF" and content[8:12] == b"WEBP":  # the decoder gets the whole file, and copies it
        return Header(opening=_COPIES * len(content))
    if content[4:8] == b"ftyp":  # AVIF and HEIC: likewise
        return Header(opening=_COPIES * len(content))
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
