"""Columns: which columns of a manifest or table name the photos and their classes."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any, Self

from ..errors import PatchvoteError
from ..utils.schema import brief
from ..utils.terminal import nearest

_KEYS = ("file", "label")
_FORM = "file=COLUMN,label=COLUMN"


@dataclasses.dataclass(frozen=True)
class Columns:
    """The columns of a manifest.

    Parameters
    ----------
    file : str, default "file_name"
        Column of the paths of photos.
    label : str, optional
        Column of their classes, which must be there; by default `label`, which may be missing.

    Examples
    --------
    >>> Columns.of({"label": "species"})
    Columns(file='file_name', label='species')
    """

    file: str = "file_name"
    label: str | None = None

    @classmethod
    def of(cls, given: Columns | Mapping[str, str] | None) -> Columns:
        """Return columns that were given as such, as a dictionary with `file` and `label`, or not at all.

        Raises
        ------
        PatchvoteError
            A key is unknown, or a name is empty or no text.
        """
        if given is None or isinstance(given, Columns):
            return given or cls()
        if not isinstance(given, Mapping):
            raise PatchvoteError(f"columns must be a dictionary such as {{'file': 'path'}}, got {brief(given)}.")
        for key, name in given.items():
            if key not in _KEYS:
                raise PatchvoteError(
                    f"columns are named by file and label, got {brief(key)}.{nearest(str(key), _KEYS)}"
                )
            if not isinstance(name, str) or not name:
                raise PatchvoteError(f"the column of {key} must be the name of a column, got {brief(name)}.")
        return cls(**given)

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the columns that a text such as ``file=path,label=species`` names.

        Examples
        --------
        >>> Columns.parse("file=path,label=species")
        Columns(file='path', label='species')

        Raises
        ------
        PatchvoteError
            The text has another form.
        """
        given: dict[str, str] = {}
        for part in text.split(","):
            key, equals, name = (piece.strip() for piece in part.partition("="))
            if key not in _KEYS or not equals or not name or key in given:
                raise PatchvoteError(f"columns are named as in {_FORM}, each once, got {text!r:.200}.")
            given[key] = name
        return cls(**given)

    @property
    def label_column(self) -> str:
        """Name of the column of classes, which is there if it was named."""
        return self.label or "label"

    def missing(self, present: Iterable[Any]) -> str | None:
        """Return the name of a column that has to be among those present and is not, if there is one."""
        needed = [self.file, *([self.label] if self.label else [])]
        present = set(present)
        return next((name for name in needed if name not in present), None)
