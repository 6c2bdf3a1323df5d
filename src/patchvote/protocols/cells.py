"""Cells on disk: one line per cell in `cells.jsonl`, and what cells were made with in `made_with.json`.

A run is a setting, a voter, a recipe and a network of a protocol; its cells are the splits (and pairs of domains). A
cell that was just finished is a file of its own in `running/`, so that several processes can work at once, until it is
folded in. The version before kept one file per run, which is read as well.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from ..errors import PatchvoteError
from ..utils.files import write_file
from ..utils.reading import read_text
from .json_lines import read_lines
from .names import same_spelling

CELLS, MADE_WITH, RUNNING = "cells.jsonl", "made_with.json", "running"
FORMAT = 2
_FORMAT_BEFORE = 1
_MAX_BYTES = 1 << 30  # of one file; all cells of Office-Caltech have 6 MB
_HERE = ("versions", "machine", "commit")  # what may differ between cells of one run


@dataclasses.dataclass(frozen=True, order=True)
class Run:
    """What all its cells have in common.

    Parameters
    ----------
    protocol, setting, voter, recipe, network : str
        Their names.
    """

    protocol: str
    setting: str
    voter: str
    recipe: str
    network: str

    @property
    def folder(self) -> str:
        """Name of the folder of its protocol."""
        return folder_of(self.protocol)

    @functools.cached_property  # asked for once per cell whenever results are read
    def file(self) -> str:
        """Name of the file that the version before kept the run in; runs are listed in the order of these names.

        Examples
        --------
        >>> Run("scene15", "random", "snbnl(q=1)", "dense", "efficientnet-lite0").file
        'scene15/random-snbnl-q=1-dense-efficientnet-lite0.json'
        """
        return f"{self.folder}/{'-'.join(map(_slug, dataclasses.astuple(self)[1:]))}.json"

    @functools.cached_property
    def key(self) -> str:
        """What is equal for equal runs, whatever the names of a voter's settings were when it was made."""
        return dataclasses.replace(self, voter=same_spelling(self.voter)).file

    @property
    def words(self) -> str:
        """The run in words."""
        return ", ".join(dataclasses.astuple(self)[1:])


@dataclasses.dataclass(frozen=True)
class Kept:
    """A kept cell.

    Parameters
    ----------
    run : Run
        What it belongs to.
    made_with : dict
        What all cells of the run are made with.
    cell : dict
        Its numbers, versions and machine.
    """

    run: Run
    made_with: dict[str, Any]
    cell: dict[str, Any]

    @property
    def place(self) -> tuple[str | None, int]:
        """Pair and split."""
        return self.cell["pair"], self.cell["split"]


def folder_of(protocol: str) -> str:
    """Return the name of the folder of a protocol's results."""
    return _slug(protocol)


def _slug(name: str) -> str:
    return re.sub(r"[^\w.+=-]+", "-", name).strip("-")


# --- cells that are folded in -------------------------------------------------------------------------------------


def read_cells(path: Path) -> list[Kept]:
    """Read a file of cells, and what they were made with from the file beside it.

    Raises
    ------
    PatchvoteError
        One of the files is damaged.
    """
    # The records are read after the cells: whoever writes both writes the records first, so that no cell lacks its own.
    cells = read_lines(path, dict, "not a result of a protocol", _MAX_BYTES)
    records = read_records(path.with_name(MADE_WITH))
    try:
        return [_kept(cell, records[cell.pop("made_with")]) for cell in cells]
    except (KeyError, TypeError, AttributeError) as error:
        raise _no_result(path, error) from None


def read_records(path: Path) -> dict[str, dict[str, Any]]:
    """Read what cells were made with, by short hash."""
    try:
        records: dict[str, dict[str, Any]] = _read(path, FORMAT)["records"]
    except FileNotFoundError:
        raise PatchvoteError(f"{path} is missing: it holds what the cells beside it were made with.") from None
    return records


def write_cells(path: Path, cells: Iterable[Kept]) -> None:
    """Write a file of cells, in the order of runs, pairs and splits, and what they were made with beside it."""
    records, lines = {}, []
    for kept in sorted(cells, key=lambda kept: (kept.run.file, kept.cell["pair"] or "", kept.cell["split"])):
        record = kept.made_with | {key: kept.cell[key] for key in _HERE if key in kept.cell}
        name = hashlib.sha256(json.dumps(record, sort_keys=True).encode()).hexdigest()[:12]
        records[name] = record
        numbers = {key: value for key, value in kept.cell.items() if key not in _HERE}
        lines.append(json.dumps(dataclasses.asdict(kept.run) | {"made_with": name} | numbers))
    head = f'{{\n "format": {FORMAT},\n "records": {{\n'
    body = ",\n".join(f"  {json.dumps(name)}: {json.dumps(record)}" for name, record in sorted(records.items()))
    write_file(path.with_name(MADE_WITH), [f"{head}{body}\n }}\n}}\n".encode()])
    write_file(path, [f"{line}\n".encode() for line in lines])


# --- cells that are files of their own ------------------------------------------------------------------------------


def running_file(folder: Path, run: Run, pair: str | None, split: int) -> Path:
    """Return the file of a cell that is not yet folded in: readable, and of this cell alone."""
    words = "-".join(filter(None, [_slug(run.setting), _slug(run.voter), pair and _slug(pair), f"{split:02d}"]))
    whole = json.dumps([run.key, pair, split])
    return folder / RUNNING / f"{words[:120]}-{hashlib.sha256(whole.encode()).hexdigest()[:12]}.json"


def read_running(path: Path) -> list[Kept]:
    """Read a cell that is not yet folded in."""
    content = _read(path, FORMAT)
    try:
        return [_kept(content["cell"], content["made_with"])]
    except (KeyError, TypeError, AttributeError) as error:
        raise _no_result(path, error) from None


def write_running(path: Path, kept: Kept) -> None:
    """Write a cell that is not yet folded in."""
    content = {"format": FORMAT, "made_with": kept.made_with, "cell": dataclasses.asdict(kept.run) | kept.cell}
    write_file(path, [json.dumps(content).encode(), b"\n"])


def read_before(path: Path) -> list[Kept]:
    """Read the file of a run as the version before wrote it."""
    content = _read(path, _FORMAT_BEFORE)
    try:
        run, cells = _run(content), content.pop("cells")
        made_with = {key: value for key, value in content.items() if key not in ("format", *_RUN)}
        kept = [Kept(run, made_with, cell) for cell in cells]
        _check(kept)
    except (KeyError, TypeError, AttributeError) as error:
        raise _no_result(path, error) from None
    return kept


# --- what all of them share -----------------------------------------------------------------------------------------

_RUN = tuple(field.name for field in dataclasses.fields(Run))


def _kept(cell: dict[str, Any], record: dict[str, Any]) -> Kept:
    """Put a cell and what it was made with together again."""
    run = _run(cell)
    made_with = {key: value for key, value in record.items() if key not in _HERE}
    numbers = {key: value for key, value in cell.items() if key not in _RUN}
    kept = Kept(run, made_with, numbers | {key: record[key] for key in _HERE if key in record})
    _check([kept])
    return kept


def _run(content: dict[str, Any]) -> Run:
    names = [content[name] for name in _RUN]
    if not all(isinstance(name, str) for name in names):
        raise TypeError("a name is no text")
    return _make_run(*names)


@functools.lru_cache(maxsize=1024)
def _make_run(*names: str) -> Run:
    return Run(*names)  # the same object for all cells of a run


def _check(cells: Sequence[Kept]) -> None:
    for kept in cells:
        pair, split = kept.place
        if not isinstance(pair, str | None) or not isinstance(split, int):
            raise TypeError("pair or split is of a wrong type")


def _read(path: Path, expected: int) -> dict[str, Any]:
    try:
        content: dict[str, Any] = json.loads(read_text(path, _MAX_BYTES))
        _check_format(path, content, expected)
    except FileNotFoundError:
        raise
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise _no_result(path, error) from None
    return content


def _check_format(path: Path, content: dict[str, Any], expected: int) -> None:
    if content["format"] != expected:
        raise PatchvoteError(f"{path} is of format {content['format']}, and this patchvote reads format {expected}.")


def _no_result(path: Path, error: Exception) -> PatchvoteError:
    return PatchvoteError(f"{path} is not a result of a protocol ({error!r}). Move it away.")
