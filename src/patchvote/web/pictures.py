"""Pictures of photos: small and large JPEGs from the safe decoder. What a client sent is never sent back as it is."""

from __future__ import annotations

import io

from PIL import Image

from ..photos.decode import SHOWN, load_image
from ..photos.find import Photo

_THUMBNAIL = 256  # longest side in pixels
_QUALITY = 85


def picture(photo: Photo) -> bytes:
    """Return an upright photo as a JPEG whose longest side has at most 1,024 pixels.

    Raises
    ------
    PhotoError
        The photo cannot be read.
    """
    return _jpeg(_shown(photo))


def thumbnail(photo: Photo) -> tuple[bytes, tuple[int, int]]:
    """Return an upright photo as a small JPEG, and the size of its `picture`; raises as `picture` does."""
    image = _shown(photo)
    size = image.size
    image.thumbnail((_THUMBNAIL, _THUMBNAIL), Image.Resampling.BICUBIC)
    return _jpeg(image), size


def _shown(photo: Photo) -> Image.Image:
    image = load_image(photo, SHOWN)
    image.thumbnail((SHOWN, SHOWN), Image.Resampling.BICUBIC)
    return image


def _jpeg(image: Image.Image) -> bytes:
    data = io.BytesIO()
    image.save(data, "JPEG", quality=_QUALITY)
    return data.getvalue()
