"""Put photos into folders: copied, linked or moved, never onto another file, and never outside of the folder.

A copy gets a temporary name first and its own name once it is whole, so that Ctrl-C or a full disk leaves no part of a
photo. A name that is taken gets a number. A photo is moved by giving it a second name and removing the first; on
another disk, by a whole copy. Whatever an earlier run did, a photo is there once: a file of the same bytes counts as
the photo, so that moving removes the original only, and a link to the photo is replaced by the photo.
"""

from __future__ import annotations

import collections
import contextlib
import enum
import errno
import filecmp
import functools
import os
import shutil
import stat
from pathlib import Path

from ..errors import PatchvoteError, PhotoError
from ..utils.files import open_regular, remove_abandoned, temporary_file
from ..utils.remote import RemotePath
from .folder_names import folder_name

_BLOCK = 1 << 20  # bytes that are copied at once


class How(enum.StrEnum):
    """How a photo gets into a folder."""

    copy = "copied"
    link = "linked"
    move = "moved"


class Placer:
    """Puts photos into folders below a root, which is made when the first photo is put into it."""

    def __init__(self, root: Path, how: How = How.copy) -> None:
        check_folder(root)
        self.root, self._how = root, how
        self._taken: dict[Path, _Taken] = {}  # per name: no file is looked for twice, however many photos share it

    def put(self, source: Path, folder: str = "") -> Path | None:
        """Put a photo into a folder below the root, under its own name or that name with a number.

        Return where it is now, or None if it was there already, whatever number its name got. If it is to be moved and
        a file of the same bytes is there, the original is removed; a link to it is replaced by the photo itself.
        """
        moves = self._how is How.move
        try:
            if moves:
                check_movable(source)
            elif self._how is How.link:
                _check_local(source)
            place = inside(self.root, folder)
            place.mkdir(parents=True, exist_ok=True)
            target = place / (folder_name(source.name) if isinstance(source, RemotePath) else source.name)
            if (taken := self._taken.get(target)) is None:
                taken = self._taken[target] = _Taken(target)
            if (there := taken.find(source, links=not moves)) is not None:
                if moves:
                    _remove_moved(source, there)
                return None
            if moves and (link := taken.find(source)) is not None and link.samefile(source):
                link.unlink()
                move_new(source, link)
                return link
            return self._put_new(source, taken)
        except OSError as error:
            raise PhotoError(str(source), f"it cannot be {self._how}: {error.strerror or error}.") from error

    def _put_new(self, source: Path, taken: _Taken) -> Path:
        while True:
            path = taken.free()
            try:
                {How.copy: copy_new, How.link: _link_new, How.move: move_new}[self._how](source, path)
            except FileExistsError:  # it came after the folder was looked at
                taken.add(path)
                continue
            taken.add(path)
            return path

    @functools.cached_property
    def _before(self) -> dict[str, list[Path]]:
        """Files in folders directly below the root, by name, from before the first photo is put."""
        before: dict[str, list[Path]] = collections.defaultdict(list)
        for path in self.root.glob("*/*"):
            before[path.name].append(path)
        return before

    def is_elsewhere(self, source: Path, folder: str) -> bool:
        """Whether a photo, its copy or a link to it is in another folder directly below the root, from before.

        Asked before the first photo is put, so that what this object puts there does not count.
        """
        others = (path for path in self._before.get(source.name, ()) if path.parent.name != folder)
        return any(_Taken(path).find(source) is not None for path in others)


class _Taken:
    """The files that have a name, or that name with a number, in a folder, by their size."""

    def __init__(self, target: Path) -> None:
        self._target, self._number = target, 1
        self._by_size: dict[int, list[Path]] = {}
        while os.path.lexists(path := self.free()):
            self.add(path)

    def free(self) -> Path:
        """Return the first path of that name which nothing is known to have."""
        return self._target if self._number == 1 else numbered(self._target, self._number)

    def add(self, path: Path) -> None:
        """Record that something has the path that was free."""
        self._number += 1
        with contextlib.suppress(OSError):  # a link that leads nowhere holds no photo
            self._by_size.setdefault(path.stat().st_size, []).append(path)

    def find(self, source: Path, *, links: bool = True) -> Path | None:
        """Return the one of the files that is the photo, a copy of it or, if they count, a link to one of these."""
        if isinstance(source, RemotePath):
            return None
        filecmp.clear_cache()  # it trusts sizes and times, and an original may be removed because of the answer
        for path in self._by_size.get(source.stat().st_size, []):
            with contextlib.suppress(OSError):
                counts = path.is_file() and (links or not path.is_symlink())
                if counts and (path.samefile(source) or filecmp.cmp(source, path, shallow=False)):
                    return path
        return None


def check_folder(path: Path) -> None:
    """Refuse a place that photos cannot be put into: a remote one, or something that is no folder."""
    if isinstance(path, RemotePath):
        raise PatchvoteError(f"{path}: photos are put into folders on this machine only. Name a local folder.")
    if path.exists() and not path.is_dir():
        raise PatchvoteError(f"{path}: photos cannot be put there, it is not a folder. Choose another name.")


def inside(root: Path, below: str) -> Path:
    """Return a path below a folder; `OSError` if `..` or a link leads out of it."""
    path, real = root / below, Path(os.path.realpath(root))
    if not Path(os.path.realpath(path)).is_relative_to(real):
        raise OSError(errno.EPERM, f"{path} leads outside of {root}", str(path))
    return path


def check_movable(path: Path) -> None:
    """Raise an `OSError` unless the path is that of an ordinary local file, and no link."""
    _check_local(path)
    mode = path.lstat().st_mode
    if stat.S_ISLNK(mode):
        raise OSError(errno.EPERM, "it is a link, and only photos themselves are moved", str(path))
    if not stat.S_ISREG(mode):
        raise OSError(errno.EPERM, "it is not an ordinary file", str(path))


def _check_local(path: Path) -> None:
    if isinstance(path, RemotePath):
        raise OSError(errno.EPERM, "it is on a remote file system", str(path))


def numbered(path: Path, number: int) -> Path:
    """Return a path with a number in its name."""
    return path.with_name(f"{path.stem} ({number}){path.suffix}")


def copy_new(source: Path, target: Path) -> None:
    """Copy a photo to a path that does not exist, with its time; the path exists once the copy is whole."""
    if os.path.lexists(target):
        raise FileExistsError(errno.EEXIST, "there is a file already", str(target))
    remove_abandoned(target.parent)
    with open_regular(source) as read, temporary_file(target.parent) as (temporary, file):
        shutil.copyfileobj(read, file, _BLOCK)
        file.flush()
        os.fsync(file.fileno())
        if os.name == "nt":  # Windows cannot rename an open file
            file.close()
        if not isinstance(source, RemotePath):
            with contextlib.suppress(OSError):  # a file system may not keep times or modes
                shutil.copystat(source, temporary)
        target.open("xb").close()  # takes the name, or raises an error; it is replaced at once
        try:
            temporary.replace(target)
        except BaseException:
            target.unlink(missing_ok=True)
            raise


def move_new(source: Path, target: Path) -> None:
    """Move a photo to a path that does not exist; at every moment it is whole under one of the names, or under both."""
    try:
        os.link(source, target)
    except OSError:  # the path exists, is on another disk, or on a file system without hard links
        copy_new(source, target)
    try:
        source.unlink()
    except OSError:
        target.unlink()
        raise


def _remove_moved(source: Path, there: Path) -> None:
    """Remove a photo of which there is another name or a copy, which was compared with it byte by byte."""
    if not (there.samefile(source) and there.parent.samefile(source.parent)):  # never the only name of a photo
        source.unlink()


def _link_new(source: Path, target: Path) -> None:
    target.symlink_to(os.path.realpath(source))
