"""Pictures of photos: small and large JPEGs from the safe decoder. What a client sent is never sent back as it is."""

from __future__ import annotations

import io

from PIL import Image

from ..photos.decode import SHOWN, load_image
from ..photos.find import Photo

THUMBNAIL = 256  # longest side in pixels
_QUALITY = 85


def picture(photo: Photo, side: int = SHOWN) -> tuple[bytes, tuple[int, int]]:
    """Return an upright photo as a JPEG of at most `side` pixels, and the size of that JPEG.

    Raises
    ------
    PhotoError
        The photo cannot be read.
    """
    with load_image(photo, side) as image:
        small = image.copy()
    small.thumbnail((side, side), Image.Resampling.BICUBIC)
    data = io.BytesIO()
    small.save(data, "JPEG", quality=_QUALITY)
    return data.getvalue(), small.size
