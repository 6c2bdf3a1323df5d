"""Find the photos that a user means: a folder, a manifest, a table, or a list of files, contents, arrays or images.

Nothing is decoded here, so damaged files are found as well. Hidden files and other types of files are ignored; photos
of types that cannot be read are counted (`PassedOver`).
"""

from __future__ import annotations

import collections
import dataclasses
import heapq
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt
from PIL import Image

from ..errors import PatchvoteError, PhotoError
from ..utils.remote import RemotePath, place
from ..utils.schema import brief
from ..utils.terminal import counted, some
from .formats import PHOTO_TYPES, endings, how_to_read, is_photo
from .manifests import ENDINGS as MANIFESTS
from .manifests import Columns, read_manifest

OnePhoto = str | Path | bytes | IO[bytes] | Image.Image | npt.NDArray[Any]
Table = Any  # with named columns, such as a DataFrame of pandas
Source = OnePhoto | Table | Sequence["OnePhoto | Photo"]
_MAX_NAMES = 1000  # names in a folder that are compared with one that does not exist


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


@dataclasses.dataclass(frozen=True)
class PassedOver:
    """What was passed over in a folder: photos of unreadable types, class folders without photos, and links.

    `types` counts photos per ending, and `first` names the first of them. `links` lead to folders whose photos were
    found under another name.
    """

    types: Mapping[str, int] = dataclasses.field(default_factory=dict)
    first: str = ""
    empty: tuple[str, ...] = ()
    links: tuple[str, ...] = ()

    def __add__(self, other: PassedOver) -> PassedOver:
        types = collections.Counter(self.types) + collections.Counter(other.types)
        empty, links = (tuple(dict.fromkeys(names)) for names in (self.empty + other.empty, self.links + other.links))
        return PassedOver(dict(types), self.first or other.first, empty, links)

    def without_folders(self) -> PassedOver:
        """Return the record without empty class folders, for uses where classes do not matter."""
        return dataclasses.replace(self, empty=())

    def sentences(self, *, advice: bool = True) -> list[str]:
        """Return sentences that say what was passed over and, with `advice`, what to do about it."""
        sentences = []
        if self.types:
            counts = some([f"{count:,} with {ending}" for ending, count in self.types.items()])
            what = f"passed over files: {counts} (the first is {self.first}): not readable here."
            sentences.append(" ".join([what, *(self.advice() if advice else [])]))
        if self.empty:
            sentences.append(f"no photo was found in {some(self.empty)}: an empty folder does not become a class.")
        if self.links:
            sentences.append(f"passed over links to folders that were searched already: {some(self.links)}.")
        return sentences

    def advice(self) -> list[str]:
        """Return sentences that say how photos of the unreadable types can be converted."""
        advices: dict[str, list[str]] = {}
        for ending in sorted(self.types):
            advices.setdefault(how_to_read(ending), []).append(ending)
        return [f"{some(alike)}: {advice}" for advice, alike in advices.items()]

    def plain(self) -> dict[str, Any]:
        """Return the record as plain values, for JSON."""
        return dataclasses.asdict(self)


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
    if _is_table(source):
        return _from_table(source, named)
    if isinstance(source, np.ndarray) and (source.ndim == 4 or source.dtype.kind in "OU"):
        return _from_list(list(source))
    if isinstance(source, (np.ndarray, Image.Image, bytes, bytearray)) or hasattr(source, "read"):
        return _from_list([source])
    if not isinstance(source, Iterable):
        raise PhotoError("", f"photos must be a folder, a manifest, a photo or a list of photos, got {brief(source)}.")
    return _from_list(list(source))


def _is_table(source: Any) -> bool:
    return hasattr(source, "columns") and hasattr(source, "to_dict")


def _has_columns(source: Source) -> bool:
    """Whether a source is a manifest, which need not exist, or a table."""
    if isinstance(source, (str, Path)):
        path = place(source)
        is_list = path.suffix.lower() in MANIFESTS
        return is_list and (isinstance(path, RemotePath) or not os.path.isdir(path))  # noqa: PTH112 - Path may raise
    return _is_table(source)


def _from_table(table: Any, columns: Columns) -> Found:
    if (missing := columns.missing(table.columns)) is not None:
        present = ", ".join(repr(str(name)) for name in table.columns)[:200] or "none"
        how = "name others with find_photos(table, columns={'file': COLUMN, 'label': COLUMN})"
        raise PhotoError("the table", f"it has no column {missing}. Its columns are: {present}; {how}.")
    records = table.to_dict("records")
    rows = ({key: None if is_missing(value) else value for key, value in row.items()} for row in records)
    return _from_rows("the table", Path(), enumerate(rows), columns)


def _from_path(path: Path, columns: Columns) -> Found:
    try:
        exists, is_dir = path.exists(), path.is_dir()
    except OSError as error:  # a folder above may not be entered, or the name is too long
        raise PhotoError(str(path)[:200], f"cannot be read: {error.strerror or error}.") from None
    if is_dir:
        return _from_folder(path)
    if not exists:
        raise PhotoError(str(path), f"there is no such file or folder. Is the path right?{near_path(path)}")
    ending = path.suffix.lower()
    if ending in MANIFESTS:
        return _from_rows(str(path), path.parent, read_manifest(path, columns), columns)
    if is_photo(path):
        return Found([Photo(path.name, path)])
    hint = f" {how_to_read(ending)}" if ending in PHOTO_TYPES else ""
    kinds = ", ".join([*MANIFESTS, *endings()])
    raise PhotoError(str(path), f"neither a folder, a manifest nor a photo ({kinds}).{hint}")


def _from_folder(root: Path) -> Found:
    photos, others, first = [], collections.Counter[str](), ""
    files, again, unlisted = _walk(root)
    if root in unlisted:
        raise PhotoError(str(root), "the folder may not be read. Are you allowed to list it?")
    for path in files:
        relative, ending = path.relative_to(root), path.suffix.lower()
        if path in unlisted:  # reading it later says why
            photos.append(Photo(relative.as_posix(), path, relative.parts[0]))
        elif is_photo(path):
            photos.append(Photo(relative.as_posix(), path, relative.parts[0] if len(relative.parts) > 1 else None))
        else:
            others[ending or "no ending"] += 1
            first = first or (relative.as_posix() if ending in PHOTO_TYPES else "")
    types = {ending: count for ending, count in others.most_common() if ending in PHOTO_TYPES}
    if not photos:
        counts = ", ".join(f"{count} with {ending}" for ending, count in others.most_common(3))
        raise PhotoError(
            str(root),
            f"no photos here or in the folders below. {'Files there: ' + counts + '. ' if counts else ''}"
            f"Photos end in {', '.join(endings())}.{' ' + how_to_read(next(iter(types))) if types else ''}",
        )
    links = tuple(path.relative_to(root).as_posix() for path in again)
    empty: set[str] = set()
    if any(photo.label for photo in photos) and not isinstance(root, RemotePath):  # object stores have no empty folders
        with os.scandir(root) as entries:
            empty = {entry.name for entry in entries if not _is_hidden(entry.name) and _is_folder(entry)}
        empty -= {name for photo in photos for name in (photo.label, photo.name) if name} | set(links)
    return Found(photos, PassedOver(types, first, tuple(sorted(empty)), links))


def _walk(root: Path) -> tuple[list[Path], list[Path], set[Path]]:
    """List everything below a folder that may hold anything: cyclic links, links to links, deeply nested folders.

    Every folder is visited once, however many names it has: real folders before links, so that photos are named after
    the real folder. Returns the visible files and the folders that cannot be listed, in order; other names of folders
    that were visited already; and the folders among the first.
    """
    if isinstance(root, RemotePath):
        try:
            remote = root.walk_files()
        except OSError as error:
            raise PhotoError(str(root), f"the folder cannot be listed: {error.strerror or error}.") from None
        return [path for path in remote if not any(map(_is_hidden, path.relative_to(root).parts))], [], set()
    files: list[Path] = []
    again: list[Path] = []
    unlisted: set[Path] = set()
    seen: set[tuple[int, int]] = set()
    waiting: list[Path] = [root]
    links: list[Path] = []  # a heap
    while waiting or links:
        folder = waiting.pop() if waiting else heapq.heappop(links)
        try:
            status = folder.stat()
            with os.scandir(folder) as scan:
                entries = [entry for entry in scan if not _is_hidden(entry.name)]
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
            path = folder / entry.name
            if not _is_folder(entry):
                files.append(path)
            elif entry.is_symlink():
                heapq.heappush(links, path)
            else:
                waiting.append(path)
    return sorted(files), sorted(again), unlisted


def _is_hidden(name: str) -> bool:
    return name.startswith(".") or name == "__MACOSX"


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link to itself
        return False


def _from_rows(name: str, folder: Path, rows: Iterable[tuple[int, Mapping[Any, Any]]], columns: Columns) -> Found:
    """Return the photos of numbered rows with columns for a file and, optionally, its label."""
    photos: dict[str, Photo] = {}
    for line, row in rows:
        file_name = row.get(columns.file)
        if isinstance(file_name, Path):
            file_name = str(file_name)
        missing = columns.missing(row)
        if missing or not isinstance(file_name, str) or not file_name.strip():
            present = ", ".join(map(str, row))[:200] or "nothing"
            raise PhotoError(name, f"line {line} has no {missing or columns.file} in text. It has: {present}.")
        label = row.get(columns.label_column)
        if label is not None and not isinstance(label, (str, int, np.integer)):
            raise PhotoError(name, f"line {line}: label must be text, got {brief(label)}.")
        where = file_name.strip().replace("\\", "/")
        # The name is the file_name unchanged, so that answers can be joined with the rows.
        # Relative to the folder, never a URL: a manifest of a stranger must not choose where to connect.
        photo = Photo(file_name, folder / where, str(label).strip() or None if label is not None else None)
        if where in photos and photos[where].label != photo.label:
            earlier = photos[where].label
            raise PhotoError(name, f"line {line} labels {where} {photo.label!r}, an earlier line {earlier!r}.")
        photos.setdefault(where, photo)
    if not photos:
        raise PhotoError(name, "it lists no photos.")
    return Found(photos.values())


def _from_list(items: list[Any]) -> Found:
    if not items:
        raise PhotoError("", "there are no photos: the list is empty.")
    photos = Found()
    for index, item in enumerate(items):
        name = f"image {index}"
        if isinstance(item, Photo):
            photos.append(item)
        elif isinstance(item, (str, Path)):
            photos.append(Photo(item if isinstance(item, str) else item.as_posix(), place(item)))
        elif isinstance(item, (np.ndarray, Image.Image)):
            photos.append(Photo(name, item))
        elif isinstance(item, (bytes, bytearray)) or hasattr(item, "read"):
            photos.append(Photo(name, _content(name, item)))
        else:
            kinds = "a path, the content of an image file (bytes or an open file), an array or a Pillow image"
            raise PhotoError(name, f"must be {kinds}, got {type(item).__name__}.")
    return photos


def _content(name: str, given: Any) -> bytes:
    """Return the content of an image file that was passed as bytes, or as a file that is open for reading."""
    content = given.read() if hasattr(given, "read") else bytes(given)
    if not isinstance(content, bytes):
        raise PhotoError(name, "is a file that was opened as text. Open it with the mode 'rb'.")
    return content


def labelled(source: Source, labels: Sequence[str] | None, fewest: int) -> Found:
    """Find labelled photos of at least `fewest` classes; a `PatchvoteError` says which photo has no class, or two."""
    photos = find_photos(source)
    if labels is not None:
        texts = label_texts([photo.name for photo in photos], labels)
        relabelled = (dataclasses.replace(photo, label=text) for photo, text in zip(photos, texts, strict=True))
        photos = Found(relabelled, photos.passed_over)
    path = place(source) if isinstance(source, (str, Path)) else None
    where = "the list of photos" if path is None else str(source)
    if unlabelled := [photo.name for photo in photos if is_missing(photo.label)]:
        how = "Pass one label per photo, or name the classes in a column label."
        if path is not None:
            how = "Put the photos of each class into a folder of their own (photos/cat/1.jpg, photos/dog/2.jpg)."
        count = counted(len(unlabelled), "photo has", "photos have")
        raise PatchvoteError(f"{where}: {count} no class, the first is {unlabelled[0]}. {how}")
    first_labels: dict[str, str | None] = {}
    for photo in photos:
        if (first := first_labels.setdefault(photo.name, photo.label)) != photo.label:
            raise PatchvoteError(
                f"{where}: {photo.name} has two classes, {first!r} and {photo.label!r}. Give every photo one class, "
                "and different photos different names."
            )
    classes = {str(photo.label) for photo in photos}
    if len(classes) < fewest:
        meant = None if path is None else folder_of_classes(path, photos)
        raise PatchvoteError(
            f"{where}: all photos are of one class, {classes.pop()!r}. At least two are needed: one folder per class."
            + (f" Did you mean {meant}, which holds folders?" if meant is not None else "")
        )
    return photos


def label_texts(names: Sequence[str], labels: Iterable[Any]) -> list[str]:
    """Return the labels of photos as text; none may be missing, and text and numbers may not be mixed."""
    if isinstance(labels, str) or not isinstance(labels, Iterable):
        raise PatchvoteError(f"labels must be a list with one class per photo, got {brief(labels)}.")
    given = list(labels)
    if len(given) != len(names):
        raise PatchvoteError(f"there are {counted(len(names), 'photo')} but {counted(len(given), 'label')}.")
    for name, label in zip(names, given, strict=True):
        if is_missing(label):
            raise PatchvoteError(f"{name} has no label: it is {brief(label)}.")
        if not isinstance(label, (str, int, float, np.generic)) or isinstance(label, str) != isinstance(given[0], str):
            # 1 and "1" would become one class.
            raise PatchvoteError(f"{name} has the label {brief(label)}: labels must all be text, or numbers.")
    return [str(label) for label in given]


def is_missing(label: Any) -> bool:
    """Whether a label is missing: None, NaN, or blank text."""
    if label is None or (isinstance(label, str) and not label.strip()):
        return True
    return isinstance(label, (float, np.floating)) and math.isnan(label)


def folder_of_classes(root: Path, photos: Iterable[Photo]) -> Path | None:
    """Return the folder that was probably meant if every class folder holds only folders, such as train and test."""
    counts: collections.Counter[str] = collections.Counter()
    for photo in photos:
        if photo.label is None or photo.name.count("/") < 2:
            return None
        counts[photo.label] += 1
    best = max(counts, key=lambda label: (label.lower().startswith("train"), counts[label]), default=None)
    return None if best is None else root / best


def similar_names(classes: Iterable[str]) -> str:
    """Return a hint about classes whose names differ only in case or surrounding spaces; empty if there are none."""
    groups: dict[str, list[str]] = {}
    for label in sorted(set(classes)):
        groups.setdefault(label.strip().casefold(), []).append(label)
    alike = [" and ".join(map(repr, group)) for group in groups.values() if len(group) > 1]
    return f"these classes differ in name only by case or spaces: {some(alike)}." if alike else ""


def near_path(path: Path) -> str:
    """Return a question after the file or folder that was probably meant by a name that does not exist, or ""."""
    try:
        names = os.listdir(path.parent)[:_MAX_NAMES]  # noqa: PTH208 - refuses remote paths
    except (OSError, TypeError, ValueError):
        return ""
    import difflib  # only a mistake needs it

    close = difflib.get_close_matches(path.name, names, n=1, cutoff=0.7)
    return f" Did you mean {path.parent / close[0]}?" if close else ""


def overlap(one: Path, other: Path) -> bool:
    """Whether a folder is the other, is inside of it, or contains it, whatever links or spellings lead to them."""
    first, second = one.resolve(), other.resolve()
    return first.is_relative_to(second) or second.is_relative_to(first)
