"""Convert an image to upright 8-bit RGB or grey, in sRGB, without transparency, and no larger than needed.

Phones write Display P3, cameras Adobe RGB, printers CMYK: taken for sRGB, their colours are too pale or wrong. A
profile that is damaged, that does not fit the pixels, or that is of a grey image is ignored.
"""

from __future__ import annotations

import contextlib
import functools
import io
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

from ..errors import PhotoError

Longest = Callable[[int, int], int]  # from width and height to the longest side in pixels that will be used

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


def upright(image: Image.Image, longest: Longest | None = None) -> Image.Image:
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
        return to_srgb(_on_white(image), profile)
    if image.mode == "CMYK":
        return to_srgb(image, profile).convert("RGB")
    return to_srgb(image.convert("L" if image.mode in ("L", "1") else "RGB"), profile)


def _on_white(image: Image.Image) -> Image.Image:
    image = image.convert("RGBA")
    result = Image.new("RGB", image.size, "white")
    result.paste(image, mask=image)
    return result


def _reduced(image: Image.Image, longest: Longest | None) -> Image.Image:
    """Reduce an image by an integer factor to no less than twice the side that will be used, if its mode allows."""
    factor = max(image.size) // (2 * longest(image.width, image.height)) if longest is not None else 1
    return image.reduce(factor) if factor > 1 and image.mode in _REDUCIBLE else image


def to_srgb(image: Image.Image, profile: object) -> Image.Image:
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


def from_array(name: str, array: npt.NDArray[Any]) -> Image.Image:
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
