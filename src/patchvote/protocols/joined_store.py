"""Stores of several networks that read as one: their descriptors stand side by side, as in `JoinedBackbone`."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from ..backbones.joined import unit
from ..bags.bags import Bags
from ..bags.store import Labels, Store
from ..errors import PatchvoteError


class JoinedStore(Store):
    """The bags of several networks, each descriptor brought to length 1, side by side.

    Parameters
    ----------
    parts : sequence of Store
        One store per network. Photos that one of them does not hold are left out.

    Raises
    ------
    PatchvoteError
        The networks did not look at the same places.
    """

    def __init__(self, parts: Sequence[Store]) -> None:
        common = set.intersection(*(set(part.names) for part in parts))
        names = [name for name in parts[0].names if name in common]
        self._parts = [part.only(names) for part in parts]
        self.__dict__.update({key: value for key, value in vars(self._parts[0]).items() if key != "_parts"})
        self.dim = sum(part.dim for part in parts)
        if not all(np.array_equal(part.sizes, self.sizes) for part in self._parts):
            raise _other_places()

    @property
    def dtype(self) -> npt.DTypeLike:
        """Type of the descriptors: those of length 1 are not the halves that are kept."""
        return np.float32

    def only(self, names: Sequence[str]) -> Store:
        """Return the store as if it held these photos only, in this order."""
        return JoinedStore([part.only(names) for part in self._parts])

    def load(self, indices: npt.ArrayLike | None = None, dtype: npt.DTypeLike = np.float32) -> tuple[Bags, Labels]:
        """Read the bags and labels of all photos, or of those with the numbers `indices`, in that order."""
        first, labels = self._parts[0].load(indices)
        values, start = np.empty((len(first.values), self.dim), dtype), 0
        for part in self._parts:  # one after the other, so that no more than one is in memory beside the answer
            bags = first if part is self._parts[0] else part.load(indices)[0]
            if not np.allclose(bags.boxes, first.boxes, atol=1e-3):
                raise _other_places()
            values[:, start : start + part.dim] = unit(np.asarray(bags.values, np.float32))
            start += part.dim
        joined = Bags(values, first.offsets, first.boxes, first.level)
        if self.recipe.mode == "dense":
            _whole_from_cells(joined)
        return joined, labels


def joined(stores: Sequence[Store]) -> Store:
    """Return one store that reads as all of these side by side."""
    return stores[0] if len(stores) == 1 else JoinedStore(stores)


def _whole_from_cells(bags: Bags) -> None:
    """Make the descriptor of each whole image the mean of its cells of the first scale, as `dense` has it."""
    rows, whole = np.flatnonzero(bags.level == 1), np.flatnonzero(bags.level == 0)
    starts = np.searchsorted(bags.owner[rows], bags.owner[whole])
    counts = np.bincount(bags.owner[rows], minlength=len(bags))[bags.owner[whole]]
    bags.values[whole] = np.add.reduceat(bags.values[rows], starts, axis=0) / counts[:, None]


def _other_places() -> PatchvoteError:
    return PatchvoteError("networks whose descriptors stand side by side must look at the same places: use patch.")
