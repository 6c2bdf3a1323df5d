"""Decode photos: whatever a file holds, the result is an upright 8-bit image, RGB or grey, or a `PhotoError`.

Rotation from EXIF is applied; palette, CMYK and 16-bit images become RGB or grey; transparent parts become white; only
the first frame of an animation is used. Decoders are trusted up to a number of pixels: photos of strangers are decoded
in a process with limits (`web/decoding.py`).
"""

from __future__ import annotations

import hashlib
import io
import math
import os
from collections.abc import Callable, Container, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image, UnidentifiedImageError

from ..errors import PhotoError
from ..utils.files import read_bytes
from ..utils.remote import RemotePath
from .find import MAX_BYTES, Photo
from .formats import PHOTO_TYPES, how_to_read, pillow_formats
from .pixels import Longest, from_array, upright

MAX_PIXELS = 100_000_000
SHOWN = 1024  # longest side in pixels at which a photo is drawn in pictures and reports
_KINDS = "JPEG, PNG, WebP, GIF, BMP, TIFF, AVIF, HEIC"
_LARGE = 16_000_000  # pixels above which an image is reduced before it is resized

Sizes = Callable[[int, int], Sequence[tuple[int, int]]]  # from width and height to those of the pictures of an image
Pixels = npt.NDArray[np.uint8]  # of a picture: (height, width, 3), or (height, width) if it has no colour
Decode = Callable[[Photo, Sizes, Container[str]], tuple[list[Pixels], str]]  # as `pictures` does


def pictures(photo: Photo, sizes: Sizes, known: Container[str] = ()) -> tuple[list[Pixels], str]:
    """Return the pixels of a photo at each of the sizes, and the digest of its content; no pixels if it is known."""
    image, digest = opened(photo, _longest(sizes), known)
    return [] if image is None else _at(sizes, image), digest


def pictures_in(name: str, content: bytes, sizes: Sizes) -> list[Pixels]:
    """Return the pixels of the photo that a file holds at each of the sizes."""
    return _at(sizes, _decoded(name, content, _longest(sizes)))


def _at(sizes: Sizes, image: Image.Image) -> list[Pixels]:
    return [np.asarray(resized(image, size)) for size in sizes(*image.size)]


def _longest(sizes: Sizes) -> Longest:
    return lambda width, height: max(map(max, sizes(width, height)))


def opened(photo: Photo, longest: Longest | None = None, known: Container[str] = ()) -> tuple[Image.Image | None, str]:
    """Return an upright image and the SHA-256 of the photo's content; no image if the digest is `known`.

    An image without colour has the mode L (a third of the work). `longest` returns the longest side in pixels that will
    be used of an image of some width and height: a larger one is decoded (JPEG) or reduced (other formats) to the
    smallest fraction that keeps at least twice that side.
    """
    if isinstance(photo.source, (Path, bytes)):
        content = content_of(photo)
        digest = hashlib.sha256(content).hexdigest()
        return None if digest in known else _decoded(photo.name, content, longest), digest
    image = _converted(photo)
    digest = hashlib.sha256(f"{image.mode} {image.size}".encode() + image.tobytes()).hexdigest()
    return None if digest in known else image, digest


def digest_of(photo: Photo) -> str:
    """Return the digest of a photo that `opened` returns; a file is not decoded for it."""
    if isinstance(photo.source, (Path, bytes)):
        return hashlib.sha256(content_of(photo)).hexdigest()
    return opened(photo)[1]


def within(side: int, width: int, height: int) -> list[tuple[int, int]]:
    """Return the size of an image whose longest side becomes `side` at most."""
    scale = min(1.0, side / max(width, height))
    return [(max(1, round(width * scale)), max(1, round(height * scale)))]


def load_image(photo: Photo, side: int | None = None) -> Image.Image:
    """Read and decode one photo into RGB; with `side`, a large photo is reduced to no less than twice that side."""
    image, _ = opened(photo, None if side is None else lambda width, height: side)
    assert image is not None  # noqa: S101 - no digests are known
    return image if image.mode == "RGB" else image.convert("RGB")


def resized(image: Image.Image, size: tuple[int, int]) -> Image.Image:
    """Resize an image with the bicubic filter, first horizontally, then vertically.

    The order changes pixels a little, and versions of Pillow differ in the order that they choose themselves. Exported
    graphs have the same filter (`models/export.py`); CONTRIBUTING.md says what else depends on it.
    """
    return image.resize((size[0], image.height), Image.Resampling.BICUBIC).resize(size, Image.Resampling.BICUBIC)


def content_of(photo: Photo) -> bytes:
    """Return the content of a photo that is a file, or the content of one."""
    name, source = photo.name, photo.source
    if isinstance(source, bytes):
        return source
    if not isinstance(source, Path):
        raise PhotoError(name, "is an image in memory, not a file.")
    try:
        return read_bytes(source, MAX_BYTES)
    except FileNotFoundError:
        raise PhotoError(name, "is a broken link." if source.is_symlink() else "there is no such file.") from None
    except OSError as error:
        reason = error.strerror or error
        if not isinstance(source, RemotePath) and os.path.isdir(source):  # noqa: PTH112 - Path.is_dir may raise
            reason = "it is a folder" if os.access(source, os.R_OK) else "the folder may not be read"
        raise PhotoError(name, f"cannot be read: {reason}.") from None


def _decoded(name: str, content: bytes, longest: Longest | None) -> Image.Image:
    try:
        with Image.open(io.BytesIO(content), formats=pillow_formats()) as image:
            size = image.size
            if longest is not None:  # the JPEG decoder decodes at a fraction of the size; others ignore `draft`
                scale = 2 * longest(*size) / max(size)
                if scale < 1:
                    image.draft("RGB", (max(1, int(size[0] * scale)), max(1, int(size[1] * scale))))
            pixels = math.prod(image.size)
            if pixels > MAX_PIXELS:
                raise Image.DecompressionBombError
            return upright(image, longest if pixels > _LARGE else None)
    except Exception as error:  # decoders raise nearly anything on damaged files
        reason = _reason(name, content, error)
    # Raised outside of `except`: an error may be kept for long, and its context would keep the decoder and the pixels.
    raise PhotoError(name, reason)


def _converted(photo: Photo) -> Image.Image:
    """Return an upright copy of an image that the caller passed."""
    given: Any = photo.source
    try:
        image = upright(given if isinstance(given, Image.Image) else from_array(photo.name, given))
    except PhotoError:
        raise
    except Exception as error:  # the image may only now be decoded
        raise PhotoError(photo.name, _reason(photo.name, b"", error)) from error
    if 0 in image.size:
        raise PhotoError(photo.name, f"has no pixels: its size is {image.size}.")
    return image


def _reason(name: str, content: bytes, error: Exception) -> str:
    if isinstance(error, UnidentifiedImageError):
        if not content:
            return "the file is empty."
        ending = Path(name).suffix.lower()
        advice = f" {how_to_read(ending)}" if ending in PHOTO_TYPES else ""
        return f"is not an image that can be read ({_KINDS}), whatever its name says.{advice}"
    if isinstance(error, (Image.DecompressionBombError, Image.DecompressionBombWarning)):
        return f"has more pixels than are decoded ({MAX_PIXELS // 10**6} million). Make it smaller."
    return "there is not enough memory to decode it." if isinstance(error, MemoryError) else f"is damaged: {error}."
