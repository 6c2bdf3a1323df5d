"""Which photos the words of a command mean: files, folders, lists, and the lines of standard input."""

from __future__ import annotations

import dataclasses
import io
import os
import sys
from typing import TYPE_CHECKING, TextIO

from ..errors import PatchvoteError
from ..utils.remote import place
from .common import MistypedError

if TYPE_CHECKING:
    from ..photos.find import Found


def paths_of(words: list[str]) -> list[str]:
    """Return the paths in the arguments, or in the lines of standard input."""
    from ..photos.manifests import lines

    if "-" in words and len(words) > 1:
        raise MistypedError("- reads paths from standard input, and stands alone; a file of that name is ./-.")
    if words == ["-"]:
        words = [line.strip() for line in lines(_standard_input(), "standard input") if line.strip()]
        if not words:
            raise PatchvoteError("standard input names no photo. Give one path per line.")
    return words


def photos_of(names: list[str]) -> Found:
    """Return the photos in all files, folders and manifests that were named.

    The name of a photo is its path as it was typed; in a folder, it begins with the folder as it was typed; in a
    manifest, it is the file_name unchanged. If two photos would have the same name, their full paths are used instead.
    """
    from ..photos.find import Found, find_photos
    from ..photos.manifests import ENDINGS

    found = Found()
    for name in names:
        path = place(name)
        if path.is_dir():
            inside = find_photos(path)
            found.extend(dataclasses.replace(one, name=os.path.join(name, one.name)) for one in inside)  # noqa: PTH118
            found.passed_over += inside.passed_over.without_folders()
        else:
            found.extend(find_photos(path if path.suffix.lower() in ENDINGS else [name]))
    sources: dict[str, set[str]] = {}
    for one in found:
        sources.setdefault(one.name, set()).add(str(one.source))
    return Found(
        (one if len(sources[one.name]) == 1 else dataclasses.replace(one, name=str(one.source)) for one in found),
        found.passed_over,
    )


def _standard_input() -> TextIO:
    if sys.stdin is None:
        raise PatchvoteError("standard input is closed, so it names no photo. Give paths instead of -.")
    if isinstance(sys.stdin, io.TextIOWrapper):  # file names are bytes, whatever the locale
        sys.stdin.reconfigure(errors="surrogateescape")
    return sys.stdin
