"""Fill a store with the bags of photos, without doing the same work twice and without losing any.

A photo whose bag is in the store is skipped: without reading it if size and time of change of its file are the same,
after reading it if only its content is. A photo that was moved or has another label reuses its bag. All others go
through the network. A photo that was moved away or has become unreadable is removed from the store.

Finished photos are written one shard at a time, so an interruption loses at most the current shard; running the same
command again continues from there. Several processes may fill one store at once: each checks from time to time what the
others have written, and skips that. With an engine, the workers extract and write; this process decides and counts.

A shard with a damaged header is set aside, and its photos are extracted again. Damage to a bag is detected when the bag
is read.
"""

from __future__ import annotations

import contextlib
import dataclasses
import random
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from pathlib import Path

from ..errors import ForeignStoreError, PatchvoteError, StoreError
from ..photos.find import Photo, Source, find_photos
from ..utils.engine import Engine, Lost
from ..utils.files import remove_abandoned
from ..utils.remote import place
from ..utils.schema import brief
from ..utils.terminal import none_readable
from .cache import Filled
from .entries import Entry
from .extract import Described, Extractor
from .shard import DTYPES, ENDING, SET_ASIDE
from .shard_writing import SHARD_BYTES, ShardWriter, cast
from .stock import Stock
from .store import Store
from .storing import Stored, StoringJob, check_files, lost_photo, stamp_of, store_bags, writer_of

_LOOK_AROUND = 64  # photos between two checks of what other processes have written


@dataclasses.dataclass
class StoreFilled(Filled):
    """What was done so far to fill a store.

    Attributes
    ----------
    reused : int
        Photos whose content was in the store under another name or label; its bag was reused.
    forgotten : int
        Photos removed from the store: moved to another name, or not readable any more.
    others : int
        Photos of the store that were not requested; they stay.
    descriptors : int
        Number of descriptors that were extracted.
    """

    reused: int = 0
    forgotten: int = 0
    others: int = 0
    descriptors: int = 0

    @property
    def done(self) -> int:
        """Number of photos that are finished."""
        return super().done + self.reused


Progress = Callable[[StoreFilled], None]


def fill(
    path: str | Path,
    source: Source,
    extractor: Extractor,
    *,
    dtype: str | None = None,
    strict: bool = False,
    progress: Progress | None = None,
    engine: Engine | None = None,
) -> StoreFilled:
    """Bring the store at `path` up to date with the photos of `source`.

    Parameters
    ----------
    path : path
        Folder of the store; created if it does not exist.
    source : Source
        Photos, in any form that `find_photos` accepts.
    extractor : Extractor
        Extractor that makes the bags.
    dtype : {"float16", "float32"}, optional
        Type of the descriptors on disk; by default that of the store, float16 for a new one.
    strict : bool, default False
        Whether to raise an error for the first photo that cannot be read, instead of adding it to `skipped`.
    progress : function, optional
        Called after each photo with what was done so far.
    engine : Engine, optional
        Engine whose workers extract the photos and write the shards; by default this process does. The bags are the
        same. Photos have to be files then, and a photo that ends its worker twice is added to `skipped`.

    Returns
    -------
    StoreFilled
        What was done.

    Raises
    ------
    StoreError
        If the folder holds something else, or bags of another recipe or network, or if the disk is full.
    """
    if dtype is not None and dtype not in DTYPES:
        raise StoreError(f"dtype of a store must be one of {', '.join(DTYPES)}, got {dtype!r}.")
    if not isinstance(extractor, Extractor):
        raise PatchvoteError(f"extractor of fill must be an Extractor, got {brief(extractor)}.")
    return _Filling(place(path), find_photos(source), extractor, dtype, strict, progress, engine).run()


def up_to_date(
    path: Path,
    photos: Sequence[Photo],
    extractor: Extractor,
    *,
    progress: Progress | None = None,
    engine: Engine | None = None,
) -> tuple[StoreFilled, Store]:
    """Bring a store up to date as `fill` does, and open a view of it with only these photos, in this order.

    Raises
    ------
    StoreError
        As for `fill`, and if no photo can be read, or if this process does not see what the workers have written.
    """
    filled = fill(path, photos, extractor, progress=progress, engine=engine)
    skipped = {error.name for error in filled.skipped}
    names = [photo.name for photo in distinct(photos) if photo.name not in skipped]
    if not names:
        raise StoreError(f"{none_readable(len(skipped))} {filled.skipped[0]}")
    try:
        return filled, Store.open(path).only(names)
    except StoreError as error:
        if engine is None:
            raise
        raise StoreError(
            f"{path} does not hold here what the workers have written ({error}) Every machine of the cluster has to "
            "see the folder of the descriptors under the same path."
        ) from error


def store_of(items: Iterable[Described], extractor: Extractor, folder: Path) -> Store:
    """Write the bags of a stream into a new store, and open it with the photos in the order of the stream.

    Parameters
    ----------
    items : iterable of Described
        Photos with distinct names and their bags; those that could not be read are left out.
    extractor : Extractor
        Extractor that made the bags.
    folder : Path
        Folder of the store; it is empty, or does not exist.

    Raises
    ------
    StoreError
        If no photo can be read, or if the folder cannot be written.
    """
    _make_folder(folder)
    spec, names, errors = extractor.backbone.spec, [], []
    stock = Stock(folder, extractor.recipe, spec.fingerprint, spec.dim, None)
    with contextlib.closing(writer_of(stock)) as writer:
        for item in items:
            if item.bag is not None:
                names.append(item.photo.name)
                entry = Entry(item.photo.name, item.photo.label, item.digest)
                writer.add(entry, cast(item.photo.name, item.bag, stock.dtype))
            elif item.error is not None:
                errors.append(item.error)
    if not names:
        raise StoreError(f"{none_readable(len(errors))} {errors[0]}" if errors else "there are no photos.")
    return Store.open(folder).only(names)


class _Filling:
    """One run of `fill`."""

    def __init__(
        self,
        path: Path,
        photos: list[Photo],
        extractor: Extractor,
        dtype: str | None,
        strict: bool,
        progress: Progress | None,
        engine: Engine | None = None,
    ) -> None:
        self.path, self.photos, self.extractor = path, distinct(photos), extractor
        self.strict, self.progress, self.engine = strict, progress, engine
        spec = extractor.backbone.spec
        self.stock = Stock(path, extractor.recipe, spec.fingerprint, spec.dim, dtype)
        self.result = StoreFilled(len(self.photos), damaged=self.stock.damaged)
        self.started = time.monotonic()
        self.digests: dict[str, str] = {}  # of the requested photos as they were read, by name
        self.made: set[str] = set()  # digests of the bags that this run has passed to the writer
        self.others: dict[str, str] = {}  # digests by name, of photos of the store that were not requested

    def run(self) -> StoreFilled:
        _make_folder(self.path)
        remove_abandoned(self.path)
        self.stock.look_around()
        with contextlib.nullcontext() if self.stock.shards else self._claim():
            requested = {photo.name for photo in self.photos}
            self.others = {name: entry.digest for name, entry in self.stock.known.items() if name not in requested}
            # Closed on Ctrl-C as well: extracted bags are kept.
            with contextlib.closing(writer_of(self.stock, SHARD_BYTES)) as writer:
                todo = self.photos
                while todo:
                    missing = [photo for photo in todo if not self._is_there(photo)]
                    self.result.kept += len(todo) - len(missing)
                    self._report()
                    self._extract(missing, writer)
                    todo = self._lost()
        self.result.skipped.sort(key=lambda error: error.name)
        self.result.others = len(self.others)
        return self.result

    @contextlib.contextmanager
    def _claim(self) -> Iterator[None]:
        """Reserve an empty store for the recipe, while the first bags are extracted.

        Of two processes that do so at once with different recipes, the one with the older claim continues.
        """
        with writer_of(self.stock, SHARD_BYTES).claim() as self.stock.claim:
            self.stock.look_around()
            yield

    def _extract(self, todo: list[Photo], writer: ShardWriter) -> None:
        stream = (
            store_bags(self._draw(todo), self.extractor, self.stock, writer)
            if self.engine is None
            else self._from_workers(self.engine, todo)
        )
        with contextlib.closing(stream):
            for stored in stream:
                self._take(stored, writer)
                self._report()

    def _from_workers(self, engine: Engine, todo: list[Photo]) -> Generator[Stored, None, None]:
        """Have the workers of an engine extract photos; yield what became of each."""
        check_files(todo)
        fingerprint = self.extractor.backbone.spec.fingerprint
        job = StoringJob(self.path, self.extractor.again, fingerprint, self.stock.dtype, SHARD_BYTES)
        with contextlib.closing(engine.run(job, todo)) as results:
            for number, stored in results:
                if isinstance(stored, Lost):
                    photo = todo[number]
                    stored = Stored(photo, Entry(photo.name, photo.label, ""), error=lost_photo(photo.name, stored))
                elif stored.error is None and not stored.descriptors and stored.entry.digest not in self.stock.bags:
                    self.stock.look_around()  # it may be in a shard of a worker that has ended
                yield stored

    def _draw(self, todo: list[Photo]) -> Iterator[Photo]:
        """Yield the photos to extract, without those that other processes finish meanwhile.

        Each process has a different, random order of groups, so that two of them seldom do the same work.
        """
        groups = [todo[start : start + _LOOK_AROUND] for start in range(0, len(todo), _LOOK_AROUND)]
        if not self.strict:  # a strict run reports the first bad photo
            random.Random().shuffle(groups)
        for group in groups:
            self.stock.look_around()
            for photo in group:
                if self._is_there(photo):
                    self.result.kept += 1
                else:
                    yield photo

    def _is_there(self, photo: Photo) -> bool:
        """Whether the store has this photo by name, label, size and time of change, without reading it."""
        entry = self.stock.known.get(photo.name)
        if entry is None or entry.label != photo.label or not entry.modified:
            return False
        if (entry.size, entry.modified) != stamp_of(photo):
            return False
        self.digests[photo.name] = entry.digest
        return True

    def _take(self, stored: Stored, writer: ShardWriter) -> None:
        """Record what became of a photo that was read; reuse the bag of a content that is in the store."""
        photo, entry = stored.photo, stored.entry
        if stored.error is not None:
            if self.strict:
                raise stored.error
            self.result.skipped.append(stored.error)
            self.digests.pop(photo.name, None)
            if photo.name in self.stock.known:  # the bag in the store is outdated
                self._forget(photo.name, writer)
            return
        if stored.descriptors:
            self._keep(entry)
            self.result.extracted += 1
            self.result.descriptors += stored.descriptors
            return
        before = self.stock.known.get(photo.name)
        if before is not None and (before.digest, before.label) == (entry.digest, entry.label):
            self.digests[photo.name] = entry.digest
            self.result.kept += 1
            return
        found = self.stock.bag_of(entry.digest)
        if found is None:
            for again in store_bags([photo], self.extractor, self.stock, writer):
                self._take(again, writer)
            return
        for name in [name for name, digest in self.others.items() if digest == entry.digest]:
            del self.others[name]  # it was moved here
            self._forget(name, writer)
        writer.add(entry, cast(entry.name, found, self.stock.dtype))
        self._keep(entry)
        self.result.reused += 1

    def _keep(self, entry: Entry) -> None:
        self.made.add(entry.digest)
        self.digests[entry.name] = entry.digest

    def _lost(self) -> list[Photo]:
        """Return the photos whose bags were in shards that turned out to be damaged in this run, and forget them."""
        stored = self.made | self.stock.bags.keys()
        lost = [photo for photo in self.photos if self.digests.get(photo.name, "") not in stored]
        lost = [photo for photo in lost if photo.name in self.digests]  # the others could not be read
        for photo in lost:
            del self.digests[photo.name]
        self.result.kept -= len(lost)
        return lost

    def _forget(self, name: str, writer: ShardWriter) -> None:
        writer.forget(name)
        self.stock.known.pop(name, None)
        self.result.forgotten += 1

    def _report(self) -> None:
        self.result.seconds = time.monotonic() - self.started
        if self.progress is not None:
            self.progress(self.result)


def distinct(photos: Sequence[Photo]) -> list[Photo]:
    """Return the photos without repetitions; refuse two different photos with one name.

    Raises
    ------
    StoreError
        If two photos of one name differ in source or label.
    """
    by_name: dict[str, Photo] = {}
    for photo in photos:
        other = by_name.setdefault(photo.name, photo)
        same_place = isinstance(photo.source, Path) and other.source == photo.source
        if other.label != photo.label or not (other.source is photo.source or same_place):
            raise StoreError(f"two different photos are both called {photo.name!r}. A store needs a name for each.")
    return list(by_name.values())


def _make_folder(path: Path) -> None:
    if path.is_file():
        raise StoreError(f"{path} cannot be used as a store: a store is a folder, not a file. Choose another name.")
    try:
        path.mkdir(parents=True, exist_ok=True)
        foreign = [p.name for p in path.iterdir() if not p.name.startswith(".") and p.suffix not in (ENDING, SET_ASIDE)]
    except OSError as error:
        raise StoreError(f"{path} cannot be used as a store: {error.strerror or error}.") from error
    if foreign:
        raise ForeignStoreError(
            f"{path} holds other files ({foreign[0]}, …). Choose a new or empty folder for the store."
        )
