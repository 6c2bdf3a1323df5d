"""Moves of photos that are planned as a whole, recorded, made, and can be undone.

The record is written before the first photo is moved, so that all can be undone whatever happens; afterwards it is
reduced to the moves that were made. Nothing is deleted, and nothing is overwritten. A record may have been edited, or
come from a stranger: undoing it moves photos from the folders that the user names back into the first of them, and
touches nothing else. So the folders that it says photos came from and went to are compared with those that the user
names, and shown in messages, but never used.
"""

from __future__ import annotations

import dataclasses
import errno
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ..errors import PatchvoteError, PhotoError
from ..utils.files import write_file
from ..utils.schema import flag, record, text
from .formats import endings, is_photo
from .manifests import ENDINGS, read_manifest
from .placing import check_movable, inside, move_new, numbered

_MARK = "patchvote_moved"  # first key of every line of a record: whether the photo left the collection
_WRITTEN = "`patchvote check --move` and `--apply` write such a record, PHOTOS-moves.jsonl, and print its name."
_PATH = text(1 << 15)  # characters of the longest path of any system
_LINE = record({_MARK: flag, "was": _PATH, "is": _PATH}, {"of": _PATH, "into": _PATH})  # of: folder of the collection


@dataclasses.dataclass(frozen=True)
class Spot:
    """A file in a folder that it must not leave; its name is the path below the folder, with forward slashes."""

    root: Path
    name: str

    @property
    def path(self) -> Path:
        """Path of the file."""
        return self.root / self.name

    def check(self) -> None:
        """Raise an `OSError` unless the name leads to a place in the folder, by itself and not by a link."""
        path = Path(self.name)
        is_plain = path.parts and path.as_posix() == self.name and "\0" not in self.name
        if not is_plain or path.anchor or ".." in path.parts:
            raise OSError(errno.EINVAL, f"{self.name!r:.80} is not the name of a file in {self.root}")
        folder = inside(self.root, path.parent.as_posix())
        if Path(os.path.realpath(folder)) != Path(os.path.realpath(self.root), path.parent):
            raise OSError(errno.EPERM, f"a link leads to {folder}, and photos are moved in {self.root} itself only")


@dataclasses.dataclass(frozen=True)
class Move:
    """A photo that is to be moved from one spot to another."""

    source: Spot
    target: Spot


def plan(wanted: Iterable[Move]) -> list[Move]:
    """Return the moves with targets that are free: no photo takes the name of a file, or that of another move."""
    moves, taken = [], set()
    for move in wanted:
        root, name, number = move.target.root, move.target.name, 2
        while (root, name) in taken or os.path.lexists(root / name):
            name, number = numbered(Path(move.target.name), number).as_posix(), number + 1
        taken.add((root, name))
        moves.append(Move(move.source, Spot(root, name)))
    return moves


def make(moves: Iterable[Move]) -> tuple[list[Move], list[PhotoError]]:
    """Make moves one after the other; return those that were made, and the reasons why others were not."""
    made, failed = [], []
    for move in moves:
        try:
            _check_photo(move.source)
            move.target.check()
            move.target.path.parent.mkdir(parents=True, exist_ok=True)
            move_new(move.source.path, move.target.path)
        except FileNotFoundError:  # of the photo, or of a folder that cannot be made
            is_there = os.path.lexists(move.source.path)
            folder = f"{move.target.path.parent} cannot be made."
            failed.append(_not_moved(move, folder if is_there else "it is not there. Was it moved before?"))
        except OSError as error:
            failed.append(_not_moved(move, f"{error.strerror or error}."))
        else:
            made.append(move)
    return made, failed


def _not_moved(move: Move, reason: str) -> PhotoError:
    return PhotoError(str(move.source.path), f"it was not moved: {reason}")


def _check_photo(spot: Spot) -> None:
    """Raise an `OSError` unless the spot holds an ordinary file with the ending of a photo."""
    spot.check()
    if not is_photo(spot.path):
        raise OSError(errno.EPERM, f"it is not a photo ({', '.join(endings())})")
    check_movable(spot.path)


def write_record(path: Path, moves: Sequence[Move]) -> Path:
    """Write moves that are about to be made; return the file, whose name has a number if it was taken."""
    number, first = 2, path
    while os.path.lexists(path):
        path, number = numbered(first, number), number + 1
    _write_lines(path, moves)
    return path


def reduce_record(path: Path, made: Sequence[Move]) -> Path | None:
    """Reduce a record to the moves that were made; if there are none, remove it and return None."""
    try:
        if made:
            _write_lines(path, made)
            return path
        path.unlink()
    except (OSError, PatchvoteError):  # the record has more moves than were made then, and undoing it tells which
        return path
    return None


def _write_lines(path: Path, moves: Iterable[Move]) -> None:
    write_file(path, (f"{json.dumps(_line(move))}\n".encode() for move in moves))


def _line(move: Move) -> dict[str, str | bool]:
    has_left = move.target.root != move.source.root
    line: dict[str, str | bool] = {_MARK: has_left, "was": move.source.name, "is": move.target.name}
    line["of"] = os.path.realpath(move.source.root)
    return line | {"into": os.path.realpath(move.target.root)} if has_left else line


def read_record(path: Path, photos: Path, moved: Path | None) -> list[Move]:
    """Return the moves that undo a record of photos that were moved into a folder, if they left theirs; the last first.

    Refused is a file that is not a record, names something outside of the folders, or is that of another folder.
    """
    moves = []
    if path.suffix.lower() not in ENDINGS:  # a model, say: the reader of lists would talk of lists
        raise PatchvoteError(f"{path} is not a record of moves, which ends in .jsonl. {_WRITTEN}")
    for number, row in read_manifest(path):
        if (problem := _LINE(row)) is not None:
            raise PatchvoteError(
                f"{path} is not a record of moves: line {number} has other fields ({problem.lstrip('.')}). {_WRITTEN}"
            )
        _check_folders(path, row, photos, moved)
        move = Move(Spot(moved if row[_MARK] and moved is not None else photos, row["is"]), Spot(photos, row["was"]))
        try:
            move.source.check()
            move.target.check()
        except OSError as error:
            raise PatchvoteError(f"{path}: line {number}: {error.strerror}.") from error
        moves.append(move)
    return moves[::-1]


def _check_folders(path: Path, row: Mapping[str, Any], photos: Path, moved: Path | None) -> None:
    """Refuse a line of a record that is of other folders than the user names.

    A folder that is not there any more may have been renamed: then the user knows better.
    """
    of, into = row.get("of"), row.get("into")
    if of and not _may_be(Path(of), photos):
        raise PatchvoteError(f"{path} has moved photos of {of!r:.300}, and PHOTOS is {photos}: name that folder.")
    if row[_MARK] and moved is None:
        where = f", {into!r:.300}" if into else ""
        raise PatchvoteError(
            f"{path} has moved photos into another folder{where}: name that folder with --move, as a record cannot "
            "make patchvote move photos from a place that you do not name."
        )
    if row[_MARK] and into and moved is not None and not _may_be(Path(into), moved):
        raise PatchvoteError(f"{path} has moved photos into {into!r:.300}, and --move names {moved}: name that folder.")


def _may_be(recorded: Path, named: Path) -> bool:
    try:
        return not recorded.is_dir() or recorded.samefile(named)
    except (OSError, ValueError):  # the named folder is not there, or the record has letters that no path has
        return False
