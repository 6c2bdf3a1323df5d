"""A summary of a bag that a cache may keep: the mean of its descriptors."""

from __future__ import annotations

import dataclasses

import numpy as np

from patchvote import Bags


@dataclasses.dataclass(frozen=True)
class KeptMean:
    """Keeps the mean of each bag; refuses one whose first feature is above a limit."""

    limit: float = np.inf
    name: str = "mean-1"

    def of(self, bag: Bags) -> Bags:
        mean = bag.means().astype(np.float16)
        if mean[0, 0] > self.limit:
            raise ValueError("is too bright.")
        return Bags.of(mean)

    def pack(self, kept: Bags) -> dict[str, np.ndarray]:
        return {"mean": kept.values}

    def unpack(self, arrays) -> Bags:
        if arrays.keys() != {"mean"}:
            raise ValueError("no mean")
        return Bags.of(arrays["mean"])
