"""Saved: the file of a model, and its state when it was read or written, so that no change gets lost."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path
from typing import Self

from ..errors import ModelChangedError, ModelError
from ..utils.files import locked, stamp
from ..utils.remote import RemotePath, place
from .file import read_model, write_model
from .model import Model


@dataclasses.dataclass(frozen=True)
class Saved:
    """The file of a model, and its state when it was last read or written.

    Parameters
    ----------
    place : Path or None
        Path of the file, with links resolved; None where there is no file yet.
    seen : tuple or None
        Stamp of the file, which changes whenever it is replaced.
    """

    place: Path | None = None
    seen: tuple[int, ...] | None = None

    @classmethod
    def read(cls, path: str | Path) -> tuple[Model, Self]:
        """Read a model, and the state of its file."""
        file = _place(path)
        seen = stamp(file)  # before reading: a change in between is detected later
        return read_model(path), cls(file, seen)

    def is_at(self, path: str | Path) -> bool:
        """Whether the model is stored in this file."""
        return self.place is not None and self.place == _place(path)

    def write(self, model: Model, path: str | Path) -> Self:
        """Write a model atomically, and return the new state of its file.

        Raises
        ------
        ModelChangedError
            It is the same file, and another process has changed it since.
        """
        file = _place(path)
        with locked(file):
            if self.is_at(file) and stamp(file) != self.seen:
                raise ModelChangedError(
                    f"{path} was changed by another process since it was read: it was not written. Load it again and "
                    "repeat."
                )
            write_model(model, path)
            return type(self)(file, stamp(file))


def _place(path: str | Path) -> Path:
    if not isinstance(path, (str, os.PathLike)) or not str(path):
        raise ModelError(f"path of a model must be the name of a file, got {path!r:.80}.")
    where = place(path)
    return where if isinstance(where, RemotePath) else Path(os.path.realpath(where))
