"""Lending: a store gets what it keeps of photos from the bags of another store, without the network.

A lender takes the place of an extractor. It knows photos by name, size and time of change. Of a photo that has changed,
or whose bag is damaged, it lends nothing: that one is left to the network.
"""

from __future__ import annotations

import contextlib
from collections.abc import Container, Generator, Iterable
from pathlib import Path

from ..errors import StoreError
from ..photos.find import Photo
from .bags import Bags
from .extract import Described, Extractor
from .keep import has_parts
from .store import Store
from .storing import stamp_of


class Lender:
    """Yields the bags of photos from a store, as an extractor would make them.

    Parameters
    ----------
    store : Store
        Store of whole bags. One that keeps something computed from them lends their means.
    extractor : Extractor
        Extractor that has made the bags.
    """

    def __init__(self, store: Store, extractor: Extractor) -> None:
        self.store, self.recipe, self.backbone = store, extractor.recipe, extractor.backbone
        self._numbers = {name: number for number, name in enumerate(store.names)}

    def has(self, photo: Photo) -> bool:
        """Whether the store has the photo as it is now, as far as its file tells without being read."""
        number = self._numbers.get(photo.name)
        if number is None:
            return False
        if not isinstance(photo.source, Path):
            return True  # the name of an image in memory is its content (`cache`)
        entry = self.store.written(number)
        return entry.modified > 0 and (entry.size, entry.modified) == stamp_of(photo)

    def stream(self, photos: Iterable[Photo], known: Container[str] = ()) -> Generator[Described, None, None]:
        """Yield one result per photo, for photos that the store has; those whose bags are damaged are left out."""
        for photo in photos:
            number = self._numbers[photo.name]
            digest, written = self.store.entries[number].digest, self.store.written(number)
            stamp = (written.size, written.modified) if written.name == photo.name else (0, 0)
            bag = None
            if digest not in known:
                with contextlib.suppress(StoreError):
                    bag = self._bag(number)
                if bag is None:
                    continue
            yield Described(photo, digest, bag, stamp=stamp, count=int(self.store.extracted[number]))

    def _bag(self, number: int) -> Bags:
        bag = self.store.load([number], self.store.dtype)[0]
        return bag if has_parts(self.store.keep) else Bags.of([bag.values[:1]])  # its first row is the mean
