"""Training images of a bank: bags in memory, or a store whose descriptors are copied to a temporary file.

Both give the arrays of a bank of some of the images (`bank`), images to be classified (`bags`) and the mean descriptor
of every image (`vectors`), with the same numbers.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from ...bags.bags import Bags
from ...bags.copies import vectors_of
from ...bags.moments import photo_vectors
from ...bags.store import Store
from ...utils.row_file import RowFile
from ..power import has_negative
from ..votes import check_bags, has_positions, with_positions
from .in_parts import Limits

Numbers = npt.NDArray[np.int64]
# Descriptors with positions, the number of the image of each, and the box of each.
Bank = tuple[Any, Numbers, npt.NDArray[np.float32]]


class InMemory:
    """Training images in memory.

    Parameters
    ----------
    bags : Bags
        The images.
    positions : bool
        Whether positions are the last two features of the bank.
    dtype : str
        Type of the bank.
    """

    def __init__(self, bags: Bags, positions: bool, dtype: str) -> None:
        self._bags, self._positions, self._dtype = bags, positions, dtype

    @property
    def negative(self) -> bool:
        """Whether a feature is negative."""
        return has_negative(self._bags.values)

    def bank(self, part: Numbers) -> Bank:
        """Return the bank of some images."""
        bags = self._bags if len(part) == len(self._bags) else self._bags[part]
        values = with_positions(bags, slice(0, len(bags.values)), self._positions)
        return values.astype(self._dtype), part[bags.owner], bags.boxes

    def bags(self, part: Numbers) -> Bags:
        """Return some images."""
        return self._bags[part]

    def vectors(self) -> npt.NDArray[Any]:
        """Return the mean descriptor of each image."""
        return photo_vectors(self._bags)


class StoreRows:
    """Descriptors of some images of a store, read block by block, once.

    Parameters
    ----------
    store : Store
        Store of the images.
    images : array of int
        Numbers of the images, in the order of reading.
    positions : bool
        Whether positions are the last two features of the bank.
    dtype : str
        Type of the bank.
    limits : Limits
        Most descriptors that are read at once, and most features of all mean descriptors together.

    Attributes
    ----------
    dtype : dtype
        Smallest type that keeps all digits that a bank of this type would have in memory.
    owner, boxes : arrays
        Image number and box of each descriptor; boxes are known when all has been read.
    negative : bool
        Whether a feature is negative, known when all has been read.
    """

    def __init__(self, store: Store, images: Numbers, positions: bool, dtype: str, limits: Limits) -> None:
        self.store, self.limits, self._images, self._positions = store, limits, images, positions
        exact = np.result_type(store.dtype, np.float32 if positions else np.float16)
        self.dtype = np.dtype(dtype) if dtype == "float16" else exact
        self.owner: Numbers = np.repeat(images, store.sizes[images])
        self.boxes = np.empty((len(self.owner), 4), np.float32)
        self.negative = False

    def __len__(self) -> int:
        return len(self.owner)

    def __iter__(self) -> Iterator[npt.NDArray[Any]]:
        done = 0
        for bags, _ in self.store.blocks(self.limits.rows, indices=self._images, dtype=self.store.dtype):
            check_bags(bags)
            self.negative = self.negative or has_negative(bags.values)
            self.boxes[done : done + len(bags.values)] = bags.boxes
            done += len(bags.values)
            yield with_positions(bags, slice(0, len(bags.values)), True) if self._positions else bags.values


class InFile:
    """Training images of a store, whose descriptors are in a file.

    Parameters
    ----------
    rows : StoreRows
        The images, all of which have been read.
    values : RowFile
        Their descriptors.
    """

    def __init__(self, rows: StoreRows, values: RowFile) -> None:
        self._rows, self._values, self.negative = rows, values, rows.negative

    def bank(self, part: Numbers) -> Bank:
        """Return the bank of some images."""
        owner, boxes = self._rows.owner, self._rows.boxes
        rows = np.flatnonzero(np.isin(owner, part))
        if len(rows) == len(owner):
            return self._values, owner, boxes
        return self._values.take(rows), owner[rows], boxes[rows]

    def bags(self, part: Numbers) -> Store:
        """Return some images, as a view of the store."""
        store = self._rows.store
        return store.only([store.names[image] for image in part])

    def vectors(self) -> npt.NDArray[Any]:
        """Return the mean descriptor of each image; of very many images, only some features."""
        return vectors_of(self._rows.store, self._rows.limits.features, self._rows.limits.rows)


def store_has_positions(store: Store, images: Numbers, limits: Limits) -> bool:
    """Whether the boxes of some images carry positions; as a rule, those of the first image tell."""
    blocks = store.blocks(limits.rows, indices=images, dtype=store.dtype)
    return any(has_positions(bags) for bags, _ in blocks)
