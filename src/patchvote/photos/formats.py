"""The file formats of photos: those that are always read, those that need an installed decoder, and all others."""

from __future__ import annotations

import functools
import importlib.util
from pathlib import Path

FORMATS = ("JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF")
_ENDINGS = (".jpg", ".jpeg", ".jpe", ".jfif", ".png", ".webp", ".gif", ".bmp", ".tif", ".tiff")
_AVIF = (".avif",)
_HEIC = (".heic", ".heif", ".hif")
_HEIC_BRANDS = (b"heic", b"heix", b"heim", b"heis", b"hevc", b"hevx", b"mif1", b"msf1")
_AVIF_BRANDS = (b"avif", b"avis")
_RAW_ENDINGS = "raw dng cr2 cr3 crw nef nrw arw srf sr2 orf raf rw2 pef srw x3f 3fr fff iiq erf mrw kdc dcr mef mos rwl"
_OTHER_ENDINGS = "jxl jp2 j2k jpf mpo psd xcf tga ppm pgm pnm exr hdr"
_RAW = {f".{ending}" for ending in _RAW_ENDINGS.split()}
_OTHERS = {f".{ending}" for ending in _OTHER_ENDINGS.split()}
PHOTO_TYPES = frozenset(_RAW | _OTHERS | {*_AVIF, *_HEIC})  # endings of photos that are not decoded, or not everywhere


@functools.cache
def endings() -> tuple[str, ...]:
    """Return the endings of the files that can be read here."""
    return _ENDINGS + (_AVIF if _has_avif() else ()) + (_HEIC if _has_heic() else ())


def is_photo(path: Path) -> bool:
    """Return whether a file has the ending of a photo that can be read here."""
    return path.suffix.lower() in endings()


def how_to_read(ending: str) -> str:
    """Return what to do about a photo with an ending that cannot be read here."""
    if ending in _HEIC:
        return "Install the extra heic (pip install 'patchvote[heic]') to read them, or convert them to .jpg or .png."
    if ending in _AVIF:
        return "Install Pillow from PyPI, whose wheels read AVIF, or convert them to .jpg or .png."
    if ending in _RAW:
        return "Export such photos as .jpg with darktable, RawTherapee or the program of the camera's maker."
    return "Convert such photos to .jpg or .png."


def formats_of(content: bytes) -> tuple[str, ...]:
    """Return the formats of Pillow that may decode a file, and register its decoder where that is a package."""
    kind = _modern_type(content)
    if kind == _AVIF and _has_avif():
        return ("AVIF",)
    if kind == _HEIC and _has_heic():
        _register_heic()
        return ("HEIF",)
    return FORMATS


def reason_of(content: bytes) -> str:
    """Return why a file is not recognised as an image."""
    if not content:
        return "the file is empty."
    if kind := _modern_type(content):
        name = kind[0][1:].upper()
        if kind[0] in endings():
            return f"is a damaged photo of the type {name}. Copy it again from where it came from."
        return f"is a photo of the type {name}, which cannot be read here. {how_to_read(kind[0])}"
    return "is not an image that can be read (JPEG, PNG, WebP, GIF, BMP, TIFF, AVIF, HEIC), whatever its name says."


def _modern_type(content: bytes) -> tuple[str, ...]:
    """Return the endings of AVIF or HEIC for a file of that type."""
    brand = content[8:12] if content[4:8] == b"ftyp" else b""
    return _AVIF if brand in _AVIF_BRANDS else _HEIC if brand in _HEIC_BRANDS else ()


@functools.cache
def _has_avif() -> bool:
    from PIL import features

    return bool(features.check("avif"))


@functools.cache
def _has_heic() -> bool:
    return importlib.util.find_spec("pillow_heif") is not None


@functools.cache
def _register_heic() -> None:
    from pillow_heif import register_heif_opener

    register_heif_opener(thumbnails=False)
