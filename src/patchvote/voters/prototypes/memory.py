"""The memory of a model of prototypes: random descriptors of each class, a sample of all that were seen.

New photos are learned together with the memory, so that old classes are not forgotten although their photos are not
available any more.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from ...bags.bags import Bags

REMEMBERED = 256  # descriptors kept per class


@dataclasses.dataclass(frozen=True, eq=False)
class Memory:
    """A sample of the descriptors that were seen.

    Parameters
    ----------
    values : array of shape (n, features)
        The descriptors.
    boxes : array of shape (n, 4)
        Boxes of the descriptors in their images.
    numbers : array of shape (n,)
        Class numbers of the descriptors.
    """

    values: npt.NDArray[Any]
    boxes: npt.NDArray[Any]
    numbers: npt.NDArray[np.int64]

    @classmethod
    def of(cls, bags: Bags, numbers: npt.NDArray[np.int64], classes: int, rng: np.random.Generator) -> Self:
        """Choose random descriptors of each class."""
        owner = numbers[bags.owner]
        rows = [rng.permutation(np.flatnonzero(owner == number))[:REMEMBERED] for number in range(classes)]
        chosen = np.concatenate(rows)
        return cls(
            compact(bags.values[chosen]),
            bags.boxes[chosen].astype(np.float32),
            owner[chosen].astype(np.int64),
        )

    def bags(self) -> tuple[Bags, npt.NDArray[np.int64]]:
        """Return one bag per class, and the class number of each bag."""
        order = np.argsort(self.numbers, kind="stable")
        present, sizes = np.unique(self.numbers, return_counts=True)
        offsets = np.concatenate([[0], np.cumsum(sizes)])
        return Bags(self.values[order].astype(np.float32), offsets, self.boxes[order]), present

    def merged(
        self,
        known: npt.NDArray[Any],
        new: Bags,
        labels: npt.NDArray[Any],
        classes: npt.NDArray[Any],
        seen: Mapping[str, int],
        rng: np.random.Generator,
    ) -> Self:
        """Return a memory of old and new descriptors, in proportion to how many were seen of each.

        Parameters
        ----------
        known : array
            Classes to which the class numbers of this memory refer.
        new : Bags
            New images.
        labels : array
            Classes of the new images.
        classes : array
            Classes to which the class numbers of the new memory refer.
        seen : mapping
            Number of descriptors seen before, per class.
        rng : Generator
            Source of random numbers.
        """
        memory, class_numbers = self.bags()
        memory_labels = known[class_numbers]
        values, boxes, numbers = [], [], []
        for number, label in enumerate(classes.tolist()):
            old = memory[memory_labels == label] if (memory_labels == label).any() else None
            added = new[labels == label] if (labels == label).any() else None
            share = 0.0 if old is None else 1.0
            if old is not None and added is not None:
                before = seen.get(label, len(old.values))
                share = before / (before + len(added.values))
            for part, count in ((old, round(REMEMBERED * share)), (added, round(REMEMBERED * (1 - share)))):
                if part is not None and count:
                    rows = rng.permutation(len(part.values))[:count]
                    values.append(compact(part.values[rows]))
                    boxes.append(part.boxes[rows])
                    numbers.append(np.full(len(rows), number))
        return type(self)(np.concatenate(values), np.concatenate(boxes), np.concatenate(numbers).astype(np.int64))


def compact(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return descriptors as float16, or as float32 if one of them is too large for that.

    Examples
    --------
    >>> compact(np.array([1e4])).dtype, compact(np.array([1e5])).dtype
    (dtype('float16'), dtype('float32'))
    """
    fits = float(np.abs(values).max(initial=0)) <= float(np.finfo(np.float16).max)
    return values.astype(np.float16 if fits else np.float32)
