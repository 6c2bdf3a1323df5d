"""Reading a part of every bag: enough to learn from, where photos are many."""

from __future__ import annotations

import itertools

import numpy as np
import numpy.typing as npt

from ..utils.float16 import to_float32
from .bags import Bags
from .store import Store

_ENOUGH = 36_000  # descriptors to learn from, but
_FEWEST_A_PHOTO = 24  # of every photo at least so many
_AT_ONCE = 6_000  # descriptors read at once: small enough to use the same memory again and again


def thinned(store: Store, seed: int, means: npt.NDArray[np.float32] | None = None) -> Bags:
    """Read the bags of all photos, of large collections a random part of every bag.

    The means of the whole bags are written into `means`, where it is given.

    Descriptors of one photo are much alike. With 1,500 photos of Scene-15, 24 of the 218 descriptors a photo gave the
    accuracy of all of them (93.5 and 93.6 % over three splits) in a tenth of the time. The first descriptor, which
    looks at the whole photo, is always among them.
    """
    most = max(_FEWEST_A_PHOTO, _ENOUGH // len(store))
    sizes = np.minimum(store.sizes, most)
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    n = int(offsets[-1])
    thin = Bags(np.empty((n, store.dim), np.float32), offsets, np.empty((n, 4), np.float32), np.empty(n, np.int16))
    order = iter(store.order_on_disk().tolist())
    for bags, _ in store.blocks(_AT_ONCE, indices=store.order_on_disk(), dtype=store.dtype):
        own = bags.means() if means is not None else None
        for index, (start, stop) in enumerate(itertools.pairwise(bags.offsets.tolist())):
            photo = next(order)
            if means is not None and own is not None:
                means[photo] = own[index]
            rows, place = _some(start, stop, most, seed, photo), slice(offsets[photo], offsets[photo + 1])
            to_float32(bags.values[rows], thin.values[place])
            thin.boxes[place], thin.level[place] = bags.boxes[rows], bags.level[rows]
    return thin


def _some(start: int, stop: int, most: int, seed: int, photo: int) -> npt.NDArray[np.int64]:
    """Choose descriptors of one photo, the same ones wherever its bag lies on disk."""
    if stop - start <= most:
        return np.arange(start, stop)
    others = np.random.default_rng([seed, photo]).choice(np.arange(start + 1, stop), most - 1, replace=False)
    return np.concatenate([[start], np.sort(others)])
