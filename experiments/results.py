"""Results: a folder per protocol with all finished cells, and what is needed to reproduce them.

`cells.jsonl.gz` has a line per cell, `made_with.json` the records of how cells were made, by short hash, and
`splits.jsonl.gz` the photos of every split that was drawn here. A finished cell is never computed again.
"""

from __future__ import annotations

import dataclasses
import gzip
import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from patchvote.errors import PatchvoteError
from patchvote.utils.files import locked, write_file

from .splits import Split

CELLS, MADE_WITH, SPLITS = "cells.jsonl.gz", "made_with.json", "splits.jsonl.gz"
FORMAT = 2
_PER_CELL = ("versions", "machine", "commit")  # parts of a record that may differ between cells of one run
_NO_MATTER = {"block", "memory", "calibration"}  # settings of older records that change no answer
_OTHER_VALUE = {"drawn": "splits drawn otherwise", "settings": "other settings", "fingerprints": "another network"}
Place = tuple[str | None, int]  # pair of domains, and split


@dataclasses.dataclass(frozen=True, order=True)
class Run:
    """A setting, a voter, a recipe and a network of a protocol; its cells are the pairs of domains and the splits."""

    protocol: str
    setting: str
    voter: str
    recipe: str
    network: str

    @property
    def words(self) -> str:
        """Names of the run, for messages."""
        return ", ".join(dataclasses.astuple(self)[1:])


@dataclasses.dataclass(frozen=True)
class Draw:
    """Identifies a split: its setting, its pair of domains (None where there are none) and its number from 1."""

    setting: str
    pair: str | None
    split: int

    @property
    def key(self) -> tuple[str, str, int]:
        """Place in the file."""
        return self.setting, self.pair or "", self.split


@dataclasses.dataclass(frozen=True)
class _Line:
    """A stored cell: its run, the record of how it was made, and its numbers."""

    run: Run
    record: dict[str, Any]
    cell: dict[str, Any]

    @property
    def place(self) -> Place:
        return self.cell["pair"], self.cell["split"]

    @property
    def key(self) -> tuple[Run, str, int]:
        return self.run, self.cell["pair"] or "", self.cell["split"]


class Results:
    """A folder of results, with one subfolder per protocol."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._read_before: dict[str, tuple[Any, dict[Run, list[_Line]]]] = {}  # by protocol, with the time of change

    def read(self, run: Run) -> dict[str, Any] | None:
        """Return a run with its names, its record and its finished cells; None where it has no cells."""
        lines = self._runs(run.protocol).get(run)
        return None if lines is None else _combined(lines)

    def done(self, run: Run) -> set[Place]:
        """Return the finished pairs and splits of a run."""
        return {line.place for line in self._runs(run.protocol).get(run, ())}

    def all(self, protocol: str) -> Iterator[tuple[Run, dict[str, Any]]]:
        """Read all runs of a protocol, in order of their names."""
        for run, lines in self._runs(protocol).items():
            yield run, _combined(lines)

    def check(self, run: Run, made_with: dict[str, Any]) -> None:
        """Refuse to mix a run with stored cells that were made with other settings."""
        stored = self.read(run) or {}
        for key, new in json.loads(json.dumps(made_with)).items():
            old = stored.get(key, None if stored else new)
            if key == "settings" and stored:
                old, new = ({k: v for k, v in one.items() if k not in _NO_MATTER} for one in (old or {}, new))
            if old != new:
                raise PatchvoteError(
                    f"{self.folder / run.protocol}: {run.words} was made with {_OTHER_VALUE.get(key, f'another {key}')}"
                    f": it was {old!r}, is {new!r}. Move it away, or name another folder with --results."
                )

    def add(self, run: Run, made_with: dict[str, Any], cell: dict[str, Any]) -> None:
        """Store a finished cell, unless another process has finished it in the meantime."""
        folder = self.folder / run.protocol
        folder.mkdir(parents=True, exist_ok=True)
        with locked(folder / CELLS):
            self.check(run, made_with)
            record = json.loads(json.dumps(made_with | {key: cell[key] for key in _PER_CELL if key in cell}))
            line = _Line(run, record, {key: value for key, value in cell.items() if key not in _PER_CELL})
            if line.place not in self.done(run):
                lines = [line for lines in self._runs(run.protocol).values() for line in lines]
                _write(folder, sorted([*lines, line], key=lambda line: line.key))

    def keep_draws(self, protocol: str, draws: Mapping[Draw, Split]) -> None:
        """Store the photos of splits; refuse a split whose stored photos are others."""
        folder = self.folder / protocol
        folder.mkdir(parents=True, exist_ok=True)
        with locked(folder / CELLS):
            stored = read_draws(folder)
            for draw, split in draws.items():
                if stored.get(draw, split) != split:
                    raise PatchvoteError(
                        f"{draw} in {folder} has other photos than are drawn now, so the results beside it belong to "
                        "another split. Is the image set complete, and the protocol unchanged? If not, name another "
                        "folder with --results."
                    )
            if draws.keys() - stored.keys():
                every = sorted(
                    {**stored, **draws}.items(), key=lambda one: (one[0].setting, one[0].pair or "", one[0].split)
                )
                records = (dataclasses.asdict(draw) | dataclasses.asdict(split) for draw, split in every)
                _write_lines(folder / SPLITS, map(json.dumps, records))

    def _runs(self, protocol: str) -> dict[Run, list[_Line]]:
        """Return all cells of a protocol by run, in order."""
        path = self.folder / protocol / CELLS
        if not path.exists():
            return {}
        status = path.stat()
        now = status.st_ino, status.st_mtime_ns, status.st_size
        if protocol not in self._read_before or self._read_before[protocol][0] != now:
            runs: dict[Run, list[_Line]] = {}
            for line in _read(path):
                runs.setdefault(line.run, []).append(line)
            self._read_before[protocol] = now, runs
        return self._read_before[protocol][1]


def read_draws(folder: Path) -> dict[Draw, Split]:
    """Read the splits in the folder of a protocol; none where there is no such file."""
    path = folder / SPLITS
    records = map(json.loads, _read_lines(path) if path.exists() else ())
    return {
        Draw(record["setting"], record["pair"], record["split"]): Split(record["train"], record["test"])
        for record in records
    }


def _read(path: Path) -> list[_Line]:
    try:
        # A writer writes the records first. They are read last, so that no cell is without its record.
        cells = [json.loads(line) for line in _read_lines(path)]
        made_with = json.loads(path.with_name(MADE_WITH).read_text(encoding="utf-8"))
        records = made_with["records"] if made_with["format"] == FORMAT else {}
        names = [field.name for field in dataclasses.fields(Run)]
        return sorted(
            (_Line(Run(*(cell.pop(name) for name in names)), records[cell.pop("made_with")], cell) for cell in cells),
            key=lambda line: line.key,
        )
    except (OSError, EOFError, ValueError, KeyError, TypeError) as error:
        raise PatchvoteError(f"{path} is not a result of a protocol ({error!r}). Move it away.") from None


def _write(folder: Path, lines: list[_Line]) -> None:
    records, cells = {}, []
    for line in lines:
        text = json.dumps(line.record, sort_keys=True)
        name = hashlib.sha256(text.encode()).hexdigest()[:12]
        records[name] = line.record
        cells.append(json.dumps(dataclasses.asdict(line.run) | {"made_with": name} | line.cell))
    header = f'{{\n "format": {FORMAT},\n "records": {{\n'
    body = ",\n".join(f"  {json.dumps(name)}: {json.dumps(record)}" for name, record in sorted(records.items()))
    write_file(folder / MADE_WITH, [f"{header}{body}\n }}\n}}\n".encode()])
    _write_lines(folder / CELLS, cells)


def _read_lines(path: Path) -> list[str]:
    return gzip.decompress(path.read_bytes()).decode().splitlines()


def _write_lines(path: Path, lines: Iterable[str]) -> None:
    data = "".join(f"{line}\n" for line in lines).encode()
    write_file(path, [gzip.compress(data, mtime=0)])  # without a time, so that the same lines give the same file


def _combined(lines: list[_Line]) -> dict[str, Any]:
    """Return the cells of a run with the names and the record that they share."""
    made_with = {key: value for key, value in lines[0].record.items() if key not in _PER_CELL}
    per_cell = [{key: line.record[key] for key in _PER_CELL if key in line.record} for line in lines]
    cells = [line.cell | more for line, more in zip(lines, per_cell, strict=True)]
    return {**dataclasses.asdict(lines[0].run), **made_with, "cells": cells}
