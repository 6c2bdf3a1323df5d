"""Decode photos: whatever a file holds, the result is an upright 8-bit image, RGB or grey, or a `PhotoError`.

Rotation from EXIF is applied; palette, CMYK and 16-bit images become RGB or grey; transparent parts become white; only
the first frame of an animation is used. Decoders are trusted up to a number of pixels: photos of strangers are decoded
in a process with limits (`web/decoding.py`).

Phones write Display P3, cameras Adobe RGB, printers CMYK: taken for sRGB, their colours are too pale or wrong. A
profile that is damaged, that does not fit the pixels, or that is of a grey image is ignored.
"""

from __future__ import annotations

import contextlib
import functools
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
from .find import Photo
from .formats import PHOTO_TYPES, how_to_read, pillow_formats

MAX_PIXELS = 100_000_000
_MAX_BYTES = 400_000_000  # of a file
SHOWN = 1024  # longest side in pixels at which a photo is drawn in pictures and reports
_KINDS = "JPEG, PNG, WebP, GIF, BMP, TIFF, AVIF, HEIC"
_LARGE = 16_000_000  # pixels above which an image is reduced before it is resized

_REDUCIBLE = ("L", "LA", "RGB", "RGBA", "CMYK", "YCbCr", "I", "F")  # modes
_ORIENTATION = 0x0112  # tag in EXIF
_ROTATIONS = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}

Longest = Callable[[int, int], int]  # from width and height to the longest side in pixels that will be used
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
        return read_bytes(source, _MAX_BYTES)
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
            return _upright(image, longest if pixels > _LARGE else None)
    except Exception as error:  # decoders raise nearly anything on damaged files
        reason = _reason(name, content, error)
    # Raised outside of `except`: an error may be kept for long, and its context would keep the decoder and the pixels.
    raise PhotoError(name, reason)


def _converted(photo: Photo) -> Image.Image:
    """Return an upright copy of an image that the caller passed."""
    given: Any = photo.source
    try:
        image = _upright(given if isinstance(given, Image.Image) else _from_array(photo.name, given))
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


# --- upright 8-bit RGB or grey ----------------------------------------------------------------------------------------


def _upright(image: Image.Image, longest: Longest | None = None) -> Image.Image:
    """Return an upright copy of an image as RGB or grey, no larger than needed."""
    image.load()
    rotation = None
    with contextlib.suppress(Exception):  # the pixels may be fine although the EXIF block is damaged
        rotation = _ROTATIONS.get(image.getexif().get(_ORIENTATION, 1))
    # Reduce before any copy is made: a copy of 100 million pixels takes hundreds of megabytes.
    plain = _plain(_reduced(image, longest))
    if rotation is not None:
        plain = plain.transpose(rotation)
    plain.info.clear()  # the orientation in it no longer applies
    return _reduced(plain, longest)


def _plain(image: Image.Image) -> Image.Image:
    """Return a copy of an image as RGB, or as L if it has no colour."""
    if image.mode in ("I", "F") or image.mode.startswith("I;16"):
        return Image.fromarray(_to_8_bit(np.asarray(image)))
    profile = image.info.get("icc_profile")
    if image.mode in ("RGBA", "LA", "PA", "La", "RGBa") or "transparency" in image.info:
        return _to_srgb(_on_white(image), profile)
    if image.mode == "CMYK":
        return _to_srgb(image, profile).convert("RGB")
    return _to_srgb(image.convert("L" if image.mode in ("L", "1") else "RGB"), profile)


def _on_white(image: Image.Image) -> Image.Image:
    image = image.convert("RGBA")
    result = Image.new("RGB", image.size, "white")
    result.paste(image, mask=image)
    return result


def _reduced(image: Image.Image, longest: Longest | None) -> Image.Image:
    """Reduce an image by an integer factor to no less than twice the side that will be used, if its mode allows."""
    factor = max(image.size) // (2 * longest(image.width, image.height)) if longest is not None else 1
    return image.reduce(factor) if factor > 1 and image.mode in _REDUCIBLE else image


def _to_srgb(image: Image.Image, profile: object) -> Image.Image:
    """Convert an image of mode RGB (in place) or CMYK from its ICC profile to sRGB; others stay as they are."""
    if not isinstance(profile, bytes) or image.mode not in ("RGB", "CMYK"):
        return image
    transform = _transform(profile, image.mode)
    if transform is None:
        return image
    if image.mode == "RGB":
        transform.apply_in_place(image)
        return image
    converted: Image.Image = transform.apply(image)
    return converted


@functools.lru_cache(maxsize=8)  # photos of one camera have the same profile
def _transform(profile: bytes, mode: str) -> Any:
    """Return the transform from a profile to sRGB; None if there is nothing to do, or the profile is damaged."""
    from PIL import ImageCms

    try:
        source = ImageCms.ImageCmsProfile(io.BytesIO(profile))
        is_srgb = "srgb" in str(source.profile.profile_description or "").lower()
        if is_srgb or str(source.profile.xcolor_space).strip() != mode:
            return None
        target = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB"))
        return ImageCms.buildTransform(source, target, mode, "RGB", ImageCms.Intent.RELATIVE_COLORIMETRIC)
    except Exception:  # a damaged profile, or Pillow without LittleCMS
        return None


def _to_8_bit(values: npt.NDArray[Any]) -> npt.NDArray[np.uint8]:
    """Scale 16-bit, 32-bit and float grey values to 8 bits, from the range of their type or else of their values."""
    low, high = float(values.min()), float(values.max())
    if not np.isfinite([low, high]).all():
        raise ValueError("has pixels that are not finite numbers")
    if values.dtype.kind == "f" and low >= 0 and high <= 1:
        low, high = 0.0, 1.0
    elif values.dtype.kind in "iu" and low >= 0 and high < 65536:
        low, high = 0.0, 65535.0
    span = max(high - low, 1e-12)
    result = np.empty(values.shape, np.uint8)
    for start in range(0, len(values), 64):  # by rows: a float64 copy of a large image takes too much memory
        rows = slice(start, start + 64)
        result[rows] = np.round((values[rows].astype(np.float64) - low) * (255 / span))
    return result


def _from_array(name: str, array: npt.NDArray[Any]) -> Image.Image:
    """Convert an array, as scikit-image defines images: ``(h, w)``, ``(h, w, 1)``, ``(h, w, 3)`` or ``(h, w, 4)``."""
    array = np.asarray(array)
    if array.ndim == 3 and array.shape[2] == 1:
        array = array[:, :, 0]
    if array.ndim not in (2, 3) or (array.ndim == 3 and array.shape[2] not in (3, 4)) or 0 in array.shape:
        raise PhotoError(name, f"an image array must have the shape (h, w), (h, w, 3) or (h, w, 4), got {array.shape}.")
    if array.dtype == bool:
        array = array.astype(np.uint8) * np.uint8(255)
    elif array.dtype != np.uint8:
        if array.dtype not in (np.uint16, np.float16, np.float32, np.float64):
            raise PhotoError(name, f"an image array must be uint8, uint16, bool or float in 0..1, got {array.dtype}.")
        if array.dtype.kind == "f" and not (array.min() >= 0 and array.max() <= 1):
            raise PhotoError(name, f"a float image must lie in 0..1, got {array.min():.3g} to {array.max():.3g}.")
        array = _to_8_bit(array)
    return Image.fromarray(np.ascontiguousarray(array))
