"""Colour profiles: pixels are converted from the colour space that a photo names to sRGB, which networks know.

Phones write Display P3, cameras Adobe RGB, printers CMYK: taken for sRGB, their colours are too pale or wrong. A
profile that is damaged, or that does not fit the pixels, is ignored, as if the photo had none. Profiles of grey images
are ignored as well: they change the tone of a grey image little.
"""

from __future__ import annotations

import functools
import io
from typing import Any

from PIL import Image

_MAX_BYTES = 4 << 20  # size of a profile that is read; those of printers have some hundred kilobytes to 2 MB
_SPACES = {"RGB": "RGB", "CMYK": "CMYK"}  # the mode of the pixels, and the colour space that its profile must have


def to_srgb(image: Image.Image, profile: object) -> Image.Image:
    """Convert an image of mode RGB or CMYK to sRGB; RGB images are changed in place.

    Parameters
    ----------
    image : Pillow image
        Image to convert.
    profile : bytes or None
        ICC profile that is embedded in its file.

    Returns
    -------
    Pillow image
        The image in mode RGB, or as it was if the profile cannot be used or is sRGB itself.
    """
    if not isinstance(profile, bytes) or not 0 < len(profile) <= _MAX_BYTES or image.mode not in _SPACES:
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
        if str(source.profile.xcolor_space).strip() != _SPACES[mode]:
            return None
        if "srgb" in str(source.profile.profile_description or "").lower():
            return None
        target = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB"))
        return ImageCms.buildTransform(source, target, mode, "RGB", ImageCms.Intent.RELATIVE_COLORIMETRIC)
    except Exception:  # a damaged profile, or Pillow without LittleCMS
        return None
