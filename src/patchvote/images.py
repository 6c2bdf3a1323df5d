"""Decode photos safely: whatever the file holds, the answer is an upright 8-bit image, RGB or grey, or a reason.

Rotation from EXIF is applied; palette, CMYK and 16-bit images become RGB or grey; transparent parts turn white; of an
animation the first frame is taken. Large JPEGs are decoded at a fraction of their size, other large images reduced as
soon as they are decoded. Files that claim more pixels than a photo has are refused before a byte is decoded.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageOps, UnidentifiedImageError

from .errors import PhotoError
from .photos import Photo
from .reading import open_regular

FORMATS = ("JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF")
MAX_PIXELS = 100_000_000
_MAX_BYTES = 400_000_000
_LARGE = 16_000_000
_REDUCIBLE = ("L", "LA", "RGB", "RGBA", "CMYK", "YCbCr", "I", "F")
_ORIENTATION = 0x0112  # in EXIF

# Several threads decode at once. Large photos take turns until they are reduced, so that memory holds one and not one a
# thread.
_one_large_at_a_time = threading.Lock()


def read_photo(photo: Photo) -> tuple[bytes | Image.Image, str]:
    """Read a photo's content without decoding it, and its SHA-256.

    Raises
    ------
    PhotoError
        The file cannot be read.
    """
    if isinstance(photo.source, Path):
        data = _read_file(photo.name, photo.source)
        return data, hashlib.sha256(data).hexdigest()
    given = photo.source
    try:
        image = _upright(given if isinstance(given, Image.Image) else _from_array(photo.name, given))
    except PhotoError:
        raise
    except Exception as error:  # an image of the caller's may still have to be decoded
        raise PhotoError(photo.name, _reason(b"", error)) from error
    if 0 in image.size:
        raise PhotoError(photo.name, f"has no pixels: its size is {image.size}.")
    told = f"{image.mode} {image.size}".encode()
    return image, hashlib.sha256(told + image.tobytes()).hexdigest()


def decode(
    name: str,
    content: bytes | Image.Image,
    longest: Callable[[int, int], int] | None = None,
    max_pixels: int = MAX_PIXELS,
) -> Image.Image:
    """Decode a photo into an upright image of the mode RGB, or L where it has no colour: a third of the work.

    Parameters
    ----------
    name : str
        What to call it in an error.
    content : bytes or Pillow image
        What `read_photo` gave.
    longest : function, optional
        From width and height to the longest side in pixels that will be used; of a larger image, the smallest fraction
        that keeps twice as much is decoded (JPEG) or kept (others).
    max_pixels : int
        Refuse images that have more pixels after that.

    Raises
    ------
    PhotoError
        The content is not a whole image of a known format; the reason says in which way.
    """
    if isinstance(content, Image.Image):
        return content
    try:
        with Image.open(io.BytesIO(content), formats=FORMATS) as image:
            if longest is not None:
                _decode_less(image, longest)
            pixels = image.width * image.height
            if pixels > max_pixels:
                raise PhotoError(
                    name,
                    f"has {image.width:,} x {image.height:,} pixels, more than the {max_pixels / 1e6:,.0f} million "
                    "that are decoded. Make it smaller.",
                )
            if pixels > _LARGE:
                with _one_large_at_a_time:
                    return _upright(image, longest)
            return _upright(image)
    except PhotoError:
        raise
    except Exception as error:  # decoders raise nearly anything on damaged files
        raise PhotoError(name, _reason(content, error)) from error


def load_image(photo: Photo) -> Image.Image:
    """Read and decode one photo into RGB."""
    return decode(photo.name, read_photo(photo)[0]).convert("RGB")


def resized(image: Image.Image, size: tuple[int, int]) -> Image.Image:
    """Resize an image by the bicubic filter, across and then down.

    Which comes first changes pixels a little, and versions of Pillow differ in it where both are left to them.
    """
    return image.resize((size[0], image.height), Image.Resampling.BICUBIC).resize(size, Image.Resampling.BICUBIC)


def _read_file(name: str, path: Path) -> bytes:
    try:
        with open_regular(path) as file:
            size = os.fstat(file.fileno()).st_size
            if size > _MAX_BYTES:
                raise PhotoError(name, f"has {size / 1e9:.1f} GB, too much for a photo.")
            content = file.read(size + 1)
        if len(content) > size:
            raise PhotoError(name, "grows while it is read. Try again when it is complete.")
        return content
    except FileNotFoundError:
        reason = "is a broken link." if path.is_symlink() else "there is no such file."
    except PermissionError:
        reason = "may not be read: permission denied."
    except OSError as error:
        reason = _folder_reason(path) if path.is_dir() else f"cannot be read: {error.strerror or error}."
    raise PhotoError(name, reason)


def _folder_reason(path: Path) -> str:
    try:
        os.scandir(path).close()
    except OSError as error:
        return f"the folder may not be read: {error.strerror or error}."
    return "is a folder. Give it alone."


def _decode_less(image: Image.Image, longest: Callable[[int, int], int]) -> None:
    """Let the JPEG decoder leave out what nobody will look at; other formats pay no heed."""
    scale = 2 * longest(image.width, image.height) / max(image.width, image.height)
    if scale < 1:
        image.draft("RGB", (max(1, int(image.width * scale)), max(1, int(image.height * scale))))


def _upright(image: Image.Image, longest: Callable[[int, int], int] | None = None) -> Image.Image:
    image.load()
    # Before anything makes copies: of 100 million pixels, each would take hundreds of megabytes.
    image = _reduced(image, longest)
    with contextlib.suppress(Exception):  # a damaged EXIF block says nothing about the pixels
        if image.getexif().get(_ORIENTATION, 1) != 1:
            image = ImageOps.exif_transpose(image)
    if image.mode in ("I", "F") or image.mode.startswith("I;16"):
        image = Image.fromarray(_to_8_bit(np.asarray(image)))
    elif image.mode in ("RGBA", "LA", "PA", "La", "RGBa") or "transparency" in image.info:
        white = Image.new("RGBA", image.size, "white")
        image = Image.alpha_composite(white, image.convert("RGBA")).convert("RGB")
    else:
        image = image.convert("L" if image.mode in ("L", "1") else "RGB")
    return _reduced(image, longest)


def _reduced(image: Image.Image, longest: Callable[[int, int], int] | None) -> Image.Image:
    """Reduce an image by a whole factor to no less than twice what will be used, where its mode can be."""
    factor = max(image.size) // (2 * longest(image.width, image.height)) if longest is not None else 1
    if factor < 2 or image.mode not in _REDUCIBLE:
        return image
    small = image.reduce(factor)
    with contextlib.suppress(Exception):
        small.getexif().update(image.getexif())
    return small


def _to_8_bit(values: npt.NDArray[Any]) -> npt.NDArray[np.uint8]:
    """Bring 16-bit, 32-bit and float grey values to 8 bits by the range that their type, or else their values, have."""
    if values.dtype == np.uint8:
        return values
    low, high = float(values.min()), float(values.max())
    if not np.isfinite([low, high]).all():
        raise ValueError("has pixels that are not finite numbers")
    if values.dtype.kind == "f" and low >= 0 and high <= 1:
        low, high = 0.0, 1.0
    elif values.dtype.kind in "iu" and low >= 0 and high < 65536:
        low, high = 0.0, 65535.0
    span = max(high - low, 1e-12)
    result = np.empty(values.shape, np.uint8)
    for start in range(0, len(values), 64):  # by rows: a float64 copy of a large image is larger than all else
        rows = slice(start, start + 64)
        result[rows] = np.round((values[rows].astype(np.float64) - low) * (255 / span))
    return result


def _from_array(name: str, array: npt.NDArray[Any]) -> Image.Image:
    """Take an array as scikit-image does: ``(h, w)``, ``(h, w, 1)``, ``(h, w, 3)`` or ``(h, w, 4)``."""
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


def _reason(content: bytes | Image.Image, error: Exception) -> str:
    if isinstance(error, UnidentifiedImageError):
        if not content:
            return "the file is empty."
        return "is not an image that can be read (JPEG, PNG, WebP, GIF, BMP, TIFF), whatever its name says."
    if isinstance(error, (Image.DecompressionBombError, Image.DecompressionBombWarning)):
        return "claims to have more pixels than are safe to decode. Make it smaller if it really is a photo."
    if isinstance(error, MemoryError):
        return "there is not enough memory to decode it."
    return f"is damaged: {error}."
