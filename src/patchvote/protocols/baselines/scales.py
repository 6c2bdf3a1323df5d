"""Baselines at equal resolution: one vector per image, pooled over the scales that the bags have seen.

A comparison of parts with the whole image is fair only if both see the same pixels. `dense` bags hold the cells of a
feature map at several scales; pooling the cells of one scale gives the image at that resolution, without any parts.
`patch` bags hold patches of several sizes, all of which pass the network at the same size: their first scale has the
smallest patches, the last the largest, and the mean of all of them ("all") has seen the same pixels as a vote of parts.
"""

from __future__ import annotations

import numpy as np

from ...bags.bags import Bags
from ...bags.store import Store
from ...voters.pooling import bag_vectors
from ...voters.power import has_negative, resolved
from .pooled import Floats, PooledClassifier, blocks_of

SCALES = ("whole", "first", "last", "each", "all")


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


def each_scale(bags: Bags, signed: bool = False) -> Bags:
    """Return bags of one descriptor: the means of the scales, side by side, so that all have the same weight.

    The vector of `BagSVM` has the roots of a mean. Absolute values that sum to 1 have roots of length 1, so that the
    scales have the same weight, as in the vector of `PooledSvm` with "each". Of `signed` features, `BagSVM` takes no
    roots; then the means themselves have length 1.
    """
    parts = []
    for level in levels_of("each", int(bags.level.max())):
        means = at_scale(bags, level).means().astype(np.float64)
        total = np.linalg.norm(means, 2 if signed else 1, axis=1, keepdims=True)
        parts.append(means / np.where(total > 0, total, 1))
    return Bags.of(np.hstack(parts).astype(np.float32))


def is_signed(images: Bags | Store) -> bool:
    """Whether the mean of some image has a negative feature, so that `BagSVM` takes no roots."""
    return any(has_negative(bags.means()) for bags in blocks_of(images))


class PooledSvm(PooledClassifier):
    """The image at the resolution of one scale or of each, pooled, and a linear SVM.

    The vector of a scale is the root of the mean of its cells, of length 1, as in `BagSVM`; those of several scales are
    concatenated. Of signed features, as in `BagSVM`, no roots are taken, and the mean vector of training is subtracted:
    tokens of a transformer have much in common, which would hide how they differ.

    Parameters
    ----------
    scales : {"whole", "first", "last", "each", "all"}, default "last"
        The descriptor of the whole image, the cells (or patches) of the first or of the last scale, those of each
        scale, or all descriptors of the bag in one mean, which is the vector that `BagSVM` learns from.
    random_state : int, default 0
        Seed of the folds in which C is chosen, and of the choice of held-out images.
    calibration : float, default 0
        Share of the images held out to calibrate probabilities, as in `PooledClassifier`.
    rejection : float, default 0.05
        Share of the correctly classified held-out images that may be rejected.
    """

    def __init__(
        self, scales: str = "last", random_state: int = 0, calibration: float = 0.0, rejection: float = 0.05
    ) -> None:
        super().__init__(random_state, calibration, rejection)
        self.scales = scales

    def _check_settings(self) -> None:
        check_scales(self.scales)

    def _prepare(self, images: Bags | Store) -> None:
        signed = is_signed(images)
        self.power_, self.centre_ = resolved("auto", signed), np.float32(0)
        if signed:
            self.centre_ = self._vectors(images).mean(axis=0)

    def _vectors_of_block(self, bags: Bags) -> Floats:
        if self.scales == "all":
            means = [bags.means()]
        else:
            means = [at_scale(bags, level).means() for level in levels_of(self.scales, int(bags.level.max()))]
        vectors = np.hstack([bag_vectors(one, self.power_) for one in means]).astype(np.float32)
        return np.asarray(vectors - self.centre_)
