"""Check the outputs of a command before its work begins, so that no file is lost that somebody may want.

An output may be new, or replace what patchvote wrote and can write again. Models, lists that people edit, reports under
a name that the user gave, and files that patchvote did not write, are replaced only with `force`. A file that the
command reads, or writes as another output, is never replaced, not even with `force`: that can only be a mistake.
"""

from __future__ import annotations

import contextlib
import os
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from ..errors import PatchvoteError
from ..utils.file_kinds import Kind, is_made_again
from ..utils.remote import RemotePath
from .find import find_photos
from .manifests import ENDINGS as MANIFESTS
from .manifests import Columns

_Key = str | tuple[int, int]


def check_outputs(
    outputs: Sequence[tuple[Path | None, Kind]],
    inputs: Iterable[Path | None],
    *,
    force: bool = False,
    updated: Sequence[Path] = (),
    renewed: Path | None = None,
    columns: Columns | None = None,
) -> None:
    """Refuse outputs that would replace files they must not replace.

    `inputs` are what the command reads: files, folders and manifests of photos (with these `columns`); they are
    iterated only if an output exists. `updated` files are replaced in any case; `renewed` is
    a report whose name the user did not choose.
    """
    wanted = [(path, kind) for path, kind in outputs if path is not None]
    seen: dict[_Key, tuple[Path, Kind]] = {}
    for path, kind in wanted:
        _check_place(path)
        # A spelling is equal for paths that some file systems hold equal.
        spelling = unicodedata.normalize("NFC", os.path.realpath(path)).casefold()
        for key in {spelling, *_identity(path)}:
            one, other = seen.setdefault(key, (path, kind))
            if one is not path:
                raise PatchvoteError(f"{one} would be {other} and {kind} at once. Choose another name for one of them.")
    existing = [(path, kind) for path, kind in wanted if path.exists()]
    read = {key: path for path in _files(inputs, columns) for key in _identity(path)} if existing else {}
    for path, kind in existing:
        for key in _identity(path) & read.keys():
            alias = "" if path == read[key] else f" as {read[key]}"
            raise PatchvoteError(
                f"{path} would be replaced by {kind}, but this command reads it{alias}. Choose another name."
            )
        is_updated = any(_identity(path) & _identity(other) for other in updated)
        if not force and not is_updated:
            _check_owner(path, kind, path == renewed)


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
    elif not os.access(place.parent, os.W_OK):
        reason = f"the folder {place.parent} may not be written to"
    else:
        return
    raise PatchvoteError(f"{path} cannot be written: {reason}.")


def _check_owner(path: Path, kind: Kind, renewed: bool) -> None:
    """Refuse to replace a file that cannot be made again."""
    try:
        is_free = (renewed or kind not in (Kind.model, Kind.report, Kind.suspects)) and is_made_again(path)
    except OSError as error:
        raise PatchvoteError(f"{path} exists, but cannot be read: {error.strerror}. Choose another name.") from error
    if not is_free:
        words = "it exists. Choose another name, or add --force to replace it."
        raise PatchvoteError(f"{path} would be replaced by {kind}, but {words}")


def _files(inputs: Iterable[Path | None], columns: Columns | None) -> Iterator[Path]:
    """Yield every file that the command reads."""
    for path in inputs:
        if path is None or isinstance(path, RemotePath):  # outputs are local
            continue
        yield path
        listed = path.suffix.lower() in MANIFESTS and os.path.isfile(path)  # noqa: PTH113 - Path raises for invalid names
        if listed or os.path.isdir(path):  # noqa: PTH112
            found = find_photos(path, columns if listed else None)
            yield from (photo.source for photo in found if isinstance(photo.source, Path))


def _identity(path: Path) -> set[_Key]:
    """Return a key that is the same for all names of one file, links among them; nothing if there is no such file."""
    with contextlib.suppress(OSError, ValueError):
        status = path.stat()
        return {(status.st_dev, status.st_ino)}
    return set()
