"""Workspaces on disk: what a user taught is complete after every request, whatever ends the server.

    workspaces/ID/state.json             checksum; classes, photos, answers: replaced as a whole, and never half written
    workspaces/ID/state-before.json      the same before the last change: it is used if the state is damaged
    workspaces/ID/photos/DIGEST          content of a photo
    workspaces/ID/thumbnails/DIGEST      small JPEG
    workspaces/ID/runs/RUN/              model, report and names of one learning
    workspaces/ID/bags/                  cache of bags
    workspaces/ID/aside/                 files that the state did not name when the workspace was opened

Ids are random, and files are named by their content, so that no name from a client is ever part of a path. A request
alone decides what is removed: what the state does not name when a workspace is opened is set aside, and a workspace is
removed under another name, so that a folder without a state is never taken for one that was to be removed.
"""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import hashlib
import json
import logging
import re
import secrets
import shutil
import threading
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from ..photos.find import Photo
from ..utils.files import file_digest, read_bytes, write_atomically
from ..voters.scorer import MAX_NAME
from ..voters.votes import NONE
from .problems import Problem, missing
from .settings import Limits

_LOG = logging.getLogger(__name__)
_ID = re.compile(r"[0-9a-f]{32}")
_MAX_STATE = 1 << 28  # bytes of state.json; far more than the limits of a workspace allow
_EMPTY_SECONDS = 86_400.0  # after which a workspace without photos and model is removed
_REMOVED = "removed-"  # first part of the name of a workspace that is being removed
_STATES = ("state.json", "state-before.json")


@dataclasses.dataclass
class PhotoRecord:
    """A photo: its digest, the name to show, its class, its size, and the answer of a model.

    `answer` has the fields of `models.answers.row` and `run`, the run of learning whose model gave it.
    """

    id: str
    name: str
    label: str | None
    width: int
    height: int
    bytes: int
    answer: dict[str, Any] | None = None


@dataclasses.dataclass
class State:
    """All that a workspace remembers, besides the files of photos and models."""

    id: str
    title: str = ""
    version: int = 0  # number of changes so far
    made: int = 0  # classes that were ever made: ids are not used twice
    classes: dict[str, str] = dataclasses.field(default_factory=dict)  # names by id, in the order in which they came
    photos: dict[str, PhotoRecord] = dataclasses.field(default_factory=dict)  # by id, in the order in which they came
    run: str | None = None  # whose model is the present one
    base: str | None = None  # run of the model that was opened from a file; learning adds to it
    learned: str = ""  # fingerprint of the labelled photos that the present model learned from

    def name_of(self, label: str) -> str:
        """Return the name of a class."""
        if label not in self.classes:
            raise missing("class")
        return self.classes[label]

    def make_class(self, name: str, most: int) -> str:
        """Make a class, and return its id."""
        name = self._usable(name)
        if len(self.classes) >= most:
            raise Problem(413, "full", f"a workspace has at most {most:,} classes.")
        self.add_classes([name])
        return f"c{self.made}"

    def add_classes(self, names: Iterable[str]) -> None:
        """Make classes of a model that are missing; their names are as the model has them."""
        known = set(self.classes.values())
        for name in dict.fromkeys(names):
            if name not in known:
                self.made += 1
                self.classes[f"c{self.made}"] = name

    def rename(self, label: str, name: str) -> None:
        """Rename a class."""
        if self.name_of(label) != name.strip():
            self.classes[label] = self._usable(name)

    def remove_class(self, label: str) -> list[PhotoRecord]:
        """Remove a class, and return its photos, which are unlabelled now."""
        self.name_of(label)
        del self.classes[label]
        photos = [photo for photo in self.photos.values() if photo.label == label]
        for photo in photos:
            photo.label = None
        return photos

    def _usable(self, name: str) -> str:
        name = name.strip()
        if not name or len(name) > MAX_NAME or not name.isprintable():
            raise Problem(422, "invalid", f"the name of a class is a line of 1 to {MAX_NAME:,} characters.")
        if name.casefold() == NONE:
            raise Problem(422, "invalid", f'no class can be called "{NONE}": it is the answer for strange photos.')
        if name in self.classes.values():
            raise Problem(409, "conflict", "there is a class of this name already.")
        return name

    def photo(self, photo: str) -> PhotoRecord:
        """Return a photo."""
        if photo not in self.photos:
            raise missing("photo")
        return self.photos[photo]

    def some(self, photos: Iterable[str]) -> list[PhotoRecord]:
        """Return photos by their ids, each once; all have to exist."""
        return [self.photo(photo) for photo in dict.fromkeys(photos)]

    @property
    def labelled(self) -> list[PhotoRecord]:
        """Photos that have a class."""
        return [photo for photo in self.photos.values() if photo.label is not None]

    @property
    def unlabelled(self) -> list[PhotoRecord]:
        """Photos that have no class."""
        return [photo for photo in self.photos.values() if photo.label is None]

    @property
    def answered(self) -> list[PhotoRecord]:
        """Photos that have an answer."""
        return [photo for photo in self.photos.values() if photo.answer is not None]

    def fingerprint(self) -> str:
        """Return a value that changes whenever the labelled photos or the names of their classes do."""
        lines = sorted(f"{photo.id} {self.classes[str(photo.label)]}" for photo in self.labelled)
        return hashlib.sha256("\n".join(lines).encode("utf-8", "surrogatepass")).hexdigest()


class Workspace:
    """One workspace: its state in memory, which `change` changes, and its folder."""

    def __init__(self, folder: Path, state: State) -> None:
        self.folder, self.state = folder, state
        self.lock = threading.RLock()
        self.is_removed = False

    @property
    def id(self) -> str:
        """Id of the workspace."""
        return self.state.id

    @contextlib.contextmanager
    def change(self) -> Iterator[State]:
        """Yield the state to be changed, and write it at the end; an error leaves the workspace as it was."""
        with self.lock:
            if self.is_removed:
                raise missing("workspace")
            changed = copy.deepcopy(self.state)
            try:
                yield changed
                changed.version += 1
                self._write(changed)
            except BaseException:
                self.remove_files(changed.photos)  # those that were to be added
                raise
            self.state = changed

    def _write(self, state: State) -> None:
        """Write a state; the present one is kept beside it."""
        path, before = (self.folder / name for name in _STATES)
        if path.exists():
            write_atomically(before, [path.read_bytes()])
        content = json.dumps(dataclasses.asdict(state)).encode()
        write_atomically(path, [hashlib.sha256(content).hexdigest().encode(), b"\n", content])

    def photo(self, record: PhotoRecord) -> Photo:
        """Return a photo of the workspace, for a model."""
        return Photo(record.name, self.folder / "photos" / record.id)

    def put(self, digest: str, content: bytes, thumbnail: bytes) -> None:
        """Write the files of a photo, before the state names it."""
        for part, data in (("photos", content), ("thumbnails", thumbnail)):
            path = self.folder / part / digest
            path.parent.mkdir(exist_ok=True)
            if not path.exists() or (part == "photos" and file_digest(path) != digest):  # damaged on the disk
                write_atomically(path, [data])

    def remove_files(self, photos: Iterable[str]) -> None:
        """Remove the files of photos that the state does not name any more."""
        with self.lock:
            for photo in photos:
                for part in ("photos", "thumbnails"):
                    if photo not in self.state.photos:
                        (self.folder / part / photo).unlink(missing_ok=True)

    @contextlib.contextmanager
    def new_run(self) -> Iterator[Path]:
        """Make the folder of a new run; an error removes it, otherwise it stays."""
        with self.lock:
            if self.is_removed:
                raise missing("workspace")
            path = self.folder / "runs" / new_id()
            path.mkdir(parents=True)
        try:
            yield path
        except BaseException:
            shutil.rmtree(path, ignore_errors=True)
            raise

    def commit_run(self, run: Path, learned: str, *, opened: bool = False, classes: Iterable[str] = ()) -> None:
        """Make the model of a complete run the present one, and remove the runs that it replaces.

        `learned` is the fingerprint of the labelled photos that it learned from. If it was `opened` from a file,
        learning then adds to it. The workspace gets those `classes` that are missing.
        """
        with self.lock:
            before = {self.state.run, self.state.base}
            with self.change() as state:
                state.run, state.learned = run.name, learned
                state.base = run.name if opened else state.base
                state.add_classes(classes)
            for name in before - {None, state.run, state.base}:
                shutil.rmtree(self.folder / "runs" / str(name), ignore_errors=True)

    def model_of(self, run: str | None) -> Path | None:
        """Return the model file of a run, if there is one."""
        return None if run is None else self.folder / "runs" / run / "model.patchvote"

    def report_file(self, name: str = "report.json") -> Path | None:
        """Return a file that was written by the run of the present model; none if that was opened from a file."""
        path = self.folder / "runs" / str(self.state.run) / name
        return path if path.exists() else None

    def read_report(self, name: str = "report.json") -> dict[str, Any] | None:
        """Return the content of such a file, unless it is damaged: learning again makes another."""
        path = self.report_file(name)
        with contextlib.suppress(ValueError, TypeError, RecursionError):
            return None if path is None else dict(json.loads(read_bytes(path, _MAX_STATE)))
        return None


class Workspaces:
    """All workspaces of a server, which alone uses their folder."""

    def __init__(self, folder: Path, limits: Limits) -> None:
        self._folder, self._limits = folder, limits
        self._lock = threading.Lock()
        self._open: dict[str, Workspace] = {}  # those that were asked for since the server started
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._sweep()

    def create(self, title: str = "") -> Workspace:
        """Make an empty workspace."""
        with self._lock:
            if sum(1 for _ in self._folder.iterdir()) >= self._limits.workspaces:
                raise Problem(413, "full", "the server has no room for another workspace. Remove some.")
            name = new_id()
            workspace = self._open[name] = Workspace(self._folder / name, State(name, title))
            workspace.folder.mkdir(mode=0o700)
        try:
            with workspace.change():
                pass  # its first state is written
        except BaseException:
            self.remove(name)  # or its folder would count until the server is started again
            raise
        return workspace

    def get(self, name: str) -> Workspace:
        """Return a workspace by its id."""
        with self._lock:
            if name not in self._open:
                folder = self._folder / name
                if not _ID.fullmatch(name) or not any((folder / state).exists() for state in _STATES):
                    raise missing("workspace")
                self._open[name] = _opened(folder)
            return self._open[name]

    def remove(self, name: str) -> None:
        """Remove a workspace and everything in it, also one that `get` finds damaged."""
        workspace = self._open.get(name)
        with contextlib.nullcontext() if workspace is None else workspace.lock, self._lock:
            if workspace is not None:
                workspace.is_removed = True  # from now on, nobody changes it
            self._open.pop(name, None)
            removed = self._folder / f"{_REMOVED}{name}"
            with contextlib.suppress(FileNotFoundError):
                (self._folder / name).rename(removed)  # from now on, it does not exist
        shutil.rmtree(removed, ignore_errors=True)  # may take long: other workspaces do not wait for it

    def _sweep(self) -> None:
        """Remove workspaces whose removal was not finished, and old ones without photos and model."""
        for folder in self._folder.iterdir():
            with contextlib.suppress(OSError):
                is_old = time.time() - folder.stat().st_mtime > _EMPTY_SECONDS
                is_empty = {path.name for path in folder.iterdir()} <= {*_STATES, "bags"}
                if folder.name.startswith(_REMOVED) or (_ID.fullmatch(folder.name) and is_old and is_empty):
                    shutil.rmtree(folder, ignore_errors=True)
                elif _ID.fullmatch(folder.name):
                    folder.rmdir()  # if it is empty: a workspace that was not finished


def new_id() -> str:
    """Return an id that nobody can guess."""
    return secrets.token_hex(16)


def _opened(folder: Path) -> Workspace:
    """Read a workspace, and set aside what its state does not name, since a request or a learning was not finished."""
    state = _read(folder / _STATES[0])
    if state is None and (state := _read(folder / _STATES[1])) is not None:
        _set_aside(folder, _STATES[0])  # or it would be kept in the place of the good one
    if state is None:
        words = "what this workspace remembers is damaged on the disk. Its folder holds its photos until it is removed."
        raise Problem(500, "damaged", words)
    if state.id != folder.name:  # a copy of another
        raise missing("workspace")
    for part, named in (("photos", state.photos), ("thumbnails", state.photos), ("runs", (state.run, state.base))):
        for path in (folder / part).glob("[0-9a-f]*"):
            if part == "runs" and not (path / "model.patchvote").exists():
                shutil.rmtree(path)  # a learning that was not finished
            elif path.name not in named:
                _set_aside(folder, f"{part}/{path.name}")
    return Workspace(folder, state)


def _set_aside(folder: Path, name: str) -> None:
    """Move a file or folder of a workspace into its folder `aside`, and list it in the log."""
    with contextlib.suppress(FileNotFoundError):
        target = folder / "aside" / name
        target.parent.mkdir(parents=True, exist_ok=True)
        (folder / name).replace(target)
        _LOG.warning("workspace %s: %s was set aside, into its folder aside/", folder.name, name)


def _read(path: Path) -> State | None:
    """Read a state; None if it is missing or damaged."""
    try:
        checksum, content = read_bytes(path, _MAX_STATE).split(b"\n", 1)
        if hashlib.sha256(content).hexdigest().encode() != checksum:
            return None
        values = json.loads(content)
        photos = {photo: PhotoRecord(**record) for photo, record in values["photos"].items()}
        return State(**values | {"photos": photos})
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None
