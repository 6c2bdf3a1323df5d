"""Baselines at equal resolution: one vector per image, pooled over the scales that the bags have seen.

A comparison of parts with the whole image is fair only if both see the same pixels. `dense` bags hold the cells of a
feature map at several scales; pooling the cells of one scale gives the image at that resolution, without any parts.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ...bags.bags import Bags
from ...voters.pooling import bag_vectors
from ...voters.power import ROOT
from .pooled import Floats, PooledClassifier

SCALES = ("whole", "first", "last", "each")


def check_scales(scales: str, known: tuple[str, ...] = SCALES) -> None:
    """Refuse a name of scales that is unknown."""
    if scales not in known:
        raise ValueError(f"scales must be one of {', '.join(known)}, got {scales!r}.")


def at_scale(bags: Bags, level: int) -> Bags:
    """Return the bags with the descriptors of one level only: 0 is the whole image, -1 the last scale.

    Raises
    ------
    ValueError
        A bag has no descriptor of this level.
    """
    level = int(bags.level.max()) if level < 0 else level
    chosen = bags.level == level
    sizes = np.add.reduceat(chosen, bags.offsets[:-1], dtype=np.int64)
    if (sizes == 0).any():
        raise ValueError(f"bag {int(sizes.argmin())} has no descriptor of level {level}.")
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    return Bags(bags.values[chosen], offsets, bags.boxes[chosen], bags.level[chosen])


def levels_of(scales: str, last: int) -> list[int]:
    """Return the levels of named scales, where the bags have levels up to `last`.

    Examples
    --------
    >>> levels_of("each", 2), levels_of("whole", 2), levels_of("last", 2)
    ([1, 2], [0], [2])
    """
    return {"whole": [0], "first": [1], "last": [last], "each": list(range(1, last + 1))}[scales]


class PooledSvm(PooledClassifier):
    """The image at the resolution of one scale or of each, pooled, and a linear SVM.

    The vector of a scale is the root of the mean of its cells, of length 1, as in `BagSVM`; those of several scales are
    concatenated.

    Parameters
    ----------
    scales : {"whole", "first", "last", "each"}, default "last"
        The descriptor of the whole image, the cells of the first or of the last scale, or those of each scale.
    random_state : int, default 0
        Seed of the folds in which C is chosen.
    """

    def __init__(self, scales: str = "last", random_state: int = 0) -> None:
        super().__init__(random_state)
        self.scales = scales

    def _check_settings(self) -> None:
        check_scales(self.scales)

    def _vectors_of_block(self, bags: Bags) -> Floats:
        levels = levels_of(self.scales, int(bags.level.max()))
        vectors: list[npt.NDArray[np.float64]] = [bag_vectors(at_scale(bags, level).means(), ROOT) for level in levels]
        return np.hstack(vectors).astype(np.float32)
