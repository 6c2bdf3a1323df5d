"""Walk through a folder that may hold anything: cyclic links, links to links, deeply nested folders.

Every folder is visited once, however many names it has. Real folders are visited before links, so that photos are named
after the real folder; links follow in order of their names.
"""

from __future__ import annotations

import heapq
import os
from pathlib import Path

from ..errors import PhotoError
from ..utils.remote import RemotePath

_MAX_FILES = 10_000_000  # files; as many as rows of a manifest, since their names take some gigabytes


def walk(root: Path) -> tuple[list[Path], list[Path], set[Path]]:
    """List everything below a folder.

    Returns
    -------
    files : list of Path
        Visible files, and folders that cannot be listed, in order of name.
    again : list of Path
        Links to, and other names of, folders that were visited already.
    unlisted : set of Path
        Those of `files` that are folders.

    Raises
    ------
    PhotoError
        The folder holds too many files, or a remote folder cannot be listed.
    """
    if isinstance(root, RemotePath):
        return _remote_files(root), [], set()
    files: list[Path] = []
    again: list[Path] = []
    unlisted: set[Path] = set()
    seen: set[tuple[int, int]] = set()
    waiting: list[Path] = [root]
    links: list[tuple[tuple[str, ...], Path]] = []  # a heap
    while waiting or links:
        folder = waiting.pop() if waiting else heapq.heappop(links)[1]
        try:
            status = folder.stat()
            with os.scandir(folder) as scan:
                entries = list(scan)
        except OSError:
            files.append(folder)
            unlisted.add(folder)
            continue
        identity = status.st_dev, status.st_ino
        if status.st_ino and identity in seen:  # some file systems do not number their files
            again.append(folder)
            continue
        seen.add(identity)
        for entry in entries:
            if is_hidden(entry):
                continue
            path = folder / entry.name
            if not is_folder(entry):
                files.append(path)
            elif entry.is_symlink():
                heapq.heappush(links, (path.parts, path))
            else:
                waiting.append(path)
        _check_count(root, len(files))
    return sorted(files, key=lambda path: path.parts), sorted(again, key=lambda path: path.parts), unlisted


def _remote_files(root: RemotePath) -> list[Path]:
    """Return the visible files below a remote folder, in order of name."""
    try:
        files = root.walk_files()
    except OSError as error:
        raise PhotoError(str(root), f"the folder cannot be listed: {error.strerror or error}.") from None
    _check_count(root, len(files))
    return [path for path in files if not any(map(_is_hidden_name, path.relative_to(root).parts))]


def _check_count(root: Path, count: int) -> None:
    if count > _MAX_FILES:
        raise PhotoError(str(root), f"there are more than {_MAX_FILES:,} files in it. Name a folder inside it.")


def is_hidden(entry: os.DirEntry[str]) -> bool:
    """Whether an entry is hidden, or metadata of macOS, and therefore ignored."""
    return _is_hidden_name(entry.name)


def _is_hidden_name(name: str) -> bool:
    return name.startswith(".") or name == "__MACOSX"


def is_folder(entry: os.DirEntry[str]) -> bool:
    """Whether an entry is a folder, or a link to one."""
    try:
        return entry.is_dir()
    except OSError:  # a link to itself
        return False
