"""Read the stores of several networks as one: descriptors are concatenated, as in `JoinedBackbone`."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from ..backbones.joined import unit
from ..bags.bags import Bags
from ..bags.store import Labels, Store
from ..errors import PatchvoteError
from ..utils.moments import Moments

_AT_ONCE = 4096  # descriptors of each network that are read at once


class JoinedStore(Store):
    """Bags of several networks: descriptors are normalised to length 1 and concatenated.

    Parameters
    ----------
    parts : sequence of Store
        One store per network. Photos that are missing in one of them are left out.

    Raises
    ------
    PatchvoteError
        The descriptors of the networks are at different positions.
    """

    def __init__(self, parts: Sequence[Store]) -> None:
        common = set.intersection(*(set(part.names) for part in parts))
        names = [name for name in parts[0].names if name in common]
        self._parts = [part.only(names) for part in parts]
        self.__dict__.update({key: value for key, value in vars(self._parts[0]).items() if key != "_parts"})
        self.dim = sum(part.dim for part in parts)
        if not all(np.array_equal(part.sizes, self.sizes) for part in self._parts):
            raise _position_error()

    @property
    def dtype(self) -> npt.DTypeLike:
        """Type of the descriptors: float32, since normalised descriptors are not the stored float16."""
        return np.float32

    def only(self, names: Sequence[str]) -> Store:
        """Return a store of these photos only, in this order."""
        return JoinedStore([part.only(names) for part in self._parts])

    def _load(self, chosen: npt.NDArray[np.int64], dtype: npt.DTypeLike) -> tuple[Bags, Labels]:
        offsets = np.concatenate([[0], np.cumsum(self.sizes[chosen])]).astype(np.int64)
        count, done = int(offsets[-1]), 0
        boxes, level = np.empty((count, 4), np.float32), np.empty(count, np.int16)
        joined = Bags(np.empty((count, self.dim), dtype), offsets, boxes, level)
        # A few photos at a time: those of all networks, as they came, would take more memory than the result.
        for blocks in zip(*(part.blocks(_AT_ONCE, indices=chosen) for part in self._parts), strict=True):
            first = blocks[0][0]
            self._join([bags for bags, _ in blocks], joined[done : done + len(first)])
            done += len(first)
        return joined, self.labels[chosen]

    def _join(self, parts: Sequence[Bags], joined: Bags) -> None:
        """Write the descriptors of all networks for some photos into `joined`."""
        start = 0
        for bags in parts:
            if not np.allclose(bags.boxes, parts[0].boxes, atol=1e-3):
                raise _position_error()
            joined.values[:, start : start + bags.dim] = unit(np.asarray(bags.values, np.float32))
            start += bags.dim
        joined.boxes[...], joined.level[...] = parts[0].boxes, parts[0].level
        if self.recipe.mode == "dense":
            whole_from_cells(joined)

    def moments(self, indices: npt.NDArray[np.int64]) -> tuple[Moments, npt.NDArray[np.int64]]:
        """Return no moments: those of the parts are of descriptors that are not normalised."""
        return Moments(), indices

    def content(self) -> int:
        """Return a checksum of the bags of all parts."""
        return hash(tuple(part.content() for part in self._parts)) & (2**62 - 1)


def joined(stores: Sequence[Store]) -> Store:
    """Return one store with the concatenated descriptors of all of these."""
    return stores[0] if len(stores) == 1 else JoinedStore(stores)


def whole_from_cells(bags: Bags) -> None:
    """Replace the descriptor of each whole image by the mean of its cells at the first scale, as `dense` defines it."""
    cells, whole = np.flatnonzero(bags.level == 1), np.flatnonzero(bags.level == 0)
    starts = np.searchsorted(bags.owner[cells], bags.owner[whole])
    counts = np.bincount(bags.owner[cells], minlength=len(bags))[bags.owner[whole]]
    bags.values[whole] = np.add.reduceat(bags.values[cells], starts, axis=0) / counts[:, None]


def _position_error() -> PatchvoteError:
    return PatchvoteError("networks can be joined only where their descriptors are at the same positions: use patch.")
