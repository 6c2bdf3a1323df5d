"""Answers of a workspace for other programs: a table, and the photos in a folder per class."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import Any

from ..photos.folder_names import folder_name, folder_names, same_name
from ..utils.terminal import csv_of
from ..voters.votes import NONE
from .records import PhotoRecord, State
from .workspaces import Workspace

_CHUNK = 1 << 20  # bytes that are read of a photo at once
_DATE = (1980, 1, 1, 0, 0, 0)  # of files in an archive: the oldest that the format knows
_COLUMNS = (
    "file",
    "label",
    "probability",
    "likeliest",
    "likeliest_probability",
    "runner_up",
    "runner_up_probability",
    "error",
    "familiarity",
    "corrected",
)


def answered_photos(state: State) -> list[PhotoRecord]:
    """Return the photos that have an answer, in the order in which they came."""
    return [photo for photo in state.photos.values() if photo.answer is not None]


def csv_of_answers(state: State) -> Iterator[bytes]:
    """Yield the lines of a table with an answer per row, without formulas for a spreadsheet."""
    rows = ({name: _value(state, photo, name) for name in _COLUMNS} for photo in answered_photos(state))
    for line in csv_of(rows, list(_COLUMNS)):
        yield f"{line}\r\n".encode()


def _value(state: State, photo: PhotoRecord, column: str) -> Any:
    if column == "corrected":
        return "" if photo.label is None else state.classes[photo.label]
    return (photo.answer or {}).get(column)


def zip_of_answers(workspace: Workspace) -> Iterator[bytes]:
    """Yield an archive of the answered photos, in a folder per class, in bounded memory.

    A photo is in the folder of the class that a user gave it, and otherwise in that of its answer. Names of folders and
    photos are made safe on every system (`folder_names`).
    """
    state = workspace.state
    photos = [(photo, _folder(state, photo)) for photo in answered_photos(state)]
    # "None of these" is an answer, not a class, and keeps its name.
    folders = {NONE: NONE, **folder_names([label for _, label in photos if label != NONE], [NONE])}
    stream, used = _Stream(), dict[str, int]()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_STORED) as archive:
        for photo, label in photos:
            path = workspace.folder / "photos" / photo.id
            if not label or not path.is_file():
                continue
            entry = zipfile.ZipInfo(_free(f"{folders[label]}/{folder_name(photo.name)}", used), _DATE)
            entry.external_attr = 0o644 << 16
            with path.open("rb") as file, archive.open(entry, "w") as target:
                while chunk := file.read(_CHUNK):
                    target.write(chunk)
                    yield stream.taken()
    yield stream.taken()


def _folder(state: State, photo: PhotoRecord) -> str:
    """Return the class that a photo is sorted by; empty for one that could not be read."""
    if photo.label is not None:
        return state.classes[photo.label]
    return str((photo.answer or {}).get("label", ""))


def _free(name: str, used: dict[str, int]) -> str:
    """Return a name that is not used yet, also where case does not count: with a number before the ending.

    `used` has the last number of every name, so that no number is tried twice.
    """
    path, free, number = PurePosixPath(name), name, used.get(same_name(name), 0)
    while same_name(free) in used:
        number += 1
        free = str(path.with_stem(f"{path.stem} ({number})"))
    used[same_name(name)] = max(number, 1)
    used.setdefault(same_name(free), 1)
    return free


class _Stream(io.RawIOBase):
    """Collects what an archive writes until it is taken; it cannot seek, so nothing is written twice."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self._parts.append(bytes(data))
        return len(data)

    def taken(self) -> bytes:
        """Return what was written since the last call."""
        data = b"".join(self._parts)
        self._parts.clear()
        return data
