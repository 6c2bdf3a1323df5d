"""The memory of a model of prototypes: a few random descriptors of each class, which stand for all that were seen.

New photos are learned together with the memory, so that old classes are not forgotten though no old photo is at hand.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from ...bags.bags import Bags

REMEMBERED = 256  # descriptors per class


@dataclasses.dataclass(frozen=True, eq=False)
class Memory:
    """Descriptors that stand for all that were seen.

    Parameters
    ----------
    values : array of shape (n, features)
        The descriptors.
    boxes : array of shape (n, 4)
        Where they looked.
    numbers : array of shape (n,)
        Numbers of their classes.
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
            bags.values[chosen].astype(np.float16),
            bags.boxes[chosen].astype(np.float32),
            owner[chosen].astype(np.int64),
        )

    def bags(self) -> tuple[Bags, npt.NDArray[np.int64]]:
        """Return a bag per class, and the numbers of the classes."""
        order = np.argsort(self.numbers, kind="stable")
        there, sizes = np.unique(self.numbers, return_counts=True)
        offsets = np.concatenate([[0], np.cumsum(sizes)])
        return Bags(self.values[order].astype(np.float32), offsets, self.boxes[order]), there

    def merged(
        self,
        known: npt.NDArray[Any],
        new: Bags,
        labels: npt.NDArray[Any],
        classes: npt.NDArray[Any],
        seen: Mapping[str, int],
        rng: np.random.Generator,
    ) -> Self:
        """Return a memory of what was known and what is new, each in proportion to what it stands for.

        Parameters
        ----------
        known : array
            The classes that the numbers of this memory mean.
        new : Bags
            New images.
        labels : array
            Their classes.
        classes : array
            The classes that the numbers of the new memory mean.
        seen : mapping
            How many descriptors of each class were seen before.
        rng : Generator
            Of the choice.
        """
        memory, there = self.bags()
        of = known[there]
        values, boxes, numbers = [], [], []
        for number, label in enumerate(classes.tolist()):
            old = memory[of == label] if (of == label).any() else None
            own = new[labels == label] if (labels == label).any() else None
            share = 0.0 if old is None else 1.0
            if old is not None and own is not None:
                before = seen.get(label, len(old.values))
                share = before / (before + len(own.values))
            for part, count in ((old, round(REMEMBERED * share)), (own, round(REMEMBERED * (1 - share)))):
                if part is not None and count:
                    rows = rng.permutation(len(part.values))[:count]
                    values.append(part.values[rows].astype(np.float16))
                    boxes.append(part.boxes[rows])
                    numbers.append(np.full(len(rows), number))
        return type(self)(np.concatenate(values), np.concatenate(boxes), np.concatenate(numbers).astype(np.int64))
