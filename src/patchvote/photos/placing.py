r"""Put photos into folders: copied, linked or moved, never onto another file, and never outside of the folder.

A copy gets a temporary name first and its own name once it is whole, so that Ctrl-C or a full disk leaves no part of a
photo. A name that is taken gets a number. A photo is moved by giving it a second name and removing the first; on
another disk, by a whole copy. The second name is on the disk before the first is removed, so that a power cut loses no
photo. Whatever an earlier run did, a photo is there once: a file of the same bytes counts as
the photo, so that moving removes the original only, and a link to the photo is replaced by the photo.

The name of a class may come from a model file of a stranger, and may be anything: ``../x``, ``/etc``, a name with NUL,
one that a system reserves, or one longer than any system allows. The name of its folder is one component of a path on
every system, differs from all others even where case does not count, and is that of the class if it can be.
"""

from __future__ import annotations

import contextlib
import enum
import errno
import filecmp
import hashlib
import itertools
import os
import re
import shutil
import stat
import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from ..errors import PatchvoteError, PhotoError
from ..utils.files import make_folders, open_regular, sync, temporary_file
from ..utils.remote import RemotePath
from ..utils.terminal import printable

_BLOCK = 1 << 20  # bytes that are copied at once
_MAX_BYTES = 120  # of a name; systems allow 255, and a number and the name of a temporary file have to fit in as well
_DIGITS = 8  # of the digest that stands for the rest of a long name
# Characters that some system does not allow in a name, or that would read as an escape.
_UNSAFE = re.compile(r'[/\\:*?"<>|]|%(?=[0-9A-Fa-f]{2})')
# At the beginning, a dot hides a folder and a tilde or dash is read by shells and programs; Windows drops a dot or a
# space at the end.
_UNSAFE_ENDS = re.compile(r"^[.~\-\s]|[.\s]$")
_DEVICES = re.compile(r"^(?:con|prn|aux|nul|com[0-9¹²³]|lpt[0-9¹²³]|conin\$|conout\$)(?:\.|$)", re.IGNORECASE)


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

    def put(self, source: Path, folder: str = "") -> Path | None:
        """Put a photo into a folder below the root, under its own name or that name with a number.

        Return where it is now, or None if it was there already, whatever number its name got. If it is to be moved and
        a file of the same bytes is there, the original is removed; a link to it is replaced by the photo itself.
        """
        try:
            if self._how is How.move:
                check_movable(source)
            elif self._how is How.link:
                _check_local(source)
            place = inside(self.root, folder)
            make_folders(place)
            name = folder_name(source.name) if isinstance(source, RemotePath) else source.name
            return self._put(source, place / name)
        except OSError as error:
            raise PhotoError(str(source), f"it cannot be {self._how}: {error.strerror or error}.") from error

    def _put(self, source: Path, target: Path) -> Path | None:
        for path in numbered(target):
            if not os.path.lexists(path):
                try:
                    {How.copy: copy_new, How.link: _link_new, How.move: move_new}[self._how](source, path)
                except FileExistsError:  # it came after the look
                    continue
                return path
            if not _is_same(source, path):
                continue
            if self._how is not How.move:
                return None
            if not path.is_symlink():
                # The only name of a photo is never removed.
                if not (path.samefile(source) and path.parent.samefile(source.parent)):
                    _remove_first(source, path)
                return None
            if path.samefile(source):
                path.unlink()
                move_new(source, path)
                return path
        return None


def _is_same(source: Path, path: Path) -> bool:
    """Whether a file is a photo, a link to it, or a copy of it."""
    with contextlib.suppress(OSError):  # a link that leads nowhere
        if not isinstance(source, RemotePath) and path.is_file():
            filecmp.clear_cache()  # it trusts sizes and times, and an original may be removed because of the answer
            return path.samefile(source) or filecmp.cmp(source, path, shallow=False)
    return False


def check_folder(path: Path) -> None:
    """Refuse a place that photos cannot be put into: a remote one, or something that is no folder."""
    if isinstance(path, RemotePath) or (path.exists() and not path.is_dir()):
        raise PatchvoteError(f"{path}: photos cannot be put there, it is not a folder of this machine.")


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


def numbered(path: Path) -> Iterator[Path]:
    """Yield a path, then that path with the numbers 2, 3, … in its name."""
    yield path
    for number in itertools.count(2):
        yield path.with_name(f"{path.stem} ({number}){path.suffix}")


def copy_new(source: Path, target: Path) -> None:
    """Copy a photo to a path that does not exist, with its time; the path exists once the copy is whole."""

    def take_name(temporary: Path) -> None:
        if not isinstance(source, RemotePath):
            with contextlib.suppress(OSError):  # a file system may not keep times or modes
                shutil.copystat(source, temporary)
        target.open("xb").close()  # or raises an error; it is replaced at once
        try:
            temporary.replace(target)
        except BaseException:
            target.unlink(missing_ok=True)
            raise

    with open_regular(source) as read, temporary_file(target.parent, take_name) as (_, file):
        shutil.copyfileobj(read, file, _BLOCK)


def is_begun(source: Path, target: Path) -> bool:
    """Whether a photo has both names since an earlier run was ended before it removed the first."""
    return not target.is_symlink() and _is_same(source, target) and not target.parent.samefile(source.parent)


def move_new(source: Path, target: Path) -> None:
    """Move a photo to a path that is free, or its own already (`is_begun`); at every moment it has a whole name."""
    is_made = not is_begun(source, target)
    if is_made:
        try:
            os.link(source, target)
        except OSError:  # the path exists, is on another disk, or on a file system without hard links
            copy_new(source, target)
    try:
        _remove_first(source, target)
    except OSError:
        if is_made:
            target.unlink()
        raise


def _remove_first(source: Path, target: Path) -> None:
    """Remove the first name of a photo once its second is on the disk."""
    sync(target)
    sync(target.parent)
    source.unlink()


def _link_new(source: Path, target: Path) -> None:
    target.symlink_to(os.path.realpath(source))


# --- names ------------------------------------------------------------------------------------------------------------


def folder_name(label: str) -> str:
    """Return a name for the folder of a class: the class itself, with unsafe characters in hexadecimals."""
    name = _UNSAFE.sub(_escape, label)
    name = "".join(character if printable(character) == character else _escape(character) for character in name)
    name = _UNSAFE_ENDS.sub(_escape, name)
    name = _DEVICES.sub(lambda match: _escape(match[0][0]) + match[0][1:], name)
    encoded = name.encode()
    if len(encoded) > _MAX_BYTES:
        digest = hashlib.sha256(label.encode("utf-8", "surrogatepass")).hexdigest()[:_DIGITS]
        name = f"{encoded[: _MAX_BYTES - _DIGITS - 1].decode(errors='ignore')}~{digest}"
    return name or "%"


def kept_name(stem: str) -> str:
    """Return a name for a file that is called like a photo of this machine: the same, unless long or unprintable."""
    return stem if printable(stem) == stem and len(stem.encode()) <= _MAX_BYTES else folder_name(stem)


def folder_names(labels: Iterable[str], reserved: Iterable[str] = ()) -> Mapping[str, str]:
    """Return a name for the folder of each class: none is one of those reserved, and no two are the same."""
    classes = list(dict.fromkeys(labels))
    return dict(zip(classes, file_names(map(folder_name, classes), reserved), strict=True))


def file_names(names: Iterable[str], reserved: Iterable[str] = ()) -> list[str]:
    """Return names with numbers, so that no two are the same even where case does not count."""
    taken = {_same_name(name) for name in reserved}
    last: dict[str, int] = {}  # the last number that a name got, so that no number is tried twice
    different = []
    for first in names:
        name, number = first, last.get(_same_name(first), 1)
        while _same_name(name) in taken:
            number += 1
            name = f"{first} ({number})"
        last[_same_name(first)] = number
        taken.add(_same_name(name))
        different.append(name)
    return different


def _escape(unsafe: str | re.Match[str]) -> str:
    text = unsafe if isinstance(unsafe, str) else unsafe[0]
    return "".join(f"%{byte:02X}" for byte in text.encode("utf-8", "surrogatepass"))


def _same_name(name: str) -> str:
    """Return a key that is equal for names that some file system holds equal."""
    return unicodedata.normalize("NFKC", name).casefold()
