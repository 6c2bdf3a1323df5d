"""Fill a store with the bags of photos, without doing the same work twice and without losing any.

A photo whose bag is in the store is skipped: without reading it if size and time of change of its file are the same,
after reading it if only its content is. A photo that was moved or has another label reuses its bag. All others go
through the network. A photo that was moved away or has become unreadable is removed from the store.

Finished photos are written one shard at a time, so an interruption loses at most the current shard; running the same
command again continues from there. Several processes may fill one store at once: each checks from time to time what the
others have written, and skips that. With an engine, the workers extract and write; this process decides and counts.

A damaged shard is set aside, and its photos are extracted again. Only headers are verified here. A damaged bag is
detected when it is read, and the store that `up_to_date` returns then has its photos extracted again.
"""

from __future__ import annotations

import contextlib
import dataclasses
import random
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ..errors import ForeignStoreError, PatchvoteError, PhotoError, StoreError
from ..photos.find import Photo, Source, find_photos
from ..utils.counting import none_readable
from ..utils.engine import Engine, Lost
from ..utils.remote import place
from ..utils.schema import brief
from ..utils.temporary import remove_leavings
from .bags import Bags
from .entries import Entry
from .extract import Extractor
from .filled import Filled, Progress
from .keep import ALL, Keep, has_parts, keep_of
from .lending import Lender
from .shard import DTYPES, ENDING, SET_ASIDE
from .shard_writer import SHARD_BYTES, ShardWriter
from .shard_writing import cast
from .stock import Stock
from .store import Store
from .storing import Stored, StoringJob, lost_photo, stamp_of, store_bags, writer_of

_LOOK_AROUND = 64  # photos between two checks of what other processes have written


def fill(
    path: str | Path,
    source: Source,
    extractor: Extractor,
    *,
    keep: Keep | str | int | None = None,
    dtype: str | None = None,
    strict: bool = False,
    progress: Progress | None = None,
    engine: Engine | None = None,
) -> Filled:
    """Bring the store at `path` up to date with the photos of `source`.

    Parameters
    ----------
    path : path
        Folder of the store; created if it does not exist.
    source : Source
        Photos, in any form that `find_photos` accepts.
    extractor : Extractor
        Extractor that makes the bags.
    keep : "all", "mean", or int, optional
        What to keep of each photo: all descriptors, their mean, or at most a number of them, drawn at random with the
        photo's content as the seed. By default what the store keeps, and all for a new one.
    dtype : {"float16", "float32", "uint8"}, optional
        Type of the descriptors on disk; by default that of the store, float16 for a new one (float32 for means).
        "uint8" are codes with an offset and a scale per feature and photo.
    strict : bool, default False
        Whether to raise an error for the first photo that cannot be read, instead of adding it to `skipped`.
    progress : function, optional
        Called after each photo with what was done so far.
    engine : Engine, optional
        Engine whose workers extract the photos and write the shards; by default this process does. The bags are the
        same. Photos have to be files then, and a photo that ends its worker twice is added to `skipped`.

    Returns
    -------
    Filled
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
    kept = None if keep is None else keep_of(keep)
    if dtype == "uint8" and kept is not None and not has_parts(kept.name):
        raise StoreError("codes of 8 bits need several descriptors per photo: keep means in float16 or float32.")
    more: dict[str, Any] = {"keep": kept, "engine": engine}
    return _Filling(place(path), find_photos(source), extractor, dtype, strict, progress, **more).run()


def up_to_date(
    path: Path,
    photos: Sequence[Photo],
    extractor: Extractor,
    *,
    names: Sequence[str] | None = None,
    progress: Progress | None = None,
    engine: Engine | None = None,
    keep: Keep = ALL,
    whole: Callable[[Sequence[Entry]], Bags] | None = None,
    stored: Mapping[str, str] | None = None,
) -> tuple[Filled, Store]:
    """Bring a store up to date as `fill` does, and open a view of it with only these photos, as they were read.

    A bag that turns out to be damaged when it is read is extracted again.

    Parameters
    ----------
    path : Path
        Folder of the store.
    photos : list of Photo
        Photos to extract.
    names : list of str, optional
        Names of the photos in a store that several collections of photos share; equal names mean equal photos. Such a
        store keeps no labels, and a photo of one collection does not count as moved away from another.
    extractor, progress, engine
        As for `fill`.
    keep : Keep
        What the store keeps of each photo; a store that keeps something else is refused.
    whole : function, optional
        Returns the whole bags of photos, of which the store keeps less; see `Store.whole`.
    stored : mapping, optional
        Digests of photos that the caller has just read and put into the store, by their names there; they are not read
        again.

    Raises
    ------
    StoreError
        As for `fill`, and if no photo can be read, or if this process does not see what the workers have written.
    """
    shared = names is not None
    keys = [photo.name for photo in photos] if names is None else names
    to_fill = (
        distinct(photos)
        if names is None
        else [Photo(name, photo.source) for name, photo in dict(zip(names, photos, strict=True)).items()]
    )
    more: dict[str, Any] = {"shared": shared, "keep": keep}
    filled = _Filling(path, to_fill, extractor, None, False, progress, **more, engine=engine, stored=stored).run()
    reasons = {error.name: error.reason for error in filled.skipped}
    failed = {photo.name: reasons[key] for photo, key in zip(photos, keys, strict=True) if key in reasons}
    filled.skipped = [PhotoError(name, reason) for name, reason in failed.items()]
    if len(reasons) == len(to_fill):
        raise StoreError(f"{none_readable(len(to_fill))} {filled.skipped[0]}")

    def mend() -> None:
        again = _Filling(path, to_fill, extractor, None, False, None, **more, verify=True).run()
        filled.damaged += again.damaged
        filled.extracted += again.extracted
        filled.kept -= again.extracted

    seen = [
        Entry(photo.name, photo.label, filled.digests[key])
        for photo, key in zip(photos, keys, strict=True)
        if key in filled.digests
    ]
    try:
        return filled, Store.open(path).by_content(seen, mend, whole)
    except StoreError as error:
        if engine is None:
            raise
        raise StoreError(
            f"{path} does not hold here what the workers have written ({error}) Every machine of the cluster has to "
            "see the folder of the descriptors under the same path; PATCHVOTE_CACHE names another."
        ) from error


def lend(path: Path, photos: Sequence[Photo], lender: Lender, keep: Keep) -> dict[str, str]:
    """Put what a store keeps of photos into it, from the bags of another store; return the digests of these photos."""
    return _Filling(path, list(photos), lender, None, False, None, shared=True, keep=keep).run().digests


class _Filling:
    """One run of `fill`."""

    def __init__(
        self,
        path: Path,
        photos: list[Photo],
        extractor: Extractor | Lender,
        dtype: str | None,
        strict: bool,
        progress: Progress | None,
        *,
        shared: bool = False,
        verify: bool = False,
        engine: Engine | None = None,
        keep: Keep | None = None,
        stored: Mapping[str, str] | None = None,
    ) -> None:
        self.path, self.photos, self.extractor = path, distinct(photos), extractor
        self.strict, self.progress, self.shared, self.engine = strict, progress, shared, engine
        spec = extractor.backbone.spec
        self.stock = Stock(path, extractor.recipe, spec.fingerprint, spec.dim, dtype, verify, keep)
        self.result = Filled(len(self.photos), damaged=self.stock.damaged, digests=dict(stored or {}))
        self.started = time.monotonic()
        self.made: set[str] = set()  # digests of the bags that this run has passed to the writer
        self.others: dict[str, str] = {}  # digests by name, of photos of the store that were not requested

    def run(self) -> Filled:
        _make_folder(self.path)
        remove_leavings(self.path)
        self.stock.look_around()
        with contextlib.nullcontext() if self.stock.shards else self._claim():
            requested = {photo.name for photo in self.photos}
            if not self.shared:
                self.others = {name: entry.digest for name, entry in self.stock.known.items() if name not in requested}
            # Closed on Ctrl-C as well: extracted bags are kept.
            with contextlib.closing(writer_of(self.stock, SHARD_BYTES)) as writer:
                todo = [photo for photo in self.photos if photo.name not in self.result.digests]
                self.result.kept = len(self.photos) - len(todo)
                if not todo:
                    todo = self._lost()
                    self._report()
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
            if self.engine is None or isinstance(self.extractor, Lender)
            else self._from_workers(self.engine, self.extractor, todo)
        )
        with contextlib.closing(stream):
            for stored in stream:
                self._take(stored, writer)
                self._report()

    def _from_workers(self, engine: Engine, extractor: Extractor, todo: list[Photo]) -> Generator[Stored, None, None]:
        """Have the workers of an engine extract photos; yield what became of each."""
        images = [photo.name for photo in todo if not isinstance(photo.source, Path)]
        if images:
            raise StoreError(f"{images[0]} is an image in memory: workers of an engine read photos from files.")
        spec = extractor.backbone.spec
        kind = spec.fingerprint, self.stock.dtype, SHARD_BYTES, self.stock.keep
        job = StoringJob(self.path, extractor.again, *kind)
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
        self.result.digests[photo.name] = entry.digest
        return True

    def _take(self, stored: Stored, writer: ShardWriter) -> None:
        """Record what became of a photo that was read; reuse the bag of a content that is in the store."""
        photo, entry = stored.photo, stored.entry
        if stored.error is not None:
            if self.strict:
                raise stored.error
            self.result.skipped.append(stored.error)
            self.result.digests.pop(photo.name, None)
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
            self.result.digests[photo.name] = entry.digest
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
        bag, count = found
        writer.add(dataclasses.replace(entry, descriptors=count), cast(entry.name, bag, self.stock.dtype))
        self._keep(entry)
        self.result.reused += 1

    def _keep(self, entry: Entry) -> None:
        self.made.add(entry.digest)
        self.result.digests[entry.name] = entry.digest

    def _lost(self) -> list[Photo]:
        """Return the photos whose bags were in shards that turned out to be damaged in this run, and forget them."""
        stored = self.made | self.stock.bags.keys()
        lost = [photo for photo in self.photos if self.result.digests.get(photo.name, "") not in stored]
        lost = [photo for photo in lost if photo.name in self.result.digests]  # the others could not be read
        for photo in lost:
            del self.result.digests[photo.name]  # a lender may have no bag of it, and then it is not lost once more
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
