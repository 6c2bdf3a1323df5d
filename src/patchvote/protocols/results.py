"""Results: a file a run, holding every split's raw numbers and what is needed to make them again.

A run is a setting, a voter, a recipe and a network; its cells are the splits (and pairs of domains). Cells are added as
they are finished, and a finished cell is never computed again.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ..errors import PatchvoteError
from ..utils.files import make_folder, write_file
from ..utils.reading import read_text

FORMAT = 1
_MAX_BYTES = 1 << 30  # of one result; all cells of Office-Caltech have 2 MB
_OTHER = {"drawn": "splits drawn otherwise", "settings": "other settings", "fingerprints": "another network"}


@dataclasses.dataclass(frozen=True, order=True)
class Run:
    """What all cells of one file have in common.

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
    def file(self) -> str:
        """Name of the file.

        Examples
        --------
        >>> Run("scene15", "random", "snbnl(q=1)", "dense", "efficientnet-lite0").file
        'scene15/random-snbnl-q=1-dense-efficientnet-lite0.json'
        """
        parts = [re.sub(r"[^\w.+=-]+", "-", part).strip("-") for part in dataclasses.astuple(self)]
        return f"{parts[0]}/{'-'.join(parts[1:])}.json"


class Results:
    """A folder of results.

    Parameters
    ----------
    folder : Path
        With a folder a protocol.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def read(self, run: Run) -> dict[str, Any] | None:
        """Return what is kept of a run; None where nothing is."""
        path = self.folder / run.file
        return _read(path) if path.exists() else None

    def done(self, run: Run) -> set[tuple[str | None, int]]:
        """Return the pairs and splits of a run that are finished."""
        kept = self.read(run)
        return {(cell["pair"], cell["split"]) for cell in kept["cells"]} if kept else set()

    def add(self, run: Run, made_with: dict[str, Any], cell: dict[str, Any]) -> None:
        """Keep a finished cell.

        Raises
        ------
        PatchvoteError
            Cells of this run are kept that were made with other settings.
        """
        path = self.folder / run.file
        kept = self.check(run, made_with) or {"format": FORMAT, **dataclasses.asdict(run), **made_with, "cells": []}
        kept["cells"] = sorted([*kept["cells"], cell], key=lambda cell: (cell["pair"] or "", cell["split"]))
        make_folder(path.parent)
        write_file(path, [_written(kept).encode()])

    def check(self, run: Run, made_with: dict[str, Any]) -> dict[str, Any] | None:
        """Return what is kept of a run, if it was made with the same settings."""
        kept = self.read(run)
        made_with = json.loads(json.dumps(made_with))
        for key, value in made_with.items():
            if kept is not None and key == "settings" and isinstance(kept.get(key), dict):
                # An older version may not have known a setting; what it did is the default now.
                value = {name: own for name, own in value.items() if name in kept[key]}
            if kept is not None and kept.get(key) != value:
                other = _OTHER.get(key, f"another {key}")
                raise PatchvoteError(
                    f"{self.folder / run.file} was made with {other}: {_difference(kept.get(key), value)}. "
                    "Move it away, or name another folder with --results."
                )
        return kept

    def all(self, protocol: str | None = None) -> Iterator[tuple[Run, dict[str, Any]]]:
        """Read all runs, or those of one protocol, in order of their names."""
        for path in sorted(self.folder.glob(f"{protocol or '*'}/*.json")):
            kept = _read(path)
            yield Run(**{field.name: kept[field.name] for field in dataclasses.fields(Run)}), kept


def _read(path: Path) -> dict[str, Any]:
    try:
        kept: dict[str, Any] = json.loads(read_text(path, _MAX_BYTES))
        if kept["format"] != FORMAT:
            raise PatchvoteError(f"{path} is of format {kept['format']}, and this patchvote reads format {FORMAT}.")
        for name in (*(field.name for field in dataclasses.fields(Run)), "cells"):
            _ = kept[name]
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise PatchvoteError(f"{path} is not a result of a protocol ({error!r}). Move it away.") from None
    return kept


def _written(kept: dict[str, Any]) -> str:
    """Write a run with a line a cell, so that a change shows where it is."""
    head = json.dumps({key: value for key, value in kept.items() if key != "cells"}, indent=1)
    cells = ",\n  ".join(json.dumps(cell) for cell in kept["cells"])
    return f'{head[:-2]},\n "cells": [\n  {cells}\n ]\n}}\n'


def _difference(old: Any, new: Any) -> str:
    if isinstance(old, dict) and isinstance(new, dict):
        changed = [key for key in sorted({*old, *new}) if old.get(key) != new.get(key)]
        return ", ".join(f"{key} was {old.get(key)!r}, is {new.get(key)!r}" for key in changed[:4])
    return f"it was {old!r}, is {new!r}"
