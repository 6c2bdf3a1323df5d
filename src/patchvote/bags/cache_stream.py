"""What a model needs of photos to answer, one photo after the other: from the cache, or else from the network.

Answers come in order and as soon as they are known, in bounded memory. What the network makes is kept on the way, so
that other commands find it. Where the cache is used, a model answers from what it keeps, also for photos that have just
passed the network: the same command gives the same answers again. What is kept is rounded to float16, so they differ
from those without a cache by rounding (docs/small-stores.md).

Few photos are not looked for: the network takes less time for them than it takes to open a large cache.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from pathlib import Path

import numpy as np

from ..errors import PhotoError, StoreError
from ..photos.find import Photo
from .bags import Bags
from .codes import Codes
from .entries import Entry
from .extract import Described, Extractor
from .keep import Keep, has_parts

# Photos from which on the cache is used: to open one with 20,000 photos takes as long as the network for six (measured
# once, processor time), and writing a shard takes 0.7 MB beside the photos.
FEW = 16


def kept_stream(
    photos: Sequence[Photo],
    extractor: Extractor,
    needs: Callable[[], Keep],
    *,
    cache: str | Path | bool | None = None,
    damaged: list[str] | None = None,
) -> Generator[Described, None, None]:
    """Yield what is needed of the bags of photos, in order.

    Parameters
    ----------
    photos : sequence of Photo
        The photos.
    extractor : Extractor
        Extractor that makes bags.
    needs : function
        Returns what is needed of each bag; not called for few photos.
    cache : path, None or False
        Folder of the cache, the user's by default; False uses none.
    damaged : list of str, optional
        Gets the names of damaged shards that were set aside, as text for people.

    Yields
    ------
    Described
        One result per photo; its bag gives the scores of the whole bag.
    """
    if len(photos) < FEW or cache is False:
        yield from plain_stream(photos, extractor)
        return
    from .cache import base_of, in_cache, is_unusable, names_of, warn_unusable
    from .cache_files import root_of
    from .cached_stores import CachedStores

    root = root_of(cache)
    if root is None:
        yield from plain_stream(photos, extractor)
        return
    with in_cache(root, cache):
        names, need = names_of(photos), needs()
        stores, reader = CachedStores(base_of(root, extractor), photos, extractor, names=names), None
        try:
            if (path := stores.writable(need)) is not None:
                stores.borrow(need, path)
                reader = _Reader(path, extractor, need)
        except StoreError as error:
            if not is_unusable(error):
                raise
            warn_unusable(root, error)
        if reader is None:
            yield from plain_stream(photos, extractor)
            return
        try:
            with contextlib.closing(reader.run(photos, names)) as stream:
                yield from stream
        finally:
            if damaged is not None:
                damaged += reader.stock.damaged


def plain_stream(photos: Sequence[Photo], extractor: Extractor) -> Generator[Described, None, None]:
    """Yield the bags of photos, from the network alone."""
    with contextlib.closing(extractor.stream(photos)) as stream:
        for item in stream:
            yield dataclasses.replace(item, whole=item.bag)


def _kept(item: Described, need: Keep, dtype: str) -> Bags | Codes | None:
    """Return what a cache keeps of a bag; None for one whose numbers are too large for it."""
    from .storing import kept_of

    if item.bag is None:
        return None
    with contextlib.suppress(PhotoError):
        return kept_of(item.photo.name, item.bag, item.digest, need, dtype)
    return None


def _restored(item: Described, kept: Bags | Codes | None, need: Keep) -> Described:
    """Return the result for a photo of which this is kept; if nothing is, with its own bag."""
    if kept is None:
        return dataclasses.replace(item, whole=item.bag)
    bag = (kept.bag() if isinstance(kept, Codes) else kept).astype(np.float32)
    whole = item.bag if item.bag is not None or not has_parts(need.name) else bag
    return Described(item.photo, item.digest, need.restored(bag), whole=whole)


class _Reader:
    """Reads what one store of the cache keeps, and has the rest extracted and kept there."""

    def __init__(self, path: Path, extractor: Extractor, need: Keep) -> None:
        from .stock import Stock
        from .storing import writer_of

        spec = extractor.backbone.spec
        self.extractor, self.need = extractor, need
        self.stock = Stock(path, extractor.recipe, spec.fingerprint, spec.dim, None, keep=need)
        self.stock.look_around()
        self.writer = writer_of(self.stock)
        self.writes = True
        self.used: set[Path] = set()

    def run(self, photos: Sequence[Photo], names: Sequence[str]) -> Generator[Described, None, None]:
        from .cache_files import touch
        from .storing import stamp_of

        # Photos in order, with their names in the store, their stamps, and their digests if these are known already.
        waiting: deque[tuple[Photo, Entry]] = deque()

        def unknown() -> Iterator[Photo]:
            for photo, name in zip(photos, names, strict=True):
                stamp, known = stamp_of(photo), self.stock.known.get(name)
                is_known = known is not None and known.modified > 0 and (known.size, known.modified) == stamp
                digest = known.digest if known is not None and is_known else ""
                waiting.append((photo, Entry(name, None, digest, *stamp)))
                if not digest:
                    yield photo

        try:
            with contextlib.closing(self.extractor.stream(unknown(), self.stock.bags)) as stream:
                for item in stream:
                    yield from self._known(waiting)
                    yield self._answer(item, waiting.popleft()[1])
                yield from self._known(waiting)
        finally:
            self._write(None)
            touch(self.used)

    def _known(self, waiting: deque[tuple[Photo, Entry]]) -> Iterator[Described]:
        """Yield the photos at the front whose contents are known by their names."""
        while waiting and waiting[0][1].digest:
            photo, entry = waiting.popleft()
            yield self._answer(Described(photo, entry.digest), entry)

    def _answer(self, item: Described, entry: Entry) -> Described:
        if item.error is not None:
            return item
        if item.bag is None:
            if (found := self.stock.bags.get(item.digest)) is not None:
                self.used.add(found[0].path)
            if (kept := self.stock.bag_of(item.digest)) is not None:
                return _restored(item, kept[0], self.need)
            (item,) = self.extractor.stream([item.photo])  # its bag is damaged
            return self._answer(item, entry)
        bag = _kept(item, self.need, self.stock.dtype)
        if bag is not None:
            self._write((Entry(entry.name, None, item.digest, entry.size, entry.modified), bag, len(item.bag.values)))
        return _restored(item, bag, self.need)

    def _write(self, what: tuple[Entry, Bags | Codes, int] | None) -> None:
        """Keep what the network made of a photo, or write the rest; where that fails, say so and keep nothing more."""
        from .cache import is_unusable, warn_unusable
        from .storing import with_count

        try:
            if what is None:
                self.writer.close()
            elif self.writes:
                entry, bag, count = what
                self.writer.add(with_count(entry, bag, count), bag)
        except StoreError as error:
            if not is_unusable(error):
                raise
            self.writes = False
            warn_unusable(self.stock.path.parent, error)
