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
from collections.abc import Iterable, Sequence
from pathlib import Path

from ..errors import PatchvoteError, PhotoError
from ..utils.files import make_folders, write_file
from ..utils.schema import flag, record, text
from .formats import endings, is_photo
from .manifests import read_manifest
from .placing import check_movable, inside, is_begun, move_new, numbered

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
    """Return the moves with targets that are free or begun: no photo takes the name of another, or of another move."""
    moves: list[Move] = []
    taken: set[Path] = set()
    for move in wanted:
        root = move.target.root
        source = move.source.path
        path = next(
            path
            for path in numbered(move.target.path)
            if path not in taken and (not os.path.lexists(path) or is_begun(source, path))
        )
        taken.add(path)
        moves.append(Move(move.source, Spot(root, path.relative_to(root).as_posix())))
    return moves


def make(moves: Iterable[Move]) -> tuple[list[Move], list[PhotoError]]:
    """Make moves one after the other; return those that were made, and the reasons why others were not."""
    made, failed = [], []
    for move in moves:
        try:
            _check_photo(move.source)
            move.target.check()
            make_folders(move.target.path.parent)
            move_new(move.source.path, move.target.path)
        except OSError as error:
            is_gone = isinstance(error, FileNotFoundError) and not os.path.lexists(move.source.path)
            reason = "it is not there. Was it moved before?" if is_gone else f"{error.strerror or error}."
            failed.append(PhotoError(str(move.source.path), f"it was not moved: {reason}"))
        else:
            made.append(move)
    return made, failed


def _check_photo(spot: Spot) -> None:
    """Raise an `OSError` unless the spot holds an ordinary file with the ending of a photo."""
    spot.check()
    if not is_photo(spot.path):
        raise OSError(errno.EPERM, f"it is not a photo ({', '.join(endings())})")
    check_movable(spot.path)


def write_record(path: Path, moves: Sequence[Move]) -> Path:
    """Write moves that are about to be made; return the file, whose name has a number if it was taken."""
    path = next(free for free in numbered(path) if not os.path.lexists(free))
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
    for number, row in read_manifest(path):
        where = f"{path}: line {number}"
        if (problem := _LINE(row)) is not None:
            raise PatchvoteError(f"{path} is not a record of moves: line {number}{problem}. {_WRITTEN}")
        _check_folder(where, "PHOTOS", row.get("of"), photos)
        root = photos
        if row[_MARK]:
            if moved is None:
                into = f"{row.get('into', 'another folder')!r:.300}"
                raise PatchvoteError(f"{where} moved a photo into {into}: name that folder with --move.")
            _check_folder(where, "--move", row.get("into"), moved)
            root = moved
        move = Move(Spot(root, row["is"]), Spot(photos, row["was"]))
        try:
            move.source.check()
            move.target.check()
        except OSError as error:
            raise PatchvoteError(f"{where}: {error.strerror}.") from error
        moves.append(move)
    return moves[::-1]


def _check_folder(where: str, argument: str, recorded: str | None, named: Path) -> None:
    """Refuse a line of another folder than the user names.

    A folder that is not there any more may have been renamed: then the user knows better.
    """
    is_there = recorded and "\0" not in recorded and os.path.isdir(recorded)  # noqa: PTH112 - Path may raise
    if is_there and os.path.realpath(str(recorded)) != os.path.realpath(named):
        raise PatchvoteError(f"{where} is of the folder {recorded!r:.300}, and {argument} is {named}.")
