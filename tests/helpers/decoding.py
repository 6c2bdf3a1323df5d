"""Decode contents of files, as the extraction does."""

from __future__ import annotations

from PIL import Image

from patchvote.photos.decode import Longest, opened
from patchvote.photos.find import Photo


def decode(name: str, content: bytes, longest: Longest | None = None) -> Image.Image:
    return opened(Photo(name, content), longest)[0]
