"""Decode photos safely: whatever a file holds, the result is an upright 8-bit image, RGB or grey, or a `PhotoError`.

Rotation from EXIF is applied; palette, CMYK and 16-bit images become RGB or grey; transparent parts become white; only
the first frame of an animation is used. Files that claim more pixels than a photo has are refused before a byte is
decoded. All threads together decode a limited number of pixels at once, which take about a gigabyte: a large photo
waits until others are done.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import math
import os
import struct
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, UnidentifiedImageError

from ..errors import PhotoError
from ..utils.files import open_regular
from ..utils.machine import MemoryLimit, give_back_memory
from ..utils.remote import RemotePath
from .find import MAX_BYTES, Photo
from .formats import formats_of, reason_of
from .pixels import BAND, Longest, from_array, upright

MAX_PIXELS = 100_000_000
# Pixels that all threads together decode at once: most decoders take 8 to 16 bytes for each, and none more than 24. A
# photo that has more is decoded alone.
AT_ONCE = MemoryLimit(40_000_000)
SHOWN = 1024  # longest side in pixels at which a photo is drawn in pictures and reports
_LARGE = 16_000_000  # pixels above which an image is reduced before it is resized
_USUAL = 2_000_000  # pixels that nearly every photo has at most, once a JPEG is reduced; others are read again
_COSTLY = ("WEBP", "AVIF", "HEIF")  # formats whose decoders hold up to four copies: half as many pixels are decoded
_FILE_BYTES = 8  # of a file that count as a pixel, since it is in memory as well
_MAX_SCANS = 100  # scans of a JPEG, each a pass over all pixels; encoders write about ten
_MAX_NUMBERS = 65_536  # in a tag of a TIFF, such as the places of its strips; Pillow makes an object of each
_TIFF_BYTES = (1, 2, 7)  # types of tags that stay bytes


Opened = tuple[Image.Image | None, str]  # an upright image, of mode RGB or L, and the SHA-256 of the photo's content


def opened(
    photo: Photo, longest: Longest | None = None, is_known: Callable[[str], bool] = lambda digest: False
) -> AbstractContextManager[Opened]:
    """Read and decode a photo when it is its turn, which ends with the block.

    An image without colour has the mode L (a third of the work). There is None in its place if its digest `is_known`.
    `longest` returns the longest side in pixels that will be used of an image of some width and height: a larger one is
    decoded (JPEG) or reduced (other formats) to the smallest fraction that keeps at least twice that side.
    """
    if isinstance(photo.source, (Path, bytes)):
        return _decoded_file(photo.name, photo.source, longest, is_known)
    return _decoded_image(photo, is_known)


@contextlib.contextmanager
def _decoded_file(
    name: str, source: Path | bytes, longest: Longest | None, is_known: Callable[[str], bool]
) -> Iterator[Opened]:
    turn, image = _USUAL, None
    while image is None:
        size = _file_size(name, source) if isinstance(source, Path) else len(source)
        turn = max(turn, size // _FILE_BYTES)
        with _turn(turn):
            content = _content(name, source, size)
            digest = hashlib.sha256(content).hexdigest()
            if is_known(digest):
                yield None, digest
                return
            image, turn = _decode_within(name, content, longest, turn)
            del content
            if image is not None:
                yield image, digest


def digest_of(photo: Photo) -> str:
    """Return the digest of a photo that `opened` yields; a file is not decoded for it."""
    with opened(photo, is_known=lambda digest: True) as (_, digest):
        return digest


def load_image(photo: Photo, side: int | None = None) -> Image.Image:
    """Read and decode one photo into RGB; with `side`, a large photo is reduced to no less than twice that side."""
    with opened(photo, None if side is None else lambda width, height: side) as (image, _):
        assert image is not None  # noqa: S101 - no digests are known
        return image if image.mode == "RGB" else image.convert("RGB")


def resized(image: Image.Image, size: tuple[int, int]) -> Image.Image:
    """Resize an image with the bicubic filter, first horizontally, then vertically.

    The order changes pixels a little, and versions of Pillow differ in the order that they choose themselves. Exported
    graphs have the same filter (`models/export.py`); CONTRIBUTING.md says what else depends on it.
    """
    return image.resize((size[0], image.height), Image.Resampling.BICUBIC).resize(size, Image.Resampling.BICUBIC)


def _file_size(name: str, path: Path) -> int:
    with _read_errors(name, path):
        size = path.stat().st_size
    if size > MAX_BYTES:
        raise PhotoError(name, f"has {size / 1e9:.1f} GB, too much for a photo.")
    return size


def _content(name: str, source: Path | bytes, size: int) -> bytes:
    if isinstance(source, bytes):
        return source
    with _read_errors(name, source), open_regular(source) as file:
        content = file.read(size + 1)
    if len(content) > size:
        raise PhotoError(name, "grows while it is read. Try again when it is complete.")
    return content


@contextlib.contextmanager
def _read_errors(name: str, path: Path) -> Iterator[None]:
    """Turn errors of the file system into a `PhotoError` that says why the file cannot be read."""
    try:
        yield
    except FileNotFoundError:
        raise PhotoError(name, "is a broken link." if path.is_symlink() else "there is no such file.") from None
    except (OSError, ValueError) as error:  # ValueError: a name that no file can have
        reason = getattr(error, "strerror", None) or error
        if not isinstance(path, RemotePath) and os.path.isdir(path):  # noqa: PTH112 - Path.is_dir may raise
            reason = "it is a folder" if os.access(path, os.R_OK) else "the folder may not be read"
        raise PhotoError(name, f"cannot be read: {reason}.") from None


def _decode_within(name: str, content: bytes, longest: Longest | None, turn: int) -> tuple[Image.Image | None, int]:
    """Decode a photo of at most `turn` pixels; return the image, or None, and how many pixels it has."""
    try:
        _check_header(content)
        with Image.open(io.BytesIO(content), formats=formats_of(content)) as image, contextlib.closing(image):
            size = image.size
            if longest is not None:  # the JPEG decoder decodes at a fraction of the size; others ignore `draft`
                scale = 2 * longest(*size) / max(size)
                if scale < 1:
                    image.draft("RGB", (max(1, int(size[0] * scale)), max(1, int(size[1] * scale))))
            pixels = _pixels_to_decode(image, size, content)
            most = MAX_PIXELS // 2 if image.format in _COSTLY else MAX_PIXELS
            if pixels > most:
                raise PhotoError(
                    name,
                    f"has {size[0]:,} x {size[1]:,} pixels, more than the {most / 1e6:,.0f} million that are decoded. "
                    "Make it smaller, or save it as an ordinary JPEG (not a progressive one).",
                )
            if pixels > turn:
                return None, pixels
            return upright(image, longest if pixels > _LARGE else None, close=True), pixels
    except PhotoError as error:
        reason = error.reason
    except Exception as error:  # decoders raise nearly anything on damaged files
        reason = _reason(content, error)
    # Raised outside of `except`: an error may be kept for long, and its context would keep the decoder and the pixels.
    raise PhotoError(name, reason)


def _check_header(content: bytes) -> None:
    """Refuse headers of some bytes for which a decoder takes minutes or gigabytes; `ValueError` says why."""
    if content.startswith(b"\xff\xd8\xff") and content.count(b"\xff\xda") > _MAX_SCANS:
        raise ValueError(f"it has more than {_MAX_SCANS} scans")
    if content[:4] not in (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+"):
        return
    order, big = "<" if content.startswith(b"II") else ">", b"+" in content[2:4]
    address, count, entry = ("Q", "Q", "HHQQ") if big else ("L", "H", "HHLL")
    with contextlib.suppress(struct.error):  # the file is cut off, which the decoder reports
        (first,) = struct.unpack_from(order + address, content, 8 if big else 4)
        (tags,) = struct.unpack_from(order + count, content, first)
        first += struct.calcsize(order + count)
        for number in range(tags):
            place = first + number * struct.calcsize(order + entry)
            _, kind, values, _ = struct.unpack_from(order + entry, content, place)
            if kind not in _TIFF_BYTES and values > _MAX_NUMBERS:
                raise ValueError(f"it has a tag of {values:,} numbers")


def _pixels_to_decode(image: Any, size: tuple[int, int], content: bytes) -> int:
    """Return how many pixels a decoder holds of an image of this size, which is opened, with `draft` applied.

    JPEGs of several scans hold all of them whatever the scale, and TIFFs a whole tile, which may exceed the image.
    """
    if image.format in ("JPEG", "MPO"):
        one_scan = b"\xff\xda" + struct.pack(">HB", 6 + 2 * image.layers, image.layers)  # with all components
        if "progressive" not in image.info and one_scan in content:
            return int(math.prod(image.size))
    tile = [int(np.max(image.tag_v2.get(tag, 0))) for tag in (322, 323)] if image.format == "TIFF" else [0]
    return max(math.prod(size), math.prod(tile))


@contextlib.contextmanager
def _turn(pixels: int) -> Iterator[None]:
    """Wait for the turn of so many pixels; return what large ones took to the system before the next turn."""
    with AT_ONCE.take(min(pixels, AT_ONCE.size)):
        try:
            yield
        finally:
            if pixels > 2 * _USUAL:
                give_back_memory()


@contextlib.contextmanager
def _decoded_image(photo: Photo, is_known: Callable[[str], bool]) -> Iterator[Opened]:
    """Yield an upright copy of an image that the caller passed, and a digest of its pixels."""
    given: Any = photo.source
    shape: tuple[int, ...] = given.size if isinstance(given, Image.Image) else np.asarray(given).shape[:2]
    with _turn(math.prod(shape)):
        try:
            image = upright(given if isinstance(given, Image.Image) else from_array(photo.name, given))
        except PhotoError:
            raise
        except Exception as error:  # the image may only now be decoded
            raise PhotoError(photo.name, _reason(b"", error)) from error
        if 0 in image.size:
            raise PhotoError(photo.name, f"has no pixels: its size is {image.size}.")
        digest = hashlib.sha256(f"{image.mode} {image.size}".encode())
        rows = max(1, BAND // image.width)
        for top in range(0, image.height, rows):
            digest.update(image.crop((0, top, image.width, min(top + rows, image.height))).tobytes())
        yield (None if is_known(digest.hexdigest()) else image), digest.hexdigest()


def _reason(content: bytes, error: Exception) -> str:
    if isinstance(error, UnidentifiedImageError):
        return reason_of(content)
    if isinstance(error, (Image.DecompressionBombError, Image.DecompressionBombWarning)):
        most = f"{MAX_PIXELS // 10**6} million"
        return f"claims to have more pixels than are safe to decode ({most}). Make it smaller if it really is a photo."
    return "there is not enough memory to decode it." if isinstance(error, MemoryError) else f"is damaged: {error}."
