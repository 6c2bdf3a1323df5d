"""Workspaces on disk: what a user taught is complete after every request, whatever ends the server.

    workspaces/ID/state.json             classes, photos, answers: replaced as a whole, and never half written
    workspaces/ID/photos/DIGEST          content of a photo
    workspaces/ID/thumbnails/DIGEST      small JPEG
    workspaces/ID/runs/RUN/              model, report and names of one learning
    workspaces/ID/bags/                  cache of bags

Ids are random, and files are named by their content, so that no name from a client is ever part of a path. The state
names the run whose model is the present one: files of a run that was not finished, and photos that the state does not
name, are removed when the workspace is next opened.
"""

from __future__ import annotations

import collections
import contextlib
import json
import re
import secrets
import shutil
import threading
import time
import weakref
from collections.abc import Iterable, Iterator
from pathlib import Path

from ..photos.find import Photo
from ..utils.files import write_atomically
from ..utils.reading import read_bytes
from .problems import Problem, missing
from .records import PhotoRecord, State
from .settings import Limits

_ID = re.compile(r"[0-9a-f]{32}")
_MAX_STATE = 1 << 28  # bytes of state.json; far more than the limits of a workspace allow
_OPEN = 64  # workspaces that are kept in memory
_EMPTY_SECONDS = 86_400.0  # after which a workspace without photos and model is removed


class Workspace:
    """One workspace: its state in memory, and its folder.

    Use `change` to change the state: it holds the lock, and writes the state at the end.
    """

    def __init__(self, folder: Path, state: State) -> None:
        self.folder, self.state = folder, state
        self.lock = threading.RLock()
        self.is_removed = False
        self._making: set[str] = set()  # runs that are neither complete nor given up

    @property
    def id(self) -> str:
        """Id of the workspace."""
        return self.state.id

    @contextlib.contextmanager
    def change(self) -> Iterator[State]:
        """Yield the state to be changed; an error leaves the workspace as it was."""
        with self.lock:
            if self.is_removed:
                raise missing("workspace")
            changed = State.from_plain(self.state.to_plain())
            try:
                yield changed
                changed.version += 1
                write_atomically(self.folder / "state.json", [json.dumps(changed.to_plain()).encode()])
            except BaseException:
                self.remove_files(changed.photos)  # those that were to be added
                raise
            self.state = changed

    # --- files ------------------------------------------------------------------------------------------------------

    def thumbnail_file(self, photo: str) -> Path:
        """Return the file of a photo's thumbnail."""
        return self.folder / "thumbnails" / self.state.photo(photo).id

    def photo(self, record: PhotoRecord) -> Photo:
        """Return a photo of the workspace, for a model."""
        return Photo(record.name, self.folder / "photos" / record.id)

    def put(self, digest: str, content: bytes, thumbnail: bytes) -> None:
        """Write the files of a photo, before the state names it."""
        for part, data in (("photos", content), ("thumbnails", thumbnail)):
            path = self.folder / part / digest
            path.parent.mkdir(exist_ok=True)
            if not path.exists():
                write_atomically(path, [data])

    def remove_files(self, photos: Iterable[str]) -> None:
        """Remove the files of photos that the state does not name any more."""
        with self.lock:
            for photo in photos:
                for part in ("photos", "thumbnails"):
                    if photo not in self.state.photos:
                        (self.folder / part / photo).unlink(missing_ok=True)

    @property
    def bags(self) -> Path:
        """Folder of the cache of bags."""
        return self.folder / "bags"

    # --- runs -------------------------------------------------------------------------------------------------------

    def new_run(self) -> Path:
        """Make the folder of a new run, which stays until `commit_run` or `discard_run`."""
        with self.lock:
            if self.is_removed:
                raise missing("workspace")
            path = self.folder / "runs" / new_id()
            path.mkdir(parents=True)
            self._making.add(path.name)
            return path

    def discard_run(self, run: Path) -> None:
        """Remove a run that does not become the present one."""
        with self.lock:
            self._making.discard(run.name)
            shutil.rmtree(run, ignore_errors=True)

    def run_folder(self, run: str | None) -> Path | None:
        """Return the folder of a run, if there is one."""
        return None if run is None else self.folder / "runs" / run

    @property
    def model_file(self) -> Path | None:
        """File of the present model, if there is one."""
        folder = self.run_folder(self.state.run)
        return None if folder is None else folder / "model.patchvote"

    def report(self) -> dict[str, object] | None:
        """Return the report of the run whose model is the present one; None if it was opened from a file."""
        return self._of_run("report.json")

    @property
    def has_report(self) -> bool:
        """Whether there is a report of the run whose model is the present one."""
        folder = self.run_folder(self.state.run)
        return folder is not None and (folder / "report.json").exists()

    def trained_photos(self) -> dict[str, object]:
        """Return the ids of the photos that the present model learned from, by the names that it knows them by."""
        return self._of_run("names.json") or {}

    def _of_run(self, name: str) -> dict[str, object] | None:
        folder = self.run_folder(self.state.run)
        if folder is None or not (folder / name).exists():
            return None
        try:
            return dict(json.loads(read_bytes(folder / name, _MAX_STATE)))
        except (ValueError, TypeError, RecursionError):  # damaged on the disk: learning again makes another
            return None

    def commit_run(self, run: Path, taught: str, *, opened: bool = False, classes: Iterable[str] = ()) -> None:
        """Make the model of a complete run the present one, and remove the runs that are not needed any more.

        Parameters
        ----------
        run : Path
            Folder of the run.
        taught : str
            Fingerprint of the labelled photos that it learned from.
        opened : bool
            Whether its model came from a file: learning then adds to it.
        classes : iterable of str
            Names of classes that the workspace gets if they are missing.
        """
        with self.change() as state:
            state.run, state.taught = run.name, taught
            state.base = run.name if opened else state.base
            state.add_classes(classes)
        self._making.discard(run.name)
        self.sweep_runs()

    def sweep_runs(self) -> None:
        """Remove runs that are neither the present one nor the base, nor being made."""
        with self.lock:
            wanted = {self.state.run, self.state.base, *self._making}
            for path in (self.folder / "runs").glob("*"):
                if path.name not in wanted:
                    shutil.rmtree(path, ignore_errors=True)


class Workspaces:
    """All workspaces of a server, which alone uses their folder.

    Parameters
    ----------
    folder : Path
        Folder of the workspaces.
    limits : Limits
        Limits of the server.
    """

    def __init__(self, folder: Path, limits: Limits) -> None:
        self._folder, self._limits = folder, limits
        self._lock = threading.Lock()
        self._open: collections.OrderedDict[str, Workspace] = collections.OrderedDict()
        # One object per workspace: whoever still uses one that is not kept any more finds it here.
        self._alive: weakref.WeakValueDictionary[str, Workspace] = weakref.WeakValueDictionary()
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._sweep()

    def create(self, title: str = "") -> Workspace:
        """Make an empty workspace.

        Raises
        ------
        Problem
            There are too many.
        """
        with self._lock:
            if sum(1 for _ in self._folder.iterdir()) >= self._limits.workspaces:
                raise Problem(413, "full", "the server has no room for another workspace. Remove some.")
            name = new_id()
            workspace = Workspace(self._folder / name, State(name, title))
            workspace.folder.mkdir(mode=0o700)
            self._remember(workspace)
        try:
            with workspace.change():
                pass  # its first state is written
        except BaseException:
            self.remove(workspace)  # or its folder would count until the server is started again
            raise
        return workspace

    def get(self, name: str) -> Workspace:
        """Return a workspace by its id.

        Raises
        ------
        Problem
            There is no such workspace.
        """
        if not _ID.fullmatch(name):
            raise missing("workspace")
        with self._lock:
            known = self._alive.get(name)
            if known is not None:
                self._remember(known)
                return known
            folder = self._folder / name
            if not (folder / "state.json").exists():
                raise missing("workspace")
            workspace = _opened(folder)
            self._remember(workspace)
            return workspace

    def remove(self, workspace: Workspace) -> None:
        """Remove a workspace and everything in it."""
        with workspace.lock:
            with self._lock:
                workspace.is_removed = True
                self._open.pop(workspace.id, None)
                self._alive.pop(workspace.id, None)
                (workspace.folder / "state.json").unlink(missing_ok=True)  # from now on, it does not exist
            shutil.rmtree(workspace.folder, ignore_errors=True)  # may take long: other workspaces do not wait for it

    def remove_damaged(self, name: str) -> None:
        """Remove a workspace that `get` finds damaged: nobody has it open, and it cannot be opened."""
        with self._lock:
            if _ID.fullmatch(name) and name not in self._alive:
                (self._folder / name / "state.json").unlink(missing_ok=True)
                shutil.rmtree(self._folder / name, ignore_errors=True)

    def _remember(self, workspace: Workspace) -> None:
        self._alive[workspace.id] = self._open[workspace.id] = workspace
        self._open.move_to_end(workspace.id)
        while len(self._open) > _OPEN:
            self._open.popitem(last=False)

    def _sweep(self) -> None:
        """Remove folders without a state, which a killed server left, and old workspaces without photos and model."""
        for folder in self._folder.iterdir():
            if not _ID.fullmatch(folder.name):
                continue
            with contextlib.suppress(OSError):
                state = folder / "state.json"
                is_old = time.time() - folder.stat().st_mtime > _EMPTY_SECONDS
                is_empty = not (folder / "photos").exists() and not (folder / "runs").exists()
                if not state.exists() or (is_old and is_empty):
                    shutil.rmtree(folder, ignore_errors=True)


def new_id() -> str:
    """Return an id that nobody can guess."""
    return secrets.token_hex(16)


def _opened(folder: Path) -> Workspace:
    """Read a workspace, and remove what was not finished when the server last ended."""
    try:
        state = State.from_plain(json.loads(read_bytes(folder / "state.json", _MAX_STATE)))
    except (ValueError, TypeError, KeyError, RecursionError):
        message = (
            "what this workspace remembers is damaged on the disk. Its folder holds its photos until it is removed."
        )
        raise Problem(500, "damaged", message) from None
    if state.id != folder.name:  # a copy of another
        raise missing("workspace")
    workspace = Workspace(folder, state)
    workspace.sweep_runs()
    for part in ("photos", "thumbnails"):
        for path in (folder / part).glob("[0-9a-f]*"):
            if path.name not in state.photos:
                path.unlink(missing_ok=True)
    return workspace
