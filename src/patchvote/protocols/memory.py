"""Bags within a memory budget: what fits is read once and kept, anything larger stays in its store.

The budget covers the descriptors that the runner holds: one half is for the training photos of a split, the other for
test photos. A set of training photos that is larger is handed to the voter as a store, from which it reads what it
needs: means, or blocks. Test photos that are larger come in blocks, once per voter. What a voter remembers comes on
top: NBNN keeps all training descriptors.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ..bags.bags import Bags
from ..bags.store import Store

# Bytes. Training and test photos of Scene-15 with `dense` bags take 1.6 GB each; those of SUN-397 would take 22 each.
DEFAULT_BUDGET = 4 << 30


def training_bags(store: Store, budget: int) -> Bags | Store:
    """Return the bags of training photos, where they fit into their half of the budget, or else their store."""
    return store.load()[0] if _size(store) <= budget // 2 else store


def test_bags(stores: Sequence[Store], budget: int) -> list[TestBags]:
    """Return the bags of several sets of test photos, kept where all of them fit into their half of the budget."""
    keep = sum(_size(store) for store in stores) <= budget // 2
    return [TestBags(store, keep, budget) for store in stores]


class TestBags:
    """Bags of test photos, to be asked about block by block.

    Parameters
    ----------
    store : Store
        The photos, in the order in which they are asked about.
    keep : bool
        Whether all of them are read once and kept.
    budget : int
        Bytes; a block takes a quarter of it, since the next one is read while the last one is still held.
    """

    __test__ = False  # no test, whatever pytest takes its name for

    def __init__(self, store: Store, keep: bool, budget: int) -> None:
        self.store = store
        self._kept = store.load()[0] if keep else None
        self._block = max(1, budget // 4 // _bytes_per_descriptor(store))

    def __len__(self) -> int:
        return len(self.store)

    @property
    def descriptors(self) -> int:
        """Number of descriptors of all photos."""
        return int(self.store.sizes.sum())

    def all(self) -> Bags | Store:
        """Return the bags where they are kept, or else their store."""
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
    return 4 * store.dim + 18  # as float32, with its box and its level
