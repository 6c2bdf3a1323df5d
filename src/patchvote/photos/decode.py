"""Decode photos safely: whatever a file holds, the result is an upright 8-bit image, RGB or grey, or a `PhotoError`.

Rotation from EXIF is applied; palette, CMYK and 16-bit images become RGB or grey; transparent parts become white; only
the first frame of an animation is used. Files that claim more pixels than a photo has are refused before a byte is
decoded. All threads together use at most one gigabyte: the memory that a photo needs is known from its header, and it
waits until that much is free.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import math
import os
from collections.abc import Container, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageFile, UnidentifiedImageError

from ..errors import PhotoError
from ..utils.files import open_regular
from ..utils.machine import MemoryLimit, give_back_memory
from ..utils.remote import RemotePath
from .find import MAX_BYTES, Photo
from .formats import formats_of, reason_of
from .pixels import BAND, from_array, upright
from .safety import Header, Longest, footprint, read_header

MAX_PIXELS = 100_000_000
# Bytes for files and decoding, of all threads together: a gigabyte, less a tenth that the C library may keep.
MEMORY = MemoryLimit(900_000_000)
SHOWN = 1024  # longest side in pixels at which a photo is drawn in pictures and reports
_LARGE = 16_000_000  # pixels above which an image is reduced before it is resized
_USUAL = 32 << 20  # bytes that suffice to decode nearly every photo; the others are read again with more


@contextlib.contextmanager
def opened(
    photo: Photo, longest: Longest | None = None, known: Container[str] = (), *, keep: bool = False
) -> Iterator[tuple[Image.Image | None, str]]:
    """Read and decode a photo, and reserve the memory for it until the end of the block.

    Parameters
    ----------
    photo : Photo
        Photo to read.
    longest : function, optional
        Function from width and height to the longest side in pixels that will be used. A larger image is decoded (JPEG)
        or reduced (other formats) to the smallest fraction that keeps at least twice that side.
    known : container of str
        Digests of contents that need not be decoded.
    keep : bool, default False
        Keep the image open after the end of the block.

    Yields
    ------
    image : Pillow image or None
        Upright image of mode RGB, or L if it has no colour (a third of the work); None if its digest is known.
    digest : str
        SHA-256 of the photo's content.
    """
    with _decoded(photo, longest, known) as (image, digest):
        try:
            yield image, digest
        finally:
            if image is not None and not keep:
                image.close()


@contextlib.contextmanager
def _decoded(photo: Photo, longest: Longest | None, known: Container[str]) -> Iterator[tuple[Image.Image | None, str]]:
    if not isinstance(photo.source, (Path, bytes)):
        with _room_for_given(photo):
            image, digest = _copy_given(photo)
            yield (None if digest in known else image), digest
        return
    room = _USUAL
    while True:
        size = _file_size(photo.name, photo.source) if isinstance(photo.source, Path) else 0
        _check_fits(photo.name, size, room)
        with _taken(size + room):
            content = _content(photo.name, photo.source, size)
            digest = hashlib.sha256(content).hexdigest()
            if digest in known:
                yield None, digest
                return
            decoded, room = _decode_within(photo.name, content, longest, room)
            del content
            if decoded is not None:
                yield decoded, digest
                return


def digest_of(photo: Photo) -> str:
    """Return the digest of a photo that `opened` yields; a file is not decoded for it."""
    if isinstance(photo.source, (Path, bytes)):
        size = _file_size(photo.name, photo.source) if isinstance(photo.source, Path) else 0
        return hashlib.sha256(_content(photo.name, photo.source, size)).hexdigest()
    with _room_for_given(photo):
        return _copy_given(photo)[1]


def load_image(photo: Photo, side: int | None = None) -> Image.Image:
    """Read and decode one photo into RGB; with `side`, a large photo is reduced to no less than twice that side."""
    with opened(photo, None if side is None else lambda width, height: side, keep=True) as (image, _):
        assert image is not None  # noqa: S101 - no digests are known
        return image if image.mode == "RGB" else image.convert("RGB")


def resized(image: Image.Image, size: tuple[int, int]) -> Image.Image:
    """Resize an image with the bicubic filter, first horizontally, then vertically.

    The order changes pixels a little, and versions of Pillow differ in the order that they choose themselves.
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


def _decode_within(name: str, content: bytes, longest: Longest | None, room: int) -> tuple[Image.Image | None, int]:
    """Decode a photo if `room` bytes suffice; return the image, or None, and the bytes that it needs."""
    try:
        header = read_header(content)
        if header.opening > room:
            _check_fits(name, len(content), header.opening + _USUAL)
            return None, header.opening + _USUAL
        with Image.open(io.BytesIO(content), formats=formats_of(content)) as image, contextlib.closing(image):
            size = image.size
            if longest is not None:  # the JPEG decoder decodes at a fraction of the size; others ignore `draft`
                scale = 2 * longest(*size) / max(size)
                if scale < 1:
                    image.draft("RGB", (max(1, int(size[0] * scale)), max(1, int(size[1] * scale))))
            pixels = image.width * image.height
            if pixels > MAX_PIXELS:
                raise PhotoError(
                    name,
                    f"has {image.width:,} x {image.height:,} pixels, more than the {MAX_PIXELS / 1e6:,.0f} million "
                    "that are decoded. Make it smaller.",
                )
            reduce_to = longest if pixels > _LARGE else None
            needed = footprint(image, size, header, reduce_to)
            if needed > room:
                _check_fits(name, len(content), needed, f"has {size[0]:,} x {size[1]:,} pixels, and ")
                return None, needed
            return upright(image, reduce_to, close=True), needed
    except PhotoError as error:
        reason = error.reason
    except Exception as error:  # decoders raise nearly anything on damaged files
        reason = _reason(content, error)
    # Raised outside of `except`: an error may be kept for long, and its context would keep the decoder and the pixels.
    raise PhotoError(name, reason)


@contextlib.contextmanager
def _taken(count: int) -> Iterator[None]:
    """Reserve `count` bytes, and return large amounts to the system before another thread may reserve them."""
    with MEMORY.take(count):
        try:
            yield
        finally:
            if count > 2 * _USUAL:
                give_back_memory()


def _check_fits(name: str, file_size: int, room: int, what: str = "") -> None:
    if file_size + room > MEMORY.size:
        raise PhotoError(
            name,
            f"{what}would take {(file_size + room) / 1e6:,.0f} MB of memory to decode; all photos together may take "
            f"{MEMORY.size / 1e6:,.0f} MB. Make it smaller, or save it as an ordinary JPEG (not a progressive one).",
        )


@contextlib.contextmanager
def _room_for_given(photo: Photo) -> Iterator[None]:
    """Reserve the memory for copies of an image that the caller has opened or holds in memory."""
    given = photo.source
    # An image that is opened, but not yet decoded. Pillow does not tell this for WebP.
    if isinstance(given, ImageFile.ImageFile) and (given.tile or given.format == "WEBP"):
        needed = footprint(given, given.size, Header(), None)
        _check_fits(photo.name, 0, needed, f"has {given.width:,} x {given.height:,} pixels, and ")
    else:
        shape: tuple[int, ...] = given.size if isinstance(given, Image.Image) else np.asarray(given).shape[:2]
        needed = min(12 * math.prod(shape), MEMORY.size)  # an image that is in memory already is never refused
    with _taken(needed):
        yield


def _copy_given(photo: Photo) -> tuple[Image.Image, str]:
    """Return an upright copy of an image that the caller passed, and a digest of its pixels."""
    given: Any = photo.source
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
    return image, digest.hexdigest()


def _reason(content: bytes, error: Exception) -> str:
    if isinstance(error, UnidentifiedImageError):
        return reason_of(content)
    if isinstance(error, (Image.DecompressionBombError, Image.DecompressionBombWarning)):
        most = f"{MAX_PIXELS // 10**6} million"
        return f"claims to have more pixels than are safe to decode ({most}). Make it smaller if it really is a photo."
    if isinstance(error, MemoryError):
        return "there is not enough memory to decode it."
    return f"is damaged: {error}."
