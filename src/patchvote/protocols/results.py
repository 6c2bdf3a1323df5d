"""Results: a folder with the finished cells of every protocol, and what is needed to reproduce them.

Each protocol has `cells.jsonl`, `made_with.json`, `splits.jsonl` and notes (see `cells` and `draws`). A finished cell
is written to a separate file and merged later; it is never computed again.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from ..errors import PatchvoteError
from ..utils.files import make_folder
from ..utils.locking import locked, stamp
from .cells import (
    CELLS,
    MADE_WITH,
    RUNNING,
    Kept,
    Run,
    folder_of,
    read_before,
    read_cells,
    read_running,
    running_file,
    write_cells,
    write_running,
)
from .draws import LISTS_BEFORE, Draw, check_draw, lists_before, read_draws, write_draws
from .draws import read_before as read_draw_before
from .names import current_settings
from .splits import Split

__all__ = ["Draw", "Results", "Run"]

_OTHER_VALUE = {"drawn": "splits drawn otherwise", "settings": "other settings", "fingerprints": "another network"}
_Reader = Callable[[Path], list[Kept]]
# Limits of memory. They change nothing where the training images are in memory, as in protocols by default; from a
# store that does not fit, they change the order of minibatches, and so the prototypes a little.
_RESOURCES = {"block", "memory"}


class Results:
    """A folder of results.

    Parameters
    ----------
    folder : Path
        Folder with one subfolder per protocol.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._files: dict[Path, tuple[Any, list[Kept]]] = {}  # cache: the stamp of each file, and its cells

    # --- reading ----------------------------------------------------------------------------------------------------

    def read(self, run: Run) -> dict[str, Any] | None:
        """Return a run with its names, its record and its finished cells; None where it has no cells."""
        cells = self._runs(run.protocol).get(run.key)
        return None if cells is None else _combined(cells)

    def done(self, run: Run) -> set[tuple[str | None, int]]:
        """Return the finished pairs and splits of a run."""
        return {kept.place for kept in self._runs(run.protocol).get(run.key, ())}

    def all(self, protocol: str) -> Iterator[tuple[Run, dict[str, Any]]]:
        """Read all runs of a protocol, in order of their names."""
        for cells in sorted(self._runs(protocol).values(), key=lambda cells: cells[0].run.file):
            yield cells[0].run, _combined(cells)

    def check(self, run: Run, made_with: dict[str, Any]) -> dict[str, Any] | None:
        """Return a run as `read` does, if it was made with the same settings.

        Raises
        ------
        PatchvoteError
            There are cells of this run that were made with other settings.
        """
        kept = self.read(run)
        if kept is None:
            return None
        for key, value in json.loads(json.dumps(made_with)).items():
            old = kept.get(key)
            if key == "settings" and isinstance(old, dict):
                old = current_settings(run.voter.partition("(")[0], old, value)
                # An older version may lack a setting, whose default then reproduces its behaviour.
                value = {name: current for name, current in value.items() if name in old}
                old, value = _of_the_method(old), _of_the_method(value)
            if old != value:
                raise PatchvoteError(
                    f"{self.folder / run.folder}: {run.words} was made with {_OTHER_VALUE.get(key, f'another {key}')}: "
                    f"{_difference(old, value)}. Move it away, or name another folder with --results."
                )
        return kept

    # --- writing ----------------------------------------------------------------------------------------------------

    def add(self, run: Run, made_with: dict[str, Any], cell: dict[str, Any]) -> None:
        """Store a finished cell, unless another process has finished it in the meantime.

        Raises
        ------
        PatchvoteError
            There are cells of this run that were made with other settings.
        """
        folder = self.folder / run.folder
        make_folder(folder)
        with locked(folder / CELLS):
            self.check(run, made_with)
            if (cell["pair"], cell["split"]) not in self.done(run):
                make_folder(folder / RUNNING)
                write_running(running_file(folder, run, cell["pair"], cell["split"]), Kept(run, made_with, cell))

    def keep_draws(self, protocol: str, draws: Mapping[Draw, Split]) -> None:
        """Store the photos of the splits of a protocol.

        Raises
        ------
        PatchvoteError
            A stored split has other photos.
        """
        if not draws:
            return
        folder = self.folder / folder_of(protocol)
        make_folder(folder)
        with locked(folder / CELLS):
            kept = read_draws(folder)
            new = {}
            for draw, split in draws.items():
                stored = kept.get(draw) or read_draw_before(folder, draw)
                if stored is None:
                    new[draw] = split
                else:
                    check_draw(folder, draw, stored, split)
            if new:
                write_draws(folder, kept | new)

    def fold(self, protocol: str) -> int:
        """Merge the separate files of cells, including those of the previous version, into `cells.jsonl`.

        Several processes may merge and add at once. If a process is killed here, nothing is lost: files are removed
        only after all their cells have been written.

        Returns
        -------
        int
            Number of cells that were merged.
        """
        folder = self.folder / folder_of(protocol)
        if not folder.is_dir():
            return 0
        with locked(folder / CELLS):
            sources = [path for path, _ in _separate_files(folder)]
            merged = len(self._read(folder / CELLS, read_cells))
            cells = [kept for run in self._runs(protocol).values() for kept in run]
            if sources:
                write_cells(folder / CELLS, cells)
            lists = _fold_draws(folder, {Draw(kept.run.setting, *kept.place) for kept in cells})
            _remove([*sources, *lists], folder)
            return len(cells) - merged

    # --- files ------------------------------------------------------------------------------------------------------

    def _runs(self, protocol: str) -> dict[str, list[Kept]]:
        """Return all cells of a protocol by run, without duplicates, in the order of pairs and splits."""
        folder = self.folder / folder_of(protocol)
        # The merged file is read last: a cell that is merged in the meantime is found there.
        separate = [kept for path, read in _separate_files(folder) for kept in self._read(path, read)]
        cells = [*self._read(folder / CELLS, read_cells), *separate]
        runs: dict[str, dict[tuple[str | None, int], Kept]] = {}
        for kept in cells:
            runs.setdefault(kept.run.key, {}).setdefault(kept.place, kept)
        return {
            key: sorted(places.values(), key=lambda kept: (kept.cell["pair"] or "", kept.cell["split"]))
            for key, places in runs.items()
        }

    def _read(self, path: Path, read: _Reader) -> list[Kept]:
        """Read the cells of a file, from the cache where it is unchanged; none where the file no longer exists."""
        now = stamp(path), stamp(path.with_name(MADE_WITH)) if path.name == CELLS else None
        if now[0] is None:
            self._files.pop(path, None)
            return []
        before = self._files.get(path)
        if before is None or before[0] != now:
            try:
                self._files[path] = now, read(path)
            except FileNotFoundError:
                return []
        return self._files[path][1]


def _separate_files(folder: Path) -> list[tuple[Path, _Reader]]:
    """Return the files of cells that are not merged, each with the function that reads it."""
    running = _json_files(folder / RUNNING)
    before = [path for path in _json_files(folder) if path.name != MADE_WITH]
    return [*((path, read_running) for path in running), *((path, read_before) for path in before)]


def _json_files(folder: Path) -> list[Path]:
    try:
        return sorted(path for path in folder.iterdir() if path.suffix == ".json" and not path.name.startswith("."))
    except (FileNotFoundError, NotADirectoryError):  # the process that merges the last cells removes their folder
        return []


def _fold_draws(folder: Path, draws: set[Draw]) -> list[Path]:
    """Merge the lists of these draws in the previous version into one file; return the files of these lists."""
    kept, lists = read_draws(folder), []
    new = {}
    for draw in sorted(draws, key=lambda draw: draw.stem):
        split = read_draw_before(folder, draw)
        if split is not None:
            if draw in kept:
                check_draw(folder, draw, kept[draw], split)
            new[draw] = split
            lists += lists_before(folder, draw)
    if new.keys() - kept.keys():
        write_draws(folder, kept | new)
    return lists


def _remove(files: list[Path], folder: Path) -> None:
    """Remove files below a folder, and the folders of separate cells and lists if they are empty."""
    for path in files:
        path.unlink(missing_ok=True)
    for name in (RUNNING, LISTS_BEFORE):
        with contextlib.suppress(OSError):  # there is no such folder, or it is not empty
            (folder / name).rmdir()


def _combined(cells: list[Kept]) -> dict[str, Any]:
    """Return the cells of a run with the names and the record that they share."""
    first = cells[0]
    return {**dataclasses.asdict(first.run), **first.made_with, "cells": [kept.cell for kept in cells]}


def _difference(old: Any, new: Any) -> str:
    if isinstance(old, dict) and isinstance(new, dict):
        changed = [key for key in sorted({*old, *new}) if old.get(key) != new.get(key)]
        return ", ".join(f"{key} was {old.get(key)!r}, is {new.get(key)!r}" for key in changed[:4])
    return f"it was {old!r}, is {new!r}"


def _of_the_method(settings: dict[str, Any]) -> dict[str, Any]:
    """Return the settings without those that only limit memory."""
    return {name: value for name, value in settings.items() if name.split("__")[-1] not in _RESOURCES}
