"""Put photos into folders: copied, linked or moved, never onto another file, and never outside of the folder.

A copy gets a temporary name first and its own name once it is whole, so that Ctrl-C or a full disk leaves no part of a
photo. A name that is taken gets a number. A photo is moved by giving it a second name and removing the first; on
another disk, by a whole copy. Whatever an earlier run did, a photo is there once: a file of the same bytes counts as
the photo, so that moving removes the original only, and a link to the photo is replaced by the photo.
"""

from __future__ import annotations

import contextlib
import enum
import errno
import filecmp
import functools
import os
import shutil
import stat
from pathlib import Path
from typing import BinaryIO

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
    """Puts photos into folders below one folder.

    Parameters
    ----------
    root : Path
        Folder that nothing is put outside of; it is made when the first photo is put into it.
    how : How, default `How.copy`
        Whether photos are copied, linked or moved.

    Raises
    ------
    PatchvoteError
        No photo can be put there: it is no folder, or on a remote file system.
    """

    def __init__(self, root: Path, how: How = How.copy) -> None:
        check_folder(root)
        self.root, self._how = root, how
        self._taken: dict[Path, _Taken] = {}  # per name: no file is looked for twice, however many photos share it

    def put(self, source: Path, folder: str = "") -> Path | None:
        """Put a photo into a folder below the root, under its own name or that name with a number.

        A photo that is there already, whatever number its name got, is not put there again. If it is to be moved and a
        file of the same bytes is there, the original is removed; a link to it is replaced by the photo itself.

        Parameters
        ----------
        source : Path
            File of the photo.
        folder : str
            Path of the folder below the root, with forward slashes.

        Returns
        -------
        Path or None
            Where it is now; None if it was there already.

        Raises
        ------
        PhotoError
            It cannot be put there; the message gives the reason.
        """
        try:
            check_movable(source) if self._how is How.move else _check_linkable(source, self._how)
            place = inside(self.root, folder)
            place.mkdir(parents=True, exist_ok=True)
            target = place / (folder_name(source.name) if isinstance(source, RemotePath) else source.name)
            if (taken := self._taken.get(target)) is None:
                taken = self._taken[target] = _Taken(target)
            if (there := taken.find(source, links=self._how is not How.move)) is not None:
                if self._how is How.move:
                    _remove_moved(source, there)
                return None
            if self._how is How.move and (link := taken.find(source)) is not None and link.samefile(source):
                _move_onto_link(source, link)
                return link
            return self._put(source, taken)
        except OSError as error:
            raise PhotoError(str(source), f"it cannot be {self._how}: {error.strerror or error}.") from error

    @functools.cached_property
    def _before(self) -> dict[str, list[str]]:
        return _folders_by_name(self.root)

    def is_elsewhere(self, source: Path, folder: str) -> bool:
        """Whether a photo, its copy or a link to it is in another folder directly below the root, from before.

        Asked before the first photo is put, so that what this object puts there does not count.
        """
        others = (other for other in self._before.get(source.name, ()) if other != folder)
        return any(_Taken(self.root / other / source.name).find(source) is not None for other in others)

    def _put(self, source: Path, taken: _Taken) -> Path:
        while True:
            path = taken.free()
            try:
                {How.copy: copy_new, How.link: _link_new, How.move: move_new}[self._how](source, path)
            except FileExistsError:  # it came after the folder was looked at
                taken.add(path)
                continue
            taken.add(path)
            return path


def _folders_by_name(root: Path) -> dict[str, list[str]]:
    """Return in which folders directly below a folder there is a file of a name; nothing where none can be read."""
    found: dict[str, list[str]] = {}
    with contextlib.suppress(OSError), os.scandir(root) as folders:
        for folder in sorted(entry.name for entry in folders if entry.is_dir(follow_symlinks=False)):
            with contextlib.suppress(OSError), os.scandir(root / folder) as files:
                for file in files:
                    found.setdefault(file.name, []).append(folder)
    return found


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
        with contextlib.suppress(OSError):
            for path in self._by_size.get(source.stat().st_size, []):
                if (links or not path.is_symlink()) and _is_photo(source, path):
                    return path
        return None


def check_folder(path: Path) -> None:
    """Refuse a place that photos cannot be put into.

    Raises
    ------
    PatchvoteError
        It is remote, or something that is no folder.
    """
    if isinstance(path, RemotePath):
        raise PatchvoteError(f"{path}: photos are put into folders on this machine only. Name a local folder.")
    if path.exists() and not path.is_dir():
        raise PatchvoteError(f"{path}: photos cannot be put there, it is not a folder. Choose another name.")


def inside(root: Path, below: str) -> Path:
    """Return a path below a folder, which neither `..` nor a link leads out of.

    Raises
    ------
    OSError
        It is outside of the folder.
    """
    path, real = root / below, Path(os.path.realpath(root))
    if not Path(os.path.realpath(path)).is_relative_to(real):
        raise OSError(errno.EPERM, f"{path} leads outside of {root}", str(path))
    return path


def check_movable(path: Path) -> None:
    """Raise an `OSError` unless the path is that of an ordinary local file, and no link."""
    if isinstance(path, RemotePath):
        raise OSError(errno.EPERM, "it is on a remote file system", str(path))
    mode = path.lstat().st_mode
    if stat.S_ISLNK(mode):
        raise OSError(errno.EPERM, "it is a link, and only photos themselves are moved", str(path))
    if not stat.S_ISREG(mode):
        raise OSError(errno.EPERM, "it is not an ordinary file", str(path))


def _check_linkable(path: Path, how: How) -> None:
    if how is How.link and isinstance(path, RemotePath):
        raise OSError(errno.EPERM, "it is on a remote file system", str(path))


def numbered(path: Path, number: int) -> Path:
    """Return a path with a number in its name.

    Examples
    --------
    >>> numbered(Path("a/cat.1.jpg"), 2).as_posix()
    'a/cat.1 (2).jpg'
    """
    return path.with_name(f"{path.stem} ({number}){path.suffix}")


def copy_new(source: Path, target: Path) -> None:
    """Copy a photo to a path that does not exist, with its time; the path exists once the copy is whole.

    Raises
    ------
    FileExistsError
        The path exists.
    OSError
        The photo cannot be read, or the copy cannot be written.
    """
    if os.path.lexists(target):
        raise FileExistsError(errno.EEXIST, "there is a file already", str(target))
    remove_abandoned(target.parent)
    with open_regular(source) as read, temporary_file(target.parent) as (temporary, file):
        _copy_whole(read, file, source, temporary)
        _name(temporary, target)


def _copy_whole(read: BinaryIO, file: BinaryIO, source: Path, temporary: Path) -> None:
    """Copy an open photo to an open temporary file, down to the disk, with its time."""
    shutil.copyfileobj(read, file, _BLOCK)
    file.flush()
    os.fsync(file.fileno())
    if os.name == "nt":  # Windows cannot rename an open file
        file.close()
    if not isinstance(source, RemotePath):
        with contextlib.suppress(OSError):  # a file system may not keep times or modes
            shutil.copystat(source, temporary)


def move_new(source: Path, target: Path) -> None:
    """Move a photo to a path that does not exist; at every moment it is whole under one of the names, or under both.

    Raises
    ------
    FileExistsError
        The path exists.
    OSError
        The photo cannot be moved; it is where it was.
    """
    try:
        os.link(source, target)
    except FileExistsError:
        raise
    except OSError:  # another disk, or a file system without hard links
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


def _move_onto_link(source: Path, link: Path) -> None:
    """Move a photo to where a symbolic link to it is, which leads nowhere as soon as the photo is gone."""
    try:
        source.replace(link)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        with open_regular(source) as read, temporary_file(link.parent) as (temporary, file):
            _copy_whole(read, file, source, temporary)
            temporary.replace(link)
        source.unlink()


def _link_new(source: Path, target: Path) -> None:
    target.symlink_to(os.path.realpath(source))


def _name(temporary: Path, target: Path) -> None:
    """Give a whole file its name, or raise `FileExistsError`."""
    try:
        os.link(temporary, target)
        return
    except FileExistsError:
        raise
    except OSError:  # no hard links here: an empty file takes the name, and is replaced at once
        target.open("xb").close()
    try:
        temporary.replace(target)
    except BaseException:
        target.unlink(missing_ok=True)
        raise


def _is_photo(source: Path, path: Path) -> bool:
    """Whether a file is a photo, a link to it, or a copy of it."""
    filecmp.clear_cache()  # it trusts sizes and times, and an original may be removed because of the answer
    try:
        return path.is_file() and (path.samefile(source) or filecmp.cmp(source, path, shallow=False))
    except OSError:
        return False
