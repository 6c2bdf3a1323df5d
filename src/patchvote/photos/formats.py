"""The file formats of photos: those that are always read, and those for which a decoder has to be installed.

AVIF is read where Pillow has its decoder (its wheels have it since version 11.3), HEIC with the package `pillow-heif`
(the extra `heic`). Nothing is imported here before a file of that format is met.
"""

from __future__ import annotations

import functools
import importlib.util
from pathlib import Path

FORMATS = ("JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF")
_ENDINGS = (".jpg", ".jpeg", ".jpe", ".jfif", ".png", ".webp", ".gif", ".bmp", ".tif", ".tiff")
AVIF = (".avif",)
HEIC = (".heic", ".heif", ".hif")
_HEIC_BRANDS = (b"heic", b"heix", b"heim", b"heis", b"hevc", b"hevx", b"mif1", b"msf1")


@functools.cache
def endings() -> tuple[str, ...]:
    """Return the endings of the files that can be read here."""
    return _ENDINGS + (AVIF if _has_avif() else ()) + (HEIC if _has_heic() else ())


def how_to_read(ending: str) -> str:
    """Return what to do about a photo with an ending that cannot be read here.

    Examples
    --------
    >>> how_to_read(".cr2")
    'Convert such photos to .jpg or .png.'
    """
    if ending in HEIC:
        return "Install the extra heic (pip install 'patchvote[heic]') to read them, or convert them to .jpg or .png."
    if ending in AVIF:
        return "Install Pillow from PyPI, whose wheels read AVIF, or convert them to .jpg or .png."
    return "Convert such photos to .jpg or .png."


def formats_of(content: bytes) -> tuple[str, ...]:
    """Return the formats of Pillow that may decode a file, and register its decoder where that is a package."""
    if content[4:8] != b"ftyp":
        return FORMATS
    if content[8:12] in (b"avif", b"avis"):
        return ("AVIF",) if _has_avif() else FORMATS
    if content[8:12] in _HEIC_BRANDS and _has_heic():
        _register_heic()
        return ("HEIF",)
    return FORMATS


def reason_of(content: bytes) -> str:
    """Return why a file is not recognised as an image."""
    if not content:
        return "the file is empty."
    if content[4:8] == b"ftyp" and content[8:12] in (*_HEIC_BRANDS, b"avif", b"avis"):
        kind, ending = ("AVIF", AVIF[0]) if content[8:12] in (b"avif", b"avis") else ("HEIC", HEIC[0])
        if ending in endings():
            return f"is a damaged photo of the type {kind}. Copy it again from where it came from."
        return f"is a photo of the type {kind}, which cannot be read here. {how_to_read(ending)}"
    return "is not an image that can be read (JPEG, PNG, WebP, GIF, BMP, TIFF, AVIF, HEIC), whatever its name says."


def is_photo(path: Path) -> bool:
    """Return whether a file has the ending of a photo that can be read here."""
    return path.suffix.lower() in endings()


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
