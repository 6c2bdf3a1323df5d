"""Bags within a memory budget: bags that fit are loaded once, larger ones stay in their store.

The budget covers the descriptors that the runner holds: one half is for the training photos of a split, the other for
its test photos. If the training photos do not fit, the voter gets their store and reads means or blocks from it. If the
test photos do not fit, they are read in blocks, once per voter. The memory of the voter comes on top: NBNN copies bags
that it is handed over, and keeps a store within its own budget (`memory`); DA-NBNN holds all photos.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ..bags.bags import Bags
from ..bags.store import Store

# In bytes: enough for Scene-15, whose training and test photos take 1.6 GB each as `dense` bags (SUN-397: 22 GB each).
DEFAULT_BUDGET = 4 << 30


def training_bags(store: Store, budget: int) -> Bags | Store:
    """Return the bags of training photos if they fit into half of the budget, or else their store."""
    return store.load()[0] if _size(store) <= budget // 2 else store


def test_bags(stores: Sequence[Store], budget: int) -> list[TestBags]:
    """Return the bags of several sets of test photos, in memory if all of them fit into half of the budget."""
    keep = sum(_size(store) for store in stores) <= budget // 2
    return [TestBags(store, keep, budget) for store in stores]


class TestBags:
    """Bags of test photos, read block by block.

    Parameters
    ----------
    store : Store
        Store of the test photos, in the order of prediction.
    keep : bool
        Whether all bags are loaded once and stay in memory.
    budget : int
        Bytes of memory; a block takes a quarter of it, since the next block is read while the last is still in use.
    """

    __test__ = False  # not a test, although its name begins like one

    def __init__(self, store: Store, keep: bool, budget: int) -> None:
        self.store = store
        self._kept = store.load()[0] if keep else None
        self._block = max(1, budget // 4 // _bytes_per_descriptor(store))

    def __len__(self) -> int:
        return len(self.store)

    @property
    def descriptors(self) -> int:
        """Number of descriptors in all bags."""
        return int(self.store.sizes.sum())

    def all(self) -> Bags | Store:
        """Return the bags if they are in memory, or else their store."""
        return self.store if self._kept is None else self._kept

    def blocks(self) -> Iterator[Bags]:
        """Yield the bags, block by block."""
        if self._kept is not None:
            yield self._kept
            return
        for bags, _ in self.store.blocks(self._block):
            yield bags


def _size(store: Store) -> int:
    return int(store.sizes.sum()) * _bytes_per_descriptor(store)


def _bytes_per_descriptor(store: Store) -> int:
    return 4 * store.dim + 18  # its features as float32, its box and its level
