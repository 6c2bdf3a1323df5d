"""A bank larger than memory: how much of it may be in memory, and its search part by part.

Its descriptors stay in a file (`RowFile`), as they came and in the type in which they came. Every search reads them
part by part, normalises a part, compares it with all queries and drops it before it reads the next one. Normalising
takes a fraction of the comparison; a normalised file would be twice as large for descriptors in float16.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Protocol

from .bounds import Floats, Indices
from .exact import best_of

DEFAULT_MEMORY = 1500.0  # megabytes
IN_PARTS = ("exact", "pca")  # searches of a bank in a file; the indexes of the others are in memory

# Copies of all descriptors in float32 that a bank in memory takes: the bags, the bank as it came and normalised, the
# rotated one of the exact search, and temporary ones.
_COPIES = 5
_BESIDE = 16 + 3 * 8  # bytes per descriptor beside its values: box, class, image, row
_PER_PAIR = 48  # bytes per pair of features that learning the rotation of the search "pca" takes
_RESERVE = 64 << 20  # bytes for buffers of libraries and threads, and what freeing leaves behind
_MOST_QUERIES, _MOST_ROWS = 16_384, 65_536  # more at once would not be faster
_FEWEST_QUERIES, _FEWEST_ROWS = 256, 1024  # fewer would read the file too often, or in parts that are too small


@dataclasses.dataclass(frozen=True)
class Limits:
    """How many descriptors of a bank may be in memory.

    Parameters
    ----------
    rows : int
        Most descriptors of a part of the bank.
    queries : int
        Most descriptors that are compared with a part at once.
    features : int
        Most features of all mean descriptors together, which are compared to find copies of photos.
    """

    rows: int
    queries: int
    features: int


def needed(rows: int, width: int) -> float:
    """Return the megabytes that a bank of `rows` descriptors of `width` features takes in memory."""
    return (_RESERVE + rows * (4 * _COPIES * width + _BESIDE)) / 1e6


def limits(memory: float, *, rows: int, width: int, classes: int, n_neighbors: int, search: str) -> Limits:
    """Return the limits that keep a search within `memory` megabytes: half is for the bank, half for the queries.

    Parameters
    ----------
    memory : float
        Megabytes that making and searching a bank may take.
    rows, width : int
        Descriptors of the bank, and features of each.
    classes, n_neighbors : int
        Number of classes, and of neighbours.
    search : str
        Search for neighbours, one of `IN_PARTS`.

    Raises
    ------
    ValueError
        The budget is too small for the search of any part.
    """
    fixed = _RESERVE + rows * _BESIDE + (_PER_PAIR * width * width if search == "pca" else 0)
    per_row = 4 * 3 * width  # as it came, normalised, and rounded to float16 and back
    per_query = 4 * 4 * width + 24 * classes + 48 * n_neighbors  # as it came, normalised, compared again; votes
    least = fixed + 2 * max(_FEWEST_ROWS * per_row, _FEWEST_QUERIES * per_query)
    if memory * 1e6 < least:
        raise ValueError(
            f"memory must be at least {math.ceil(least / 1e6):,} megabytes for a bank of {rows:,} descriptors of "
            f"{width:,} features, got {memory:g}."
        )
    half = (memory * 1e6 - fixed) / 2
    features = int(half / 8)  # copies of means are searched in four arrays of float32
    return Limits(min(_MOST_ROWS, int(half / per_row)), min(_MOST_QUERIES, int(half / per_query)), features)


class Searched(Protocol):
    """A part of a bank in memory that can be searched, such as `Bank`."""

    def nearest(self, queries: Any, k: int = 1) -> tuple[Floats, Indices]:
        """Find the `k` nearest descriptors for each query."""


class BankInParts:
    """A bank of which one part at a time is in memory.

    Parameters
    ----------
    length : int
        Number of descriptors of all parts.
    parts : function
        Returns the parts, normalised, one after the other; called for every search.
    searched : function
        Makes a part searchable.
    exactly : function
        Makes a part searchable without approximation.
    """

    def __init__(
        self,
        length: int,
        parts: Callable[[], Iterable[Any]],
        searched: Callable[[Any], Searched],
        exactly: Callable[[Any], Searched],
    ) -> None:
        self._length, self._parts, self._searched, self._exactly = length, parts, searched, exactly

    def __len__(self) -> int:
        return self._length

    def exact(self) -> BankInParts:
        """Return the same bank with an exact search."""
        return BankInParts(self._length, self._parts, self._exactly, self._exactly)

    def nearest(self, queries: Any, k: int = 1) -> tuple[Floats, Indices]:
        """Find the `k` nearest descriptors for each query; see `Bank.nearest`."""
        if k > len(self):
            raise ValueError(f"the bank has {len(self)} descriptors, fewer than the {k} neighbours asked for.")
        return best_of(self._found(queries, k), len(queries), k)

    def _found(self, queries: Any, k: int) -> Iterator[tuple[Floats, Indices]]:
        start = 0
        for part in self._parts():
            distances, chosen = self._searched(part).nearest(queries, min(k, len(part)))
            yield distances, chosen + start
            start += len(part)
            del part  # before the next one is read
