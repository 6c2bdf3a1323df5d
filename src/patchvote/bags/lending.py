"""Lending: a store gets what it keeps of photos from the bags of another store, without the network.

Photos are recognised by their content. A file whose name, size and time of change a store knows has the content that it
had then. Others are read for it, if a few of them, read first, show that the stores know any. A lender takes the place
of an extractor; of a photo whose bag is damaged it lends nothing: that one is left to the network.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import random
from collections.abc import Container, Generator, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from ..errors import PhotoError, StoreError
from ..photos.decode import digest_of
from ..photos.find import Photo
from ..utils.remote import RemotePath
from .bags import Bags
from .entries import Entry
from .extract import Described, Extractor
from .keep import has_parts
from .store import Store
from .storing import stamp_of

CONTENT = "content "  # at the beginning of the name of an image in memory, before its digest
_TRIED = 64  # photos that are read to find out whether the stores know any: less than a second


@dataclasses.dataclass(frozen=True)
class Seen:
    """A photo whose content is known.

    Parameters
    ----------
    digest : str
        SHA-256 of the content.
    stamp : tuple of int
        Size and time of change of the file, as `stamp_of` returns them.
    """

    digest: str
    stamp: tuple[int, int] = (0, 0)


def recognised(photos: Mapping[str, Photo], stores: Sequence[Store]) -> dict[str, Seen]:
    """Return the contents of those photos that stores may have bags of, by their names in the stores.

    Parameters
    ----------
    photos : mapping
        Photos by the names that stores have for them.
    stores : sequence of Store
        Stores that may know them.
    """
    held = set(itertools.chain.from_iterable(map(digests_in, stores)))
    if not held:
        return {}
    seen = {name: Seen(name.removeprefix(CONTENT)) for name in photos if name.startswith(CONTENT)}
    stamps = {name: stamp_of(photo) for name, photo in photos.items()}
    for store in stores:
        for number, name in enumerate(store.names):
            if name in photos and name not in seen:
                entry = store.written(number)
                if entry.modified > 0 and (entry.size, entry.modified) == stamps[name]:
                    seen[name] = Seen(entry.digest, stamps[name])
    unknown = [name for name, photo in photos.items() if name not in seen and _is_near(photo)]
    tried = set(random.Random(0).sample(unknown, min(_TRIED, len(unknown))))
    found = dict(_read({name: photos[name] for name in unknown if name in tried}, stamps))
    if any(one.digest in held for one in found.values()):
        found |= dict(_read({name: photos[name] for name in unknown if name not in tried}, stamps))
    return {name: one for name, one in (seen | found).items() if one.digest in held}


def _is_near(photo: Photo) -> bool:
    """Whether reading a photo costs little."""
    return isinstance(photo.source, Path) and not isinstance(photo.source, RemotePath)


def _read(photos: Mapping[str, Photo], stamps: Mapping[str, tuple[int, int]]) -> Iterator[tuple[str, Seen]]:
    for name, photo in photos.items():
        with contextlib.suppress(OSError, ValueError, PhotoError):  # it cannot be read; the extractor reports why
            yield name, Seen(digest_of(photo), stamps[name])


def digests_in(store: Store) -> Iterator[str]:
    """Return the digests of all contents of which a store has bags."""
    return itertools.chain.from_iterable(shard.entries.digests for shard in store.shards)


class Lender:
    """Yields the bags of photos from a store, as an extractor would make them.

    Parameters
    ----------
    store : Store
        Store of whole bags. One that keeps something computed from them lends their means.
    extractor : Extractor
        Extractor that has made the bags.
    seen : mapping
        Photos whose content is known, by their names.
    """

    def __init__(self, store: Store, extractor: Extractor, seen: Mapping[str, Seen]) -> None:
        self.recipe, self.backbone = extractor.recipe, extractor.backbone
        held = set(digests_in(store))
        self.seen = {name: one for name, one in seen.items() if one.digest in held}
        entries = [Entry(name, None, one.digest) for name, one in self.seen.items()]
        self.store = store.by_content(entries) if entries else store
        self._numbers = {name: number for number, name in enumerate(self.seen)}

    def has(self, photo: Photo) -> bool:
        """Whether the store has a bag of the photo."""
        return photo.name in self._numbers

    def stream(self, photos: Iterable[Photo], known: Container[str] = ()) -> Generator[Described, None, None]:
        """Yield one result per photo, for photos that the store has; those whose bags are damaged are left out."""
        for photo in photos:
            number, seen = self._numbers[photo.name], self.seen[photo.name]
            written, stamp = self.store.written(number), seen.stamp
            if not any(stamp) and written.name == photo.name:
                stamp = written.size, written.modified
            bag = None
            if seen.digest not in known:
                with contextlib.suppress(StoreError):
                    bag = self._bag(number)
                if bag is None:
                    continue
            yield Described(photo, seen.digest, bag, stamp=stamp, count=int(self.store.extracted[number]))

    def _bag(self, number: int) -> Bags:
        bag = self.store.load([number], self.store.dtype)[0]
        return bag if has_parts(self.store.keep) else Bags.of([bag.values[:1]])  # its first row is the mean
