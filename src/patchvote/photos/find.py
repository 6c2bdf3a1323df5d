"""Find the photos that a user means: a folder, a manifest, a table, or a list of files, contents, arrays or images.

Nothing is decoded here. Damaged files are found as well, so that they can be reported later. Hidden files and other
types of files are ignored; photos of types that cannot be read are counted (`passed_over`).
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, Protocol

import numpy as np
import numpy.typing as npt
from PIL import Image

from ..errors import PatchvoteError, PhotoError
from ..utils.marks import Kind, kind_of
from ..utils.remote import RemotePath, place
from ..utils.schema import brief
from ..utils.terminal import counted
from .columns import Columns
from .formats import endings, how_to_read, is_photo
from .hints import SPREADSHEETS, folder_above, folder_of_classes, how_to_label, near_path
from .labels import is_missing, label_texts
from .manifests import ENDINGS as MANIFESTS
from .manifests import read_manifest
from .passed_over import PHOTO_TYPES, PassedOver
from .walk import is_folder, is_hidden, walk


class Table(Protocol):
    """A table with named columns, such as a DataFrame of pandas."""

    columns: Any

    def to_dict(self, orient: Any) -> Any:
        """Return the rows, for `orient="records"`."""


OnePhoto = str | Path | bytes | IO[bytes] | Image.Image | npt.NDArray[Any]
Source = OnePhoto | Table | Sequence["OnePhoto | Photo"]
MAX_BYTES = 400_000_000  # of the content of one photo; less than half of what decoding may take (`decode.MEMORY`)


@dataclasses.dataclass(frozen=True, eq=False)
class Photo:
    """One photo: its name, its source and, if known, its class.

    Parameters
    ----------
    name : str
        Path below the folder in which the photo was found, with forward slashes; unique within a collection.
    source : Path, bytes, Pillow image or array
        File, content of a file, or image that holds the pixels.
    label : str or None
        Class of the photo, if known.
    """

    name: str
    source: Path | bytes | Image.Image | npt.NDArray[Any]
    label: str | None = None


class Found(list[Photo]):
    """List of the photos that were found, with a record of what was passed over."""

    def __init__(self, photos: Iterable[Photo] = (), passed_over: PassedOver | None = None) -> None:
        super().__init__(photos)
        self.passed_over = passed_over or PassedOver()


def find_photos(source: Source, columns: Columns | Mapping[str, str] | None = None) -> Found:
    """Find photos, in a fixed order.

    Parameters
    ----------
    source : path, bytes, open file, array, Pillow image, a list of these, or a DataFrame
        - a folder with one folder per class: the label of a photo is the name of the top folder that holds it; photos
          beside the class folders have none;
        - a folder of photos: no labels;
        - a manifest (`.csv` or `.jsonl`) with a `file_name`, relative to the manifest, and an optional `label`;
        - a DataFrame with the same columns, whose paths are relative to the current folder;
        - one photo, or a list of photos: paths, contents of image files (bytes, open binary files), arrays or images;
        - what this function returned before.
    columns : dict, optional
        Columns of a manifest or DataFrame with other names: ``{"file": "path", "label": "species"}``.

    Raises
    ------
    PhotoError
        The path does not exist, or holds no photo.
    PatchvoteError
        Columns are named for something that has none.
    """
    named = Columns.of(columns)
    if columns is not None and not _has_columns(source):
        what = str(source) if isinstance(source, (str, Path)) else "a list of photos"
        raise PatchvoteError(f"{what} has no columns: only a manifest ({', '.join(MANIFESTS)}) or a table has.")
    if isinstance(source, Found) and source:
        return source
    if isinstance(source, (str, Path)):
        return _from_path(place(source), named)
    if hasattr(source, "columns") and hasattr(source, "to_dict"):
        if (missing := named.missing(source.columns)) is not None:
            raise PhotoError("the table", f"it has no column {missing}. {_other_columns(source)}")
        rows = ({key: _known(value) for key, value in row.items()} for row in source.to_dict("records"))
        return Found(_from_rows("the table", Path(), enumerate(rows), named))
    if isinstance(source, np.ndarray) and (source.ndim == 4 or source.dtype.kind in "OU"):
        return Found(_from_list(list(source)))
    if isinstance(source, (np.ndarray, Image.Image, bytes, bytearray)) or hasattr(source, "read"):
        return Found(_from_list([source]))
    if not isinstance(source, Iterable):
        raise PhotoError("", f"photos must be a folder, a manifest, a photo or a list of photos, got {brief(source)}.")
    return Found(_from_list(list(source)))


def _has_columns(source: Source) -> bool:
    """Whether a source is a manifest, which need not exist, or a table."""
    if isinstance(source, (str, Path)):
        path = place(source)
        with contextlib.suppress(OSError):  # `_from_path` says what is wrong with the path
            return path.suffix.lower() in MANIFESTS and not path.is_dir()
        return True
    return hasattr(source, "columns") and hasattr(source, "to_dict")


def _other_columns(table: Any) -> str:
    """Return which columns a table has, and how they are named to `find_photos`."""
    present = ", ".join(repr(str(name)) for name in table.columns)[:200] or "none"
    return (
        f"Its columns are: {present}. Say which of them holds the paths of the photos and which their classes: "
        "find_photos(table, columns={'file': COLUMN, 'label': COLUMN}); what it returns can be passed in place of the "
        "table."
    )


def _from_path(path: Path, columns: Columns) -> Found:
    try:
        there, is_dir = path.exists(), path.is_dir()
    except OSError as error:  # a folder above may not be entered, or the name is too long
        raise PhotoError(str(path)[:200], f"cannot be read: {error.strerror or error}.") from None
    if is_dir:
        return _from_folder(path)
    if not there:
        raise PhotoError(str(path), f"there is no such file or folder. Is the path right?{near_path(path)}")
    if path.suffix.lower() in MANIFESTS:
        return Found(_from_rows(str(path), path.parent, read_manifest(path, columns), columns))
    if is_photo(path):
        return Found([Photo(path.name, path)])
    hint = f" {how_to_read(path.suffix.lower())}" if path.suffix.lower() in PHOTO_TYPES else ""
    if path.suffix.lower() in SPREADSHEETS:
        hint = " Save the table as .csv."
    with contextlib.suppress(OSError, ValueError):
        if path.is_file() and kind_of(path) is Kind.model:
            hint = " It is a model of patchvote: name the photos."
    raise PhotoError(
        str(path), f"neither a folder, a manifest ({', '.join(MANIFESTS)}) nor a photo ({', '.join(endings())}).{hint}"
    )


def _from_folder(root: Path) -> Found:
    photos, others, first = [], collections.Counter[str](), ""
    files, again, unlisted = walk(root)
    if root in unlisted:
        raise PhotoError(str(root), "the folder may not be read. Are you allowed to list it?")
    for path in files:
        relative, ending = path.relative_to(root), path.suffix.lower()
        is_unlisted = path in unlisted  # reading it later says why
        if is_unlisted or is_photo(path):
            label = relative.parts[0] if is_unlisted or len(relative.parts) > 1 else None
            photos.append(Photo(relative.as_posix(), path, label))
        else:
            others[ending or "no ending"] += 1
            first = first or (relative.as_posix() if ending in PHOTO_TYPES else "")
    types = {ending: count for ending, count in others.items() if ending in PHOTO_TYPES}
    if not photos:
        counts = ", ".join(f"{count} with {ending}" for ending, count in others.most_common(3))
        raise PhotoError(
            str(root),
            f"no photos here or in the folders below. {'Files there: ' + counts + '. ' if counts else ''}"
            f"Photos end in {', '.join(endings())}.{' ' + how_to_read(next(iter(types))) if types else ''}",
        )
    links = tuple(path.relative_to(root).as_posix() for path in again)
    empty = tuple(name for name in _without_photos(root, photos) if name not in links)
    return Found(photos, PassedOver(types, first, empty, links))


def _without_photos(root: Path, photos: list[Photo]) -> tuple[str, ...]:
    """Return the class folders in which there is no photo."""
    classes = {photo.label for photo in photos if photo.label is not None}
    if not classes or isinstance(root, RemotePath):  # object stores have no folders without files
        return ()
    with os.scandir(root) as entries:
        folders = [entry.name for entry in entries if not is_hidden(entry) and is_folder(entry)]
    return tuple(sorted(set(folders) - classes - {photo.name for photo in photos}))


def _from_rows(name: str, folder: Path, rows: Iterable[tuple[int, Mapping[Any, Any]]], columns: Columns) -> list[Photo]:
    """Return the photos of numbered rows with columns for a file and, optionally, its label."""
    photos: dict[str, Photo] = {}
    for line, row in rows:
        file_name = row.get(columns.file)
        if isinstance(file_name, Path):
            file_name = str(file_name)
        missing = columns.missing(row)
        if missing or not isinstance(file_name, str) or not file_name.strip():
            present = ", ".join(map(str, row))[:200] or "nothing"
            other = "" if missing or isinstance(file_name, str | None) else f" in text, but {brief(file_name)}"
            raise PhotoError(name, f"line {line} has no {missing or columns.file}{other}. It has: {present}.")
        label = row.get(columns.label_column)
        if label is not None and not isinstance(label, (str, int, np.integer)):
            raise PhotoError(name, f"line {line}: label must be text, got {repr(label)[:200]}.")
        where = file_name.strip().replace("\\", "/")
        # The name is the file_name unchanged, so that answers can be joined with the rows.
        # Relative to the folder, never a URL: a manifest of a stranger must not choose where to connect.
        photo = Photo(file_name, folder / where, str(label).strip() or None if label is not None else None)
        if where in photos and photos[where].label != photo.label:
            raise PhotoError(
                name, f"line {line} labels {where} {photo.label!r}, an earlier line {photos[where].label!r}."
            )
        photos.setdefault(where, photo)
    if not photos:
        raise PhotoError(name, f"{'the manifest' if name != 'the table' else 'it'} lists no photos.")
    return list(photos.values())


def _from_list(items: list[Any]) -> list[Photo]:
    if not items:
        raise PhotoError("", "there are no photos: the list is empty.")
    photos = []
    for index, item in enumerate(items):
        if isinstance(item, Photo):
            photos.append(item)
        elif isinstance(item, (str, Path)):
            photos.append(Photo(item if isinstance(item, str) else item.as_posix(), place(item)))
        elif isinstance(item, (np.ndarray, Image.Image)):
            photos.append(Photo(f"image {index}", item))
        elif isinstance(item, (bytes, bytearray)) or hasattr(item, "read"):
            photos.append(Photo(f"image {index}", _content(f"image {index}", item)))
        else:
            raise PhotoError(
                f"image {index}",
                "must be a path, the content of an image file (bytes or an open file), an array or a Pillow image, got "
                f"{type(item).__name__}.",
            )
    return photos


def _known(value: Any) -> Any:
    """Return a value of a table; None for NaN, by which tables say that there is none."""
    return None if is_missing(value) else value


def _content(name: str, given: Any) -> bytes:
    """Return the content of an image file that was passed as bytes, or as a file that is open for reading."""
    content = given.read(MAX_BYTES + 1) if hasattr(given, "read") else bytes(given)
    if not isinstance(content, bytes):
        raise PhotoError(name, "is a file that was opened as text. Open it with the mode 'rb'.")
    if len(content) > MAX_BYTES:
        raise PhotoError(name, f"has more than {MAX_BYTES / 1e6:.0f} MB, too much for a photo.")
    return content


def labelled(source: Source, labels: Sequence[str] | None, fewest: int) -> Found:
    """Find labelled photos of at least `fewest` classes.

    Raises
    ------
    PatchvoteError
        There are no photos, a photo has no class or two, or there are too few classes.
    """
    photos = find_photos(source)
    if labels is not None:
        texts = label_texts([photo.name for photo in photos], labels)
        relabelled = (dataclasses.replace(photo, label=text) for photo, text in zip(photos, texts, strict=True))
        photos = Found(relabelled, photos.passed_over)
    unlabelled = [photo.name for photo in photos if is_missing(photo.label)]
    where = str(source) if isinstance(source, (str, Path)) else "the list of photos"
    if len(unlabelled) == len(photos):
        above = folder_above(place(source)) if isinstance(source, (str, Path)) else None
        if not isinstance(source, (str, Path)) and not _has_columns(source):
            raise PatchvoteError(f"{where}: no photo has a class. Pass their labels, one per photo, after the photos.")
        if not isinstance(source, (str, Path)):
            raise PatchvoteError(f"the table: no photo has a class, in the column label. {_other_columns(source)}")
        raise PatchvoteError(
            f"{where}: no photo has a class. Put the photos of each class into a folder of their own "
            "(photos/cat/1.jpg, photos/dog/2.jpg), or name the classes in a .csv with the columns file_name,label."
            + ("" if above is None else f" If its name is a class, pass the folder above, {_in_words(above)}.")
        )
    if unlabelled:
        raise PatchvoteError(
            f"{where}: {counted(len(unlabelled), 'photo has', 'photos have')} no class, the first is {unlabelled[0]}. "
            + how_to_label(listed=_has_columns(source), count=len(unlabelled))
        )
    _check_one_class_each(where, photos)
    classes = sorted({str(photo.label) for photo in photos})
    if len(classes) < fewest:
        meant = folder_of_classes(place(source), photos) if isinstance(source, (str, Path)) else None
        raise PatchvoteError(
            f"{where}: all photos are of one class, {classes[0]!r}. At least two are needed: one folder per class."
            + (f" Did you mean {meant}, which holds folders?" if meant is not None else "")
        )
    return photos


def _in_words(folder: Path) -> str:
    return "the current one (`.`)" if folder == Path() else str(folder)


def _check_one_class_each(where: str, photos: Iterable[Photo]) -> None:
    """Refuse a name that stands for two classes: answers and labels are matched by the names of photos."""
    labels: dict[str, str | None] = {}
    for photo in photos:
        if (first := labels.setdefault(photo.name, photo.label)) != photo.label:
            raise PatchvoteError(
                f"{where}: {photo.name} has two classes, {first!r} and {photo.label!r}. Give every photo one class, "
                "and different photos different names."
            )
