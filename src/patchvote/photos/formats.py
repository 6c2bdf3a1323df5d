"""The file formats of photos: those that are always read, HEIC, which needs an installed decoder, and all others."""

from __future__ import annotations

import functools
import importlib.util
from pathlib import Path

_FORMATS = ("JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF", "AVIF")
_ENDINGS = (".jpg", ".jpeg", ".jpe", ".jfif", ".png", ".webp", ".gif", ".bmp", ".tif", ".tiff", ".avif")
_HEIC = (".heic", ".heif", ".hif")
_RAW_ENDINGS = "raw dng cr2 cr3 crw nef nrw arw srf sr2 orf raf rw2 pef srw x3f 3fr fff iiq erf mrw kdc dcr mef mos rwl"
_OTHER_ENDINGS = "jxl jp2 j2k jpf mpo psd xcf tga ppm pgm pnm exr hdr"
_RAW = {f".{ending}" for ending in _RAW_ENDINGS.split()}
_OTHERS = {f".{ending}" for ending in _OTHER_ENDINGS.split()}
PHOTO_TYPES = frozenset(_RAW | _OTHERS | {*_HEIC})  # endings of photos that are not decoded, or not everywhere


@functools.cache
def endings() -> tuple[str, ...]:
    """Return the endings of the files that can be read here."""
    return _ENDINGS + (_HEIC if _has_heic() else ())


def is_photo(path: Path) -> bool:
    """Return whether a file has the ending of a photo that can be read here."""
    return path.suffix.lower() in endings()


def how_to_read(ending: str) -> str:
    """Return what to do about a photo with an ending that cannot be read here."""
    if ending in _HEIC:
        return "Install the extra heic (pip install 'patchvote[heic]') to read them, or convert them to .jpg or .png."
    if ending in _RAW:
        return "Export such photos as .jpg with darktable, RawTherapee or the program of the camera's maker."
    return "Convert such photos to .jpg or .png."


@functools.cache
def _has_heic() -> bool:
    return importlib.util.find_spec("pillow_heif") is not None


@functools.cache
def pillow_formats() -> tuple[str, ...]:
    """Return the formats that Pillow may decode, after the decoder of HEIC is registered where it is installed."""
    if not _has_heic():
        return _FORMATS
    from pillow_heif import register_heif_opener

    register_heif_opener(thumbnails=False)
    return (*_FORMATS, "HEIF")
