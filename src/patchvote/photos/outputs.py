"""Outputs of a command, checked before its work begins: no file is lost that somebody may want.

An output may be new, or a file of the same kind that patchvote wrote (see `marks`). A model or a report of another run
is a user's work, though, and is replaced by force alone. What the command reads and what it also writes is never an
output, whatever the user insists on: that can only be a mistake.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from ..errors import PatchvoteError
from ..utils.marks import Kind, kind_of
from .find import ENDINGS, find_photos
from .manifests import ENDINGS as MANIFESTS


def check_outputs(
    outputs: Sequence[tuple[Path | None, Kind]],
    inputs: Iterable[Path | int | None],
    *,
    force: bool = False,
    updated: Sequence[Path] = (),
) -> None:
    """Refuse outputs that would replace what they should not.

    Parameters
    ----------
    outputs : sequence of (path, kind)
        The files that will be written; None stands for one that was not asked for.
    inputs : iterable of paths or ints
        What the command reads: files, folders and manifests of photos, and numbers of open files such as 0, standard
        input; None likewise. Drawn from only where an output exists.
    force : bool, default False
        Also replace models and reports, and files that patchvote did not write, as long as the command does not read
        them.
    updated : sequence of paths
        Models and reports that the command is there to renew.

    Raises
    ------
    PatchvoteError
        An output is also an input or another output, belongs to somebody else, or has no folder.
    """
    wanted = [(path, kind) for path, kind in outputs if path is not None]
    for path, _ in wanted:
        _check_place(path)
    for (one, what), (other, also) in itertools.combinations(wanted, 2):
        if _key(one) == _key(other) or _same(one, other):
            raise PatchvoteError(f"{one} would be {what} and {also} at once. Choose another name for one of them.")
    existing = [(path, kind) for path, kind in wanted if path.exists()]
    if not existing:
        return
    read = {key: path for path in _files(inputs) if (key := _identity(path))}
    for path, kind in existing:
        identity = _identity(path)
        if identity in read:
            name = "standard input" if read[identity] == 0 else read[identity]
            alias = "" if path == name else f" as {name}"
            raise PatchvoteError(
                f"{path} would be replaced by {kind}, but this command reads it{alias}. Choose another name."
            )
        if not force:
            _check_owner(path, kind, any(_same(path, own) for own in updated))


def _check_place(path: Path) -> None:
    """Refuse a file that can never be written."""
    place = Path(os.path.realpath(path))  # a link may lead where there is nothing yet
    if not place.parent.is_dir():
        folder = place.parent if path.is_symlink() else path.parent
        raise PatchvoteError(f"{path} cannot be written: there is no folder {folder}.")
    if place.is_dir():
        raise PatchvoteError(f"{path} cannot be written: it is a folder.")
    if place.exists() and not place.is_file():
        raise PatchvoteError(f"{path} cannot be written: it is no ordinary file.")
    if not os.access(place.parent, os.W_OK):
        raise PatchvoteError(f"{path} cannot be written: the folder {place.parent} may not be written to.")


def _check_owner(path: Path, kind: Kind, updated: bool) -> None:
    """Refuse to replace a file of somebody else, of another kind, or a model or report of another run."""
    try:
        found = kind_of(path)
    except OSError as error:
        raise PatchvoteError(f"{path} is there, and cannot be read: {error.strerror}. Choose another name.") from error
    if found is kind:
        if updated or kind not in (Kind.model, Kind.report):
            return
        what = f"there is {kind} already"
    elif found is not None:
        what = f"it is {found} of patchvote, not {kind}"
    elif path.suffix.lower() in ENDINGS:
        what = "it is an image that patchvote did not make"
    else:
        what = "patchvote did not write it"
    raise PatchvoteError(
        f"{path} would be replaced by {kind}, but {what}. Choose another name, or add --force to replace it."
    )


def _files(inputs: Iterable[Path | int | None]) -> Iterator[Path | int]:
    """Yield every file that the command reads."""
    for path in inputs:
        if path is None:
            continue
        yield path
        if isinstance(path, int):
            continue
        listed = path.suffix.lower() in MANIFESTS and os.path.isfile(path)  # noqa: PTH113 - raises for no name
        if listed or os.path.isdir(path):  # noqa: PTH112
            yield from (photo.source for photo in find_photos(path) if isinstance(photo.source, Path))


def _identity(path: Path | int) -> tuple[int, int] | None:
    """Return what all names of one file have in common: links, and spellings that a file system holds equal."""
    with contextlib.suppress(OSError, ValueError):
        status = os.stat(path)  # noqa: PTH116 - also of an open file
        return status.st_dev, status.st_ino
    return None


def _same(one: Path, other: Path) -> bool:
    return (identity := _identity(one)) is not None and identity == _identity(other)


def _key(path: Path) -> str:
    """Return a spelling that is equal for paths that some file systems hold equal."""
    return unicodedata.normalize("NFC", os.path.realpath(path)).casefold()
