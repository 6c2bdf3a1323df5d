"""Entries: what a shard says about its photos, as columns, which take less time and memory than objects."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Iterator, Sequence
from typing import Any, overload

import numpy as np
import numpy.typing as npt


@dataclasses.dataclass(frozen=True)
class Entry:
    """Metadata of one photo in a shard.

    Parameters
    ----------
    name, label
        Name and label, as in `Photo`.
    digest : str
        SHA-256 of the content from which the bag was extracted.
    size, modified : int
        Size in bytes and time of the last change (ns) of the file, which identify an unchanged file without reading
        it; 0 if they cannot be relied on.
    """

    name: str
    label: str | None
    digest: str
    size: int = 0
    modified: int = 0


_FIELDS = tuple(field.name for field in dataclasses.fields(Entry))


class Entries(Sequence[Entry]):
    """Entries of a shard, each made when it is asked for.

    Parameters
    ----------
    rows : list of dict
        Fields of each entry, as they were read from a file.

    Raises
    ------
    TypeError
        A field is missing, unknown, or of a wrong type.

    Examples
    --------
    >>> entries = Entries([{"name": "a.jpg", "label": "sea", "digest": "0f"}])
    >>> len(entries), entries[0].label, entries.names
    (1, 'sea', ['a.jpg'])
    """

    def __init__(self, rows: list[dict[str, Any]]) -> None:
        known = set(_FIELDS)
        rows = [row if row.keys() == known else vars(Entry(**row)) for row in rows]
        names, labels, digests, sizes, times = ([row[field] for row in rows] for field in _FIELDS)
        texts = {*map(type, names), *map(type, digests)}
        numbers = {*map(type, sizes), *map(type, times)}
        if not (texts <= {str} and numbers <= {int, bool} and set(map(type, labels)) <= {str, type(None)}):
            raise TypeError("a field of an entry has the wrong type")
        self.names: list[str] = names
        self.digests: list[str] = digests
        self.labels: list[str | None] = [label if label is None else sys.intern(label) for label in labels]
        self._sizes, self._times = _column(sizes), _column(times)

    def __len__(self) -> int:
        return len(self.names)

    @overload
    def __getitem__(self, key: int) -> Entry: ...
    @overload
    def __getitem__(self, key: slice) -> tuple[Entry, ...]: ...
    def __getitem__(self, key: int | slice) -> Entry | tuple[Entry, ...]:
        if isinstance(key, slice):
            return tuple(self[index] for index in range(len(self))[key])
        size, time = int(self._sizes[key]), int(self._times[key])
        return Entry(self.names[key], self.labels[key], self.digests[key], size, time)

    def __iter__(self) -> Iterator[Entry]:
        return (self[index] for index in range(len(self)))


def _column(numbers: list[int]) -> npt.NDArray[np.int64] | list[int]:
    try:
        return np.array(numbers, np.int64)
    except OverflowError:  # from a file, a number may be of any size
        return numbers
