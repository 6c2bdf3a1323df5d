"""Which photos the words of a command mean: files, folders, lists, patterns, and what standard input lists.

A pattern in quotes (`'new/*.jpg'`), which the shell passes on, is expanded here, unless a file has that very name. What
standard input lists is never taken for a pattern.
"""

from __future__ import annotations

import dataclasses
import glob
import io
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TextIO

import typer

from ..errors import PatchvoteError
from ..utils.remote import RemotePath, place
from ..utils.terminal import counted, say
from .common import MistypedError

if TYPE_CHECKING:
    from ..photos.find import Found
    from ..photos.manifests import Columns

Null = Annotated[
    bool, typer.Option("--null", "-0", help="Paths on standard input end with NUL, as find -print0 writes them.")
]


def paths_of(words: list[str], null: bool = False) -> list[str]:
    """Return the paths in the arguments, or in standard input: one per line, or with `null` ended by NUL."""
    from ..photos.manifests import lines

    if "-" in words and len(words) > 1:
        raise MistypedError("- reads paths from standard input, and stands alone; a file of that name is ./-.")
    if null and words != ["-"]:
        raise MistypedError("-0 is about paths on standard input: find … -print0 | patchvote … -0 -")
    if words != ["-"]:
        return [path for word in words for path in _expanded(word)]
    if null:
        return _ended_by_null(_standard_input())
    words = [line.strip() for line in lines(_standard_input(), "standard input") if line.strip()]
    if not words:
        raise PatchvoteError("standard input names no photo. Give one path per line.")
    if any("\0" in word for word in words):
        raise PatchvoteError(
            "standard input has NUL in it, which no path has. If find … -print0 wrote it, add -0: "
            "find … -print0 | patchvote … -0 -"
        )
    return words


def _expanded(word: str) -> list[str]:
    """Return the files that a pattern matches, sorted; the word itself if it is none.

    Raises
    ------
    PatchvoteError
        It is a pattern that matches nothing.
    """
    path = place(word)
    if not glob.has_magic(word) or isinstance(path, RemotePath) or os.path.lexists(word):
        return [word]
    if found := sorted(glob.glob(word, recursive=True)):  # noqa: PTH207 - paths as they were typed
        return found
    from ..photos.find import near_path

    folder = next(above for above in path.parents if not glob.has_magic(str(above)))
    if folder.is_dir():
        where = "this folder" if folder == Path() else folder
        raise PatchvoteError(f"no file matches {word!r} in {where}. Check the pattern, its ending, and its case.")
    raise PatchvoteError(
        f"no file matches {word!r}: there is no folder {folder}. Is the path right?{near_path(folder)}"
    )


def _ended_by_null(stream: TextIO) -> list[str]:
    """Read paths that are ended by NUL, unchanged: such a path may hold newlines and spaces."""
    content = stream.buffer.read() if isinstance(stream, io.TextIOWrapper) else os.fsencode(stream.read())
    if b"\0" not in content and content.strip():
        raise PatchvoteError("standard input has no NUL after a path. Write find … -print0, or leave out -0.")
    names = [os.fsdecode(name) for name in content.split(b"\0") if name]
    if not names:
        raise PatchvoteError("standard input names no photo. Does find find any?")
    return names


def photos_of(names: list[str], columns: Columns | None = None) -> Found:
    """Return the photos in all files, folders and manifests that were named.

    The name of a photo is its path as it was typed; in a folder, it begins with the folder as it was typed; in a
    manifest, it is the file_name unchanged. If two photos would have the same name, their full paths are used instead.
    """
    from ..photos.find import Found, find_photos
    from ..photos.manifests import ENDINGS

    found = Found()
    for name in names:
        path = place(name)
        if path.is_dir() if isinstance(path, RemotePath) else os.path.isdir(path):  # noqa: PTH112 - Path may raise
            inside = find_photos(path)
            found.extend(dataclasses.replace(one, name=os.path.join(name, one.name)) for one in inside)  # noqa: PTH118
            found.passed_over += inside.passed_over.without_folders()
        else:
            listed = path.suffix.lower() in ENDINGS
            found.extend(find_photos(path, columns) if listed else find_photos([name]))
    sources: dict[str, set[str]] = {}
    for one in found:
        sources.setdefault(one.name, set()).add(str(one.source))
    return Found(
        (one if len(sources[one.name]) == 1 else dataclasses.replace(one, name=str(one.source)) for one in found),
        found.passed_over,
    )


def outside(folder: Path, photos: Found) -> Found:
    """Leave out photos that are in the folder that a command writes into, which may be inside a folder of photos."""
    from ..photos.find import Found

    real = os.path.realpath(folder)
    kept = [photo for photo in photos if not _is_inside(photo.source, real)]
    if not kept:
        raise PatchvoteError(f"all photos are in {folder} already. Choose another folder to write into.")
    if len(kept) < len(photos):
        say(f"left out {counted(len(photos) - len(kept), 'photo')} in {folder}, where the others go.")
    return Found(kept, photos.passed_over)


def _is_inside(source: object, folder: str) -> bool:
    if not isinstance(source, Path) or isinstance(source, RemotePath):
        return False
    return Path(os.path.realpath(source.parent)).is_relative_to(folder)


def _standard_input() -> TextIO:
    if sys.stdin is None:
        raise PatchvoteError("standard input is closed, so it names no photo. Give paths instead of -.")
    if isinstance(sys.stdin, io.TextIOWrapper):  # file names are bytes, whatever the locale
        sys.stdin.reconfigure(errors="surrogateescape")
    return sys.stdin
