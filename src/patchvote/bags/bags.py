"""Bags: the one container that every estimator reads.

A bag holds the descriptors of one image. Images differ in size, so bags differ in length: all descriptors are in one
matrix, and `offsets` says where each bag starts. Nothing here knows about classes, pixels or networks.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, overload

import numpy as np
import numpy.typing as npt

from ..utils.arrays import to_float16, to_float32
from ..utils.schema import brief

Floats = npt.NDArray[np.float32] | npt.NDArray[np.float16] | npt.NDArray[np.float64]


@dataclasses.dataclass(frozen=True, eq=False)
class Bags:
    """Descriptors of several images, one bag per image.

    Parameters
    ----------
    values : array of shape (n, d)
        Descriptors of all bags, one bag after the other.
    offsets : array of shape (m + 1,)
        Limits of the bags in `values`: bag `i` is ``values[offsets[i]:offsets[i + 1]]``.
    boxes : array of shape (n, 4), optional
        Box of each descriptor: left, top, right, bottom, in 0..1 of the image. The whole image by default.
    level : array of shape (n,), optional
        Level of the recipe at which each descriptor was extracted; 0 is the whole image.

    Examples
    --------
    >>> bags = Bags.of([np.zeros((3, 2)), np.ones((1, 2))])
    >>> len(bags), bags.sizes.tolist(), bags.means().tolist()
    (2, [3, 1], [[0.0, 0.0], [1.0, 1.0]])
    >>> bags[1].values
    array([[1., 1.]])
    """

    values: Floats
    offsets: npt.NDArray[np.int64]
    boxes: npt.NDArray[np.float32] = dataclasses.field(default=None)  # type: ignore[arg-type]
    level: npt.NDArray[np.int16] = dataclasses.field(default=None)  # type: ignore[arg-type]

    def __post_init__(self) -> None:
        values, offsets = np.asarray(self.values), np.asarray(self.offsets, dtype=np.int64)
        if values.ndim != 2:
            raise ValueError(f"values must have the shape (descriptors, features), got {values.shape}.")
        n = len(values)
        if offsets.ndim != 1 or len(offsets) < 1 or offsets[0] != 0 or offsets[-1] != n or (np.diff(offsets) < 0).any():
            raise ValueError(f"offsets must rise from 0 to the number of descriptors, {n}, got {brief(self.offsets)}.")
        boxes = np.asarray(np.tile([0, 0, 1, 1], (n, 1)) if self.boxes is None else self.boxes, np.float32)
        level = np.asarray(np.zeros(n) if self.level is None else self.level, np.int16)
        if boxes.shape != (n, 4) or level.shape != (n,):
            raise ValueError(
                f"{n} descriptors need boxes of shape ({n}, 4) and level of shape ({n},), "
                f"got {boxes.shape} and {level.shape}."
            )
        for name, array in (("values", values), ("offsets", offsets), ("boxes", boxes), ("level", level)):
            object.__setattr__(self, name, array)

    @classmethod
    def of(cls, source: Bags | npt.ArrayLike | Sequence[Any]) -> Bags:
        """Convert to `Bags`: a list of 2-D arrays or of `Bags`, or a 2-D array with one bag per row."""
        if isinstance(source, Bags):
            return source
        if isinstance(source, np.ndarray) and source.ndim == 2 and source.dtype != object:
            return cls(source, np.arange(len(source) + 1))
        if isinstance(source, (str, bytes)) or not isinstance(source, Iterable):
            raise ValueError(f"bags are a list of 2-D arrays, got {type(source).__name__}.")
        return cls.join(bag if isinstance(bag, Bags) else _one_bag(bag, i) for i, bag in enumerate(source))

    @classmethod
    def join(cls, parts: Iterable[Bags]) -> Bags:
        """Concatenate several `Bags`, in order."""
        parts = list(parts)
        if not parts:
            raise ValueError("there are no bags: the list is empty.")
        dim = parts[0].dim
        for index, part in enumerate(parts):
            if part.dim != dim:
                raise ValueError(
                    f"bag {index} has {part.dim} features per descriptor, bag 0 has {dim}. "
                    "Were they extracted with the same network?"
                )
        ends = np.cumsum([0] + [len(part.values) for part in parts])
        offsets = [part.offsets[:-1] + start for part, start in zip(parts, ends[:-1], strict=True)]
        return cls(
            np.concatenate([part.values for part in parts]),
            np.concatenate([*offsets, ends[-1:]]),
            np.concatenate([part.boxes for part in parts]),
            np.concatenate([part.level for part in parts]),
        )

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __iter__(self) -> Iterator[Bags]:
        return (self[i] for i in range(len(self)))

    @overload
    def __getitem__(self, key: int) -> Bags: ...
    @overload
    def __getitem__(self, key: slice | npt.ArrayLike) -> Bags: ...
    def __getitem__(self, key: Any) -> Bags:
        """Select bags by number, slice, list of numbers or mask; the result is always `Bags`."""
        if isinstance(key, slice) and key.step in (None, 1):
            start, stop, _ = key.indices(len(self))
            return self._run(start, max(start, stop))
        if isinstance(key, (int, np.integer)):
            index = range(len(self))[key]
            return self._run(index, index + 1)
        indices = np.arange(len(self))[np.asarray(key, int) if np.size(key) == 0 else key]
        sizes = self.sizes[indices]
        offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
        rows = np.repeat(self.offsets[indices] - offsets[:-1], sizes) + np.arange(offsets[-1])
        return Bags(self.values[rows], offsets, self.boxes[rows], self.level[rows])

    def __repr__(self) -> str:
        return f"<Bags: {len(self):,} bags, {len(self.values):,} descriptors of {self.dim:,} features>"

    @property
    def dim(self) -> int:
        """Number of features per descriptor."""
        return int(self.values.shape[1])

    @property
    def sizes(self) -> npt.NDArray[np.int64]:
        """Number of descriptors in each bag."""
        return np.diff(self.offsets)

    @property
    def owner(self) -> npt.NDArray[np.int64]:
        """Number of the bag of each descriptor."""
        return np.repeat(np.arange(len(self)), self.sizes)

    def means(self, values: npt.NDArray[Any] | None = None) -> npt.NDArray[Any]:
        """Return the mean over each bag, of the descriptors or of other `values` with one row per descriptor.

        Sums are in float64, so that a bag of a million descriptors loses no precision. An empty bag raises an error.
        """
        rows = self.values if values is None else np.asarray(values)
        if len(rows) != len(self.values):
            raise ValueError(f"there are {len(self.values)} descriptors but {len(rows)} rows of values.")
        if (self.sizes == 0).any():
            raise ValueError(f"bag {int(np.argmin(self.sizes))} is empty and has no mean.")
        result = np.empty((len(self), *rows.shape[1:]), dtype=np.result_type(rows.dtype, np.float32))
        for i, (start, stop) in enumerate(zip(self.offsets[:-1], self.offsets[1:], strict=True)):
            bag = to_float32(rows[start:stop]) if rows.dtype == np.float16 else rows[start:stop]
            result[i] = bag.mean(axis=0, dtype=np.float64)
        return result

    def astype(self, dtype: npt.DTypeLike) -> Bags:
        """Return the same bags with `values` of another dtype."""
        if np.dtype(dtype) == np.float32:
            values = to_float32(self.values)
        elif np.dtype(dtype) == np.float16 and self.values.dtype == np.float32:
            values = to_float16(self.values)
        else:
            values = self.values.astype(dtype, copy=False)
        return dataclasses.replace(self, values=values)

    def rounded(self) -> Bags:
        """Return the same bags with `values` in float16; ValueError if a number does not fit."""
        # NaN if any value is; twice over the values is faster than a copy of their sizes.
        largest = float(np.maximum(self.values.max(initial=0), -self.values.min(initial=0)))
        if not largest <= float(np.finfo(np.float16).max):
            raise ValueError("a descriptor of it does not fit into float16. Look at the network's preprocessing.")
        return self.astype(np.float16)

    def _run(self, start: int, stop: int) -> Bags:
        """Return the bags from `start` to `stop` as a view, without copying."""
        first, last = self.offsets[start], self.offsets[stop]
        rows = slice(first, last)
        return Bags(self.values[rows], self.offsets[start : stop + 1] - first, self.boxes[rows], self.level[rows])


def _one_bag(bag: Any, index: int) -> Bags:
    bag = bag.detach().cpu() if hasattr(bag, "detach") else bag  # a torch tensor on any device
    array = np.asarray(bag)
    if array.ndim != 2 or array.dtype == object:
        raise ValueError(f"bag {index} must have the shape (descriptors, features), got {array.shape}.")
    return Bags(array, np.array([0, len(array)]))
