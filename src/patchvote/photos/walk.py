"""Walk through a folder that may hold anything: links in circles, links upon links, folders in folders without end.

Every folder is looked at once, however many names lead to it. Real folders come first, so that a link never takes the
photos of the folder that it leads to; links follow in order of their names.
"""

from __future__ import annotations

import heapq
import os
from pathlib import Path

from ..errors import PhotoError

_MAX_FILES = 10_000_000  # as many as a manifest may list; their names take some gigabytes


def walk(root: Path) -> tuple[list[Path], list[Path]]:
    """List everything below a folder.

    Returns
    -------
    files : list of Path
        All visible files in order of name, and the folders that cannot be listed.
    again : list of Path
        Links, and other names, of folders that were looked at already.

    Raises
    ------
    PhotoError
        There are far too many files.
    """
    files: list[Path] = []
    again: list[Path] = []
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
        if len(files) > _MAX_FILES:
            raise PhotoError(str(root), f"there are more than {_MAX_FILES:,} files in it. Name a folder inside it.")
    return sorted(files, key=lambda path: path.parts), sorted(again, key=lambda path: path.parts)


def is_hidden(entry: os.DirEntry[str]) -> bool:
    """Whether nobody means this entry of a folder when they name the folder."""
    return entry.name.startswith(".") or entry.name == "__MACOSX"


def is_folder(entry: os.DirEntry[str]) -> bool:
    """Whether an entry is a folder, or a link to one."""
    try:
        return entry.is_dir()
    except OSError:  # a link to itself
        return False
