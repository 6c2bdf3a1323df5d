"""Fill a store with the bags of photos, without doing the same work twice and without losing any.

A photo whose bag is in the store is skipped: without reading it if size and time of change of its file are the same,
after reading it if only its content is. A photo that was moved or has another label reuses its bag; one that was moved
away or has become unreadable is removed. An interruption loses at most the current shard. Several processes may fill
one store at once: each checks from time to time what the others have written. With an engine, workers extract and
write; this process decides and counts.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import random
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from ..errors import DamagedShardError, PatchvoteError, StoreError
from ..photos.find import Photo, Source, find_photos
from ..utils.engine import Engine
from ..utils.remote import place
from ..utils.schema import brief
from ..utils.terminal import none_readable
from .bags import Bags
from .cache import WHOLE
from .described import Filled, extracted
from .extract import Described, Extractor
from .recipe import Recipe
from .shards import ENDING, SET_ASIDE, SHARD_BYTES, Entry, Shard, ShardWriter, is_own_name, shard_files
from .store import Store

_SETTLED = 2 * 10**9  # ns before the work began at which a file's last change is known to be in what was read
_LOOK_AROUND = 64  # photos between two checks of what other processes have written


@dataclasses.dataclass
class StoreFilled(Filled):
    """What was done so far to fill a store."""

    reused: int = 0  # photos whose content was in the store under another name or label: its bag was reused
    forgotten: int = 0  # photos removed from the store: moved to another name, or not readable any more
    others: int = 0  # photos of the store that were not requested; they stay
    descriptors: int = 0  # that were extracted

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
    strict : bool, default False
        Whether to raise an error for the first photo that cannot be read, instead of adding it to `skipped`.
    progress : function, optional
        Called after each photo with what was done so far.
    engine : Engine, optional
        Engine whose workers extract the photos and write the shards; by default this process does. The bags are the
        same. Photos have to be files then, and a photo that ends its worker twice is added to `skipped`.
    """
    if not isinstance(extractor, Extractor):
        raise PatchvoteError(f"extractor of fill must be an Extractor, got {brief(extractor)}.")
    photos, path, spec = distinct(find_photos(source)), place(path), extractor.backbone.spec
    _make_folder(path)
    index = _Index(path, extractor.recipe, spec.fingerprint, spec.dim, SHARD_BYTES)
    return _Filling(photos, extractor, index, strict, progress).run(engine)


def store_of(items: Iterable[Described], extractor: Extractor, folder: Path) -> Store:
    """Write the bags of a stream into a new store, and open it with the readable photos in the order of the stream."""
    _make_folder(folder)
    spec, names, errors = extractor.backbone.spec, [], []
    with contextlib.closing(ShardWriter(folder, extractor.recipe, spec.fingerprint, spec.dim)) as writer:
        for item in items:
            if item.bag is not None:
                names.append(item.photo.name)
                writer.add(Entry(item.photo.name, item.photo.label, item.digest), item.bag)
            elif item.error is not None:
                errors.append(item.error)
    if not names:
        raise StoreError(f"{none_readable(len(errors))} {errors[0]}" if errors else "there are no photos.")
    return Store.open(folder).only(names)


class _Index:
    """What a store holds, as far as this process has read it, for who fills it; others may write to it meanwhile.

    `known` has the entry of each photo by name, `bags` the shard and index of each bag by the digest of its content.
    """

    kept = WHOLE

    def __init__(self, path: Path, recipe: Recipe, fingerprint: str, dim: int, size: int) -> None:
        self.path, self.recipe, self.fingerprint, self.dim = path, recipe, fingerprint, dim
        self.known: dict[str, Entry] = {}
        self.bags: dict[str, tuple[Shard, int]] = {}
        self.damaged: list[str] = []
        self._seen: set[Path] = set()
        self._since = time.time_ns()
        self.look_around()
        self.writer = ShardWriter(path, recipe, fingerprint, dim, size)
        self.again = functools.partial(_Index, path, recipe, fingerprint, dim, size)

    def __contains__(self, digest: object) -> bool:
        return digest in self.bags

    def write(self, item: Described) -> None:
        """Write the bag of a photo, when there are enough for a shard."""
        if item.bag is not None:
            size, changed = _stamp_of(item.photo)
            if changed > self._since - _SETTLED:  # maybe after it was read
                size, changed = 0, 0
            self.writer.add(Entry(item.photo.name, item.photo.label, item.digest, size, changed), item.bag)

    def flush(self) -> None:
        """Write the bags that were not written yet, and look for those of others."""
        self.writer.finish()
        self.look_around()

    def forget(self, name: str) -> None:
        """Remove a photo from the store."""
        self.writer.forget(name)
        self.known.pop(name, None)

    def look_around(self) -> None:
        """Read the headers of the shards that are new since the last call, and set damaged ones aside."""
        for path in shard_files(self.path):
            if path in self._seen:
                continue
            self._seen.add(path)
            try:
                shard = Shard.open(path)
            except StoreError as error:  # maybe removed since, or not ours; `Store.open` and `patchvote info` name it
                if isinstance(error, DamagedShardError) and is_own_name(path):
                    with contextlib.suppress(OSError):  # another process has set it aside, or nobody can
                        path.rename(path.with_name(path.name + SET_ASIDE))
                    self.damaged.append(f"{error} It was set aside.")
                continue
            if shard.kind != (self.recipe.sampling, self.recipe.activation, self.fingerprint, self.dim):
                there = f"network {shard.fingerprint}, {shard.recipe.to_json()}"
                asked = f"network {self.fingerprint}, {self.recipe.to_json()}"
                raise StoreError(
                    f"{self.path} was made with another network or recipe (there: {there}; asked: {asked}). Choose "
                    "another folder for the store."
                )
            self.bags.update((digest, (shard, index)) for index, digest in enumerate(shard.digests))
            self.known.update((name, shard.entry(index)) for index, name in enumerate(shard.names))
            for name in shard.forgotten:
                self.known.pop(name, None)

    def bag_of(self, digest: str) -> Bags | None:
        """Return the bag of a content; None if it is damaged or gone."""
        if digest not in self.bags:
            self.look_around()  # it may be in a shard of a worker
        try:
            shard, index = self.bags[digest]
            return shard.bag(index)
        except (KeyError, StoreError):
            self.bags.pop(digest, None)
            return None


def _stamp_of(photo: Photo) -> tuple[int, int]:
    """Return size and time of change of a photo's file, or zeros.

    The time is the later of mtime and ctime: any program can set mtime, and ctime also changes with the file's name.
    """
    try:
        status = photo.source.stat() if isinstance(photo.source, Path) else None
    except (OSError, ValueError):  # ValueError: not a valid file name
        status = None
    return (0, 0) if status is None else (status.st_size, max(status.st_mtime_ns, status.st_ctime_ns))


class _Filling:
    """One run of `fill`."""

    def __init__(
        self, photos: list[Photo], extractor: Extractor, index: _Index, strict: bool, progress: Progress | None
    ) -> None:
        self.extractor, self.index, self.strict, self.progress = extractor, index, strict, progress
        self.result = StoreFilled(len(photos), damaged=index.damaged)
        self.started = time.monotonic()
        requested = {photo.name for photo in photos}
        # Digests by name, of photos of the store that were not requested.
        self.others = {name: entry.digest for name, entry in index.known.items() if name not in requested}
        self.missing = [photo for photo in photos if not self._is_there(photo)]
        self.result.kept = len(photos) - len(self.missing)

    def run(self, engine: Engine | None) -> StoreFilled:
        self._report()
        photos = self._draw() if engine is None else self.missing
        # Closed on Ctrl-C as well: extracted bags are kept.
        with (
            contextlib.closing(self.index.writer),
            contextlib.closing(extracted(photos, self.extractor, self.index, engine)) as stream,
        ):
            for item, new in stream:
                self._take(item, new)
                self._report()
        self.result.skipped.sort(key=lambda error: error.name)
        self.result.others = len(self.others)
        return self.result

    def _draw(self) -> Iterator[Photo]:
        """Yield the photos to extract, without those that other processes finish meanwhile.

        Each process has a different, random order of groups, so that two of them seldom do the same work.
        """
        groups = [self.missing[start : start + _LOOK_AROUND] for start in range(0, len(self.missing), _LOOK_AROUND)]
        if not self.strict:  # a strict run reports the first bad photo
            random.Random().shuffle(groups)
        for group in groups:
            self.index.look_around()
            for photo in group:
                if self._is_there(photo):
                    self.result.kept += 1
                else:
                    yield photo

    def _is_there(self, photo: Photo) -> bool:
        """Whether the store has this photo by name, label, size and time of change, without reading it."""
        entry = self.index.known.get(photo.name)
        if entry is None or entry.label != photo.label or not entry.modified:
            return False
        return (entry.size, entry.modified) == _stamp_of(photo)

    def _take(self, item: Described, new: int) -> None:
        """Record what became of a photo; reuse the bag of a content that is in the store."""
        result, photo, known = self.result, item.photo, self.index.known.get(item.photo.name)
        if item.error is not None:
            if self.strict:
                raise item.error
            result.skipped.append(item.error)
            if known is not None:  # the bag in the store is outdated
                self._forget(photo.name)
        elif new:
            result.extracted += 1
            result.descriptors += new
        elif known is not None and (known.digest, known.label) == (item.digest, photo.label):
            result.kept += 1
        elif (bag := self.index.bag_of(item.digest)) is not None:
            for name in [name for name, digest in self.others.items() if digest == item.digest]:
                del self.others[name]  # it was moved here
                self._forget(name)
            self.index.write(dataclasses.replace(item, bag=bag))
            result.reused += 1
        else:
            for again in extracted([photo], self.extractor, self.index):
                self._take(*again)

    def _forget(self, name: str) -> None:
        self.index.forget(name)
        self.result.forgotten += 1

    def _report(self) -> None:
        self.result.seconds = time.monotonic() - self.started
        if self.progress is not None:
            self.progress(self.result)


def distinct(photos: Sequence[Photo]) -> list[Photo]:
    """Return the photos without repetitions; refuse two different photos with one name."""
    by_name: dict[str, Photo] = {}
    for photo in photos:
        other = by_name.setdefault(photo.name, photo)
        same_place = isinstance(photo.source, Path) and other.source == photo.source
        if other.label != photo.label or not (other.source is photo.source or same_place):
            raise StoreError(f"two different photos are both called {photo.name!r}. A store needs a name for each.")
    return list(by_name.values())


def _make_folder(path: Path) -> None:
    try:
        path.mkdir(parents=True, exist_ok=True)
        foreign = [p.name for p in path.iterdir() if not p.name.startswith(".") and p.suffix not in (ENDING, SET_ASIDE)]
    except OSError as error:
        raise StoreError(f"{path} cannot be used as a store: {error.strerror or error}.") from error
    if foreign:
        raise StoreError(f"{path} holds other files ({foreign[0]}, …). Choose a new or empty folder for the store.")
