"""Which photos the words of a command mean: files, folders, lists, patterns, and what standard input lists.

A pattern in quotes (`'new/*.jpg'`), which the shell passes on, is expanded here, unless a file has that very name. What
standard input lists is never taken for a pattern.
"""

from __future__ import annotations

import dataclasses
import functools
import glob
import io
import os
import shlex
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TextIO

import typer

from ..errors import PatchvoteError
from ..utils.remote import RemotePath, place
from ..utils.terminal import counted, say
from .options import MistypedError

if TYPE_CHECKING:
    from ..photos.find import Found
    from ..photos.manifests import Columns


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Listed:
    """Photos that may be listed, in columns of any name."""

    columns: Annotated[
        str | None, typer.Option(metavar="file=…,label=…", help="Names of columns of a .csv or .jsonl.")
    ] = None

    @functools.cached_property
    def named(self) -> Columns | None:
        """Columns that were named."""
        from ..photos.manifests import Columns

        try:
            return None if self.columns is None else Columns.parse(self.columns)
        except PatchvoteError as error:
            raise MistypedError(f"--columns: {error}") from None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Labelled(_Listed):
    """A collection of photos, and the columns of lists."""

    photos: Annotated[
        Path, typer.Argument(metavar="PHOTOS", parser=place, help="A folder of class folders, a .csv or a .jsonl.")
    ]

    def source(self, path: Path | None = None) -> Path | Found:
        """Return the photos of a list whose columns were named, by default those of PHOTOS; any other path itself."""
        from ..photos.find import find_photos

        path = path or self.photos
        return find_photos(path, self.named) if self.named and is_list(path) else path

    def sources(self, paths: Sequence[Path]) -> Path | Found | None:
        """Return the photos of paths that an option names; those of several are named after their path as well."""
        if len(paths) < 2:
            return self.source(paths[0]) if paths else None
        return joined((str(path), self.source(path)) for path in dict.fromkeys(paths))

    def found(self) -> Found:
        """Find the photos."""
        from ..photos.find import find_photos

        return find_photos(self.source())

    def tell_hints(self) -> None:
        """Print what looks wrong with labelled photos, before minutes are spent on them."""
        from ..photos.find import folder_of_classes, similar_names

        found = self.found()
        if self.photos.is_dir() and (meant := folder_of_classes(self.photos, found)) is not None:
            say(f"{meant} holds folders, not photos: did you mean {shlex.quote(str(meant))} in place of {self.photos}?")
        say(*filter(None, [similar_names(photo.label for photo in found if photo.label is not None)]))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Unlabelled(_Listed):
    """Photos in files, folders and lists, by arguments or from standard input."""

    photos: Annotated[list[str], typer.Argument(metavar="PHOTOS", help="Photos, folders, lists; - for standard input.")]

    @functools.cached_property
    def names(self) -> list[str]:
        """Paths as they were typed; those that standard input lists and that patterns match."""
        if self.photos == ["-"]:
            return listed_paths(sys.stdin)
        return [path for word in self.photos for path in _expanded(word)]

    @functools.cached_property
    def paths(self) -> list[Path]:
        """Paths, also of other file systems."""
        return [place(name) for name in self.names]

    def found(self) -> Found:
        """Find the photos.

        The name of a photo is its path as it was typed; in a folder, it begins with the folder as it was typed; in a
        list, it is the file_name unchanged. If two would have the same name, their full paths are used instead.
        """
        from ..photos.find import Found, find_photos

        found = Found()
        for name, path in zip(self.names, self.paths, strict=True):
            if path.is_dir() if isinstance(path, RemotePath) else os.path.isdir(path):  # noqa: PTH112 - Path may raise
                more = joined([(name, path)])
            else:
                more = find_photos(path, self.named) if is_list(path) else find_photos([name])
            found.extend(more)
            found.passed_over += more.passed_over.without_folders()
        sources: dict[str, set[str]] = {}
        for photo in found:
            sources.setdefault(photo.name, set()).add(str(photo.source))
        doubled = {name for name, paths in sources.items() if len(paths) > 1}
        for index, photo in enumerate(found):
            if photo.name in doubled:
                found[index] = dataclasses.replace(photo, name=str(photo.source))
        return found


def is_list(path: Path) -> bool:
    """Whether a path is that of a list of photos."""
    from ..photos.manifests import ENDINGS

    return path.suffix.lower() in ENDINGS and not path.is_dir()


def joined(parts: Iterable[tuple[str, Path | Found]]) -> Found:
    """Return the photos of several folders, each named after its folder as well."""
    from ..photos.find import Found, find_photos

    found = Found()
    for name, source in parts:
        inside = find_photos(source)
        found.extend(dataclasses.replace(photo, name=os.path.join(name, photo.name)) for photo in inside)  # noqa: PTH118 - as typed
        found.passed_over += inside.passed_over
    return found


def listed_paths(stream: TextIO) -> list[str]:
    """Return the paths that standard input lists, one per line."""
    from ..photos.manifests import lines

    if isinstance(stream, io.TextIOWrapper):  # file names are bytes, whatever the locale
        stream.reconfigure(errors="surrogateescape")
    names = [line.strip() for line in lines(stream, "standard input") if line.strip()]
    if not names or any("\0" in name for name in names):
        raise PatchvoteError("standard input names no photo. Give one path per line.")
    return names


def _expanded(word: str) -> list[str]:
    """Return the files that a pattern matches, sorted; the word itself if it is none."""
    path = place(word)
    if not glob.has_magic(word) or isinstance(path, RemotePath) or os.path.lexists(word):
        return [word]
    if found := sorted(glob.glob(word, recursive=True)):  # noqa: PTH207 - paths as they were typed
        return found
    raise PatchvoteError(f"no file matches {word!r}: check the pattern, its ending, and its case.")


def outside(folder: Path, photos: Found) -> Found:
    """Leave out photos that are in the folder that a command writes into, which may be inside a folder of photos."""
    from ..photos.find import Found

    def is_inside(source: object) -> bool:
        if not isinstance(source, Path) or isinstance(source, RemotePath):
            return False
        return Path(os.path.realpath(source.parent)).is_relative_to(os.path.realpath(folder))

    kept = Found((photo for photo in photos if not is_inside(photo.source)), photos.passed_over)
    if not kept:
        raise PatchvoteError(f"all photos are in {folder} already. Choose another folder to write into.")
    if len(kept) < len(photos):
        say(f"left out {counted(len(photos) - len(kept), 'photo')} in {folder}, where the others go.")
    return kept


def base_name(path: Path) -> str:
    """Return the name of a file or folder, without the ending of a known type of file."""
    known = (".patchvote", ".csv", ".jsonl")
    whole = path if path.name not in ("", "..") else path.resolve()
    return (whole.stem if whole.suffix.lower() in known else whole.name) or "photos"
