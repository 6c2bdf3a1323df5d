"""Cells on disk: one line per cell in `cells.jsonl`, and the records of how they were made in `made_with.json`.

A run is a setting, a voter, a recipe and a network of a protocol; its cells are the splits (and pairs of domains). A
newly finished cell is a separate file in `running/`, so that several processes can work at once; later it is merged
into `cells.jsonl`. The previous version wrote one file per run, which can still be read.
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
_PREVIOUS_FORMAT = 1
_MAX_BYTES = 1 << 30  # per file; all cells of Office-Caltech have 6 MB
_PER_CELL = ("versions", "machine", "commit")  # parts of a record that may differ between cells of one run


@dataclasses.dataclass(frozen=True, order=True)
class Run:
    """A setting, a voter, a recipe and a network of a protocol.

    Parameters
    ----------
    protocol, setting, voter, recipe, network : str
        Names that all cells of the run share.
    """

    protocol: str
    setting: str
    voter: str
    recipe: str
    network: str

    @property
    def folder(self) -> str:
        """Name of the folder of the protocol."""
        return folder_of(self.protocol)

    @functools.cached_property  # used once per cell whenever results are read
    def file(self) -> str:
        """Name of the file of the run in the previous version; runs are listed in the order of these names.

        Examples
        --------
        >>> Run("scene15", "random", "snbnl(q=1)", "dense", "efficientnet-lite0").file
        'scene15/random-snbnl-q=1-dense-efficientnet-lite0.json'
        """
        return f"{self.folder}/{'-'.join(map(_slug, dataclasses.astuple(self)[1:]))}.json"

    @functools.cached_property
    def key(self) -> str:
        """Key of the run: the same for all versions, even if settings of its voter have been renamed."""
        return dataclasses.replace(self, voter=same_spelling(self.voter)).file

    @property
    def words(self) -> str:
        """Names of the run, for messages."""
        return ", ".join(dataclasses.astuple(self)[1:])


@dataclasses.dataclass(frozen=True)
class Kept:
    """A stored cell.

    Parameters
    ----------
    run : Run
        Run that the cell belongs to.
    made_with : dict
        Settings, sampling and fingerprints, the same for all cells of the run.
    cell : dict
        Numbers of the cell, with versions and machine.
    """

    run: Run
    made_with: dict[str, Any]
    cell: dict[str, Any]

    @property
    def place(self) -> tuple[str | None, int]:
        """Pair of domains, and split."""
        return self.cell["pair"], self.cell["split"]


def folder_of(protocol: str) -> str:
    """Return the name of the folder of a protocol's results."""
    return _slug(protocol)


def _slug(name: str) -> str:
    return re.sub(r"[^\w.+=-]+", "-", name).strip("-")


# --- merged cells -------------------------------------------------------------------------------------------------


def read_cells(path: Path) -> list[Kept]:
    """Read a file of cells, and their records from the file beside it.

    Raises
    ------
    PatchvoteError
        One of the files is damaged.
    """
    # A writer writes the records first. They are read last, so that no cell is without its record.
    cells = read_lines(path, dict, "not a result of a protocol", _MAX_BYTES)
    records = read_records(path.with_name(MADE_WITH))
    try:
        return [_kept(cell, records[cell.pop("made_with")]) for cell in cells]
    except (KeyError, TypeError, AttributeError) as error:
        raise _damaged(path, error) from None


def read_records(path: Path) -> dict[str, dict[str, Any]]:
    """Read the records of how cells were made, by short hash."""
    try:
        records: dict[str, dict[str, Any]] = _read(path, FORMAT)["records"]
    except FileNotFoundError:
        raise PatchvoteError(f"{path} is missing: it records how the cells beside it were made.") from None
    except KeyError as error:
        raise _damaged(path, error) from None
    return records


def write_cells(path: Path, cells: Iterable[Kept]) -> None:
    """Write a file of cells, in the order of runs, pairs and splits, and their records beside it."""
    records, lines = {}, []
    for kept in sorted(cells, key=lambda kept: (kept.run.file, kept.cell["pair"] or "", kept.cell["split"])):
        record = kept.made_with | {key: kept.cell[key] for key in _PER_CELL if key in kept.cell}
        name = hashlib.sha256(json.dumps(record, sort_keys=True).encode()).hexdigest()[:12]
        records[name] = record
        numbers = {key: value for key, value in kept.cell.items() if key not in _PER_CELL}
        lines.append(json.dumps(dataclasses.asdict(kept.run) | {"made_with": name} | numbers))
    header = f'{{\n "format": {FORMAT},\n "records": {{\n'
    body = ",\n".join(f"  {json.dumps(name)}: {json.dumps(record)}" for name, record in sorted(records.items()))
    write_file(path.with_name(MADE_WITH), [f"{header}{body}\n }}\n}}\n".encode()])
    write_file(path, [f"{line}\n".encode() for line in lines])


# --- cells in separate files ----------------------------------------------------------------------------------------


def running_file(folder: Path, run: Run, pair: str | None, split: int) -> Path:
    """Return the file of a cell that is not yet merged; its name is readable and unique."""
    words = "-".join(filter(None, [_slug(run.setting), _slug(run.voter), pair and _slug(pair), f"{split:02d}"]))
    identity = json.dumps([run.key, pair, split])
    return folder / RUNNING / f"{words[:120]}-{hashlib.sha256(identity.encode()).hexdigest()[:12]}.json"


def read_running(path: Path) -> list[Kept]:
    """Read a cell that is not yet merged."""
    content = _read(path, FORMAT)
    try:
        return [_kept(content["cell"], content["made_with"])]
    except (KeyError, TypeError, AttributeError) as error:
        raise _damaged(path, error) from None


def write_running(path: Path, kept: Kept) -> None:
    """Write a cell that is not yet merged."""
    content = {"format": FORMAT, "made_with": kept.made_with, "cell": dataclasses.asdict(kept.run) | kept.cell}
    write_file(path, [json.dumps(content).encode(), b"\n"])


def read_before(path: Path) -> list[Kept]:
    """Read the file of a run in the format of the previous version."""
    content = _read(path, _PREVIOUS_FORMAT)
    try:
        run, cells = _run(content), content.pop("cells")
        made_with = {key: value for key, value in content.items() if key not in ("format", *_RUN_FIELDS)}
        kept = [Kept(run, made_with, cell) for cell in cells]
        _check(kept)
    except (KeyError, TypeError, AttributeError) as error:
        raise _damaged(path, error) from None
    return kept


# --- shared ---------------------------------------------------------------------------------------------------------

_RUN_FIELDS = tuple(field.name for field in dataclasses.fields(Run))


def _kept(cell: dict[str, Any], record: dict[str, Any]) -> Kept:
    """Combine a cell and its record."""
    run = _run(cell)
    made_with = {key: value for key, value in record.items() if key not in _PER_CELL}
    numbers = {key: value for key, value in cell.items() if key not in _RUN_FIELDS}
    kept = Kept(run, made_with, numbers | {key: record[key] for key in _PER_CELL if key in record})
    _check([kept])
    return kept


def _run(content: dict[str, Any]) -> Run:
    names = [content[name] for name in _RUN_FIELDS]
    if not all(isinstance(name, str) for name in names):
        raise TypeError("a name is not text")
    return _make_run(*names)


@functools.lru_cache(maxsize=1024)
def _make_run(*names: str) -> Run:
    return Run(*names)  # the same object for all cells of a run


def _check(cells: Sequence[Kept]) -> None:
    for kept in cells:
        pair, split = kept.place
        if not isinstance(pair, str | None) or not isinstance(split, int):
            raise TypeError("pair or split has a wrong type")


def _read(path: Path, expected: int) -> dict[str, Any]:
    try:
        content: dict[str, Any] = json.loads(read_text(path, _MAX_BYTES))
        _check_format(path, content, expected)
    except FileNotFoundError:
        raise
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise _damaged(path, error) from None
    return content


def _check_format(path: Path, content: dict[str, Any], expected: int) -> None:
    if content["format"] != expected:
        raise PatchvoteError(
            f"{path} has format {content['format']}; this version of patchvote reads format {expected}."
        )


def _damaged(path: Path, error: Exception) -> PatchvoteError:
    return PatchvoteError(f"{path} is not a result of a protocol ({error!r}). Move it away.")
