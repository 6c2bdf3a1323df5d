"""Check the outputs of a command before its work begins, so that no file is lost that somebody may want.

An output may be new, or replace what patchvote wrote and can write again. Models, lists that people edit, reports under
a name that the user gave, and files that patchvote did not write, are replaced only with `force`. A file that the
command reads, or writes as another output, is never replaced, not even with `force`: that can only be a mistake.
"""

from __future__ import annotations

import enum
import os
import re
import unicodedata
from collections.abc import Iterable, Sequence
from pathlib import Path

from ..errors import PatchvoteError
from ..utils.files import open_regular
from ..utils.remote import RemotePath
from .formats import is_photo


class Kind(enum.StrEnum):
    """Kinds of files that patchvote writes for users."""

    model = "a model"
    report = "a report"
    picture = "a picture"
    arrays = "arrays of evidence"
    graph = "an exported graph"
    settings = "settings of a network"
    answers = "a file of answers"
    suspects = "a list of suspects"


# What stands near the beginning of a file of each kind that can be written again: not models, and not lists for people.
_MARKS = {
    Kind.report: rb'<meta name="generator" content="patchvote ',
    Kind.picture: rb"tEXtSoftware\0patchvote",
    Kind.arrays: rb"patchvote\.npy",
    Kind.graph: rb"\x12\x09patchvote",
    Kind.settings: rb"\A# Settings of a network, written by patchvote",
    Kind.answers: rb'\A(file,label,probability,likeliest,|\{"file": .*, "label": .*, "probability": .*, "likeliest": )',
}


def _is_made_again(path: Path, kind: Kind) -> bool:
    """Return whether patchvote wrote a file, of this kind, and can write it again."""
    with open_regular(path) as file:
        return kind in _MARKS and re.search(_MARKS[kind], file.read(4096)) is not None


def check_outputs(
    outputs: Sequence[tuple[Path | None, Kind]],
    inputs: Iterable[Path | None],
    *,
    force: bool = False,
    updated: Sequence[Path] = (),
    renewed: Path | None = None,
) -> None:
    """Refuse outputs that would replace files they must not replace.

    `inputs` are what the command reads: files, folders and lists of photos. `updated` files are replaced in any case;
    `renewed` is a report whose name the user did not choose.
    """
    wanted = [(path, kind) for path, kind in outputs if path is not None]
    read = [path for path in inputs if path is not None]
    seen: dict[str, tuple[Path, Kind]] = {}
    for path, kind in wanted:
        _check_place(path)
        # The key is equal for paths that some file systems hold equal.
        one, other = seen.setdefault(unicodedata.normalize("NFC", os.path.realpath(path)).casefold(), (path, kind))
        if one is not path:
            raise PatchvoteError(f"{one} would be {other} and {kind} at once. Choose another name for one of them.")
    for path, kind in wanted:
        if not path.exists():
            continue
        if (is_photo(path) and kind is not Kind.picture) or any(_is_read(path, source) for source in read):
            raise PatchvoteError(f"{path} would be replaced by {kind}, but this command reads it. Choose another name.")
        if not force and not any(path.samefile(other) for other in updated):
            _check_owner(path, kind, path == renewed)


def _is_read(path: Path, source: Path) -> bool:
    """Whether an output is what a command reads, or somebody's photo in a folder that it reads."""
    if isinstance(source, RemotePath) or not os.path.exists(source):  # noqa: PTH110 - Path raises for invalid names
        return False
    if source.is_dir() and is_photo(path) and not _is_made_again(path, Kind.picture):
        return path.resolve().is_relative_to(source.resolve())
    return path.samefile(source)


def _check_place(path: Path) -> None:
    """Refuse a path that cannot be written."""
    if isinstance(path, RemotePath):
        raise PatchvoteError(f"{path} cannot be written by this command: name a local file, and copy it there.")
    place = Path(os.path.realpath(path))  # a link may point to a file that does not exist yet
    if not place.parent.is_dir():
        folder = place.parent if path.is_symlink() else path.parent
        reason = f"there is no folder {folder}"
    elif place.is_dir():
        reason = "it is a folder"
    elif place.exists() and not place.is_file():
        reason = "it is not an ordinary file"
    else:
        return
    raise PatchvoteError(f"{path} cannot be written: {reason}.")


def _check_owner(path: Path, kind: Kind, renewed: bool) -> None:
    """Refuse to replace a file that cannot be made again."""
    if not ((renewed or kind is not Kind.report) and _is_made_again(path, kind)):
        words = "it exists. Choose another name, or add --force to replace it."
        raise PatchvoteError(f"{path} would be replaced by {kind}, but {words}")
