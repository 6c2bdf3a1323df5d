"""Fill a store with the bags of photos, without ever doing the same work twice or losing any.

A photo whose bag is there already is passed over: at once where its file's size and time of change are as they were,
after reading it where only its content is. A photo that was moved or got another label takes its bag along. Everything
else goes through the network. A photo that was moved away or has become unreadable is forgotten.

Finished photos are written a shard at a time, so an interruption loses at most the shard under way; running the same
command again goes on from there. Several processes may fill one store at once: each looks now and then at what the
others have written, and leaves that out.
"""

from __future__ import annotations

import contextlib
import dataclasses
import random
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from .bags import Bags
from .errors import PhotoError, StoreError
from .extract import Described, Extractor
from .files import remove_leavings
from .photos import Photo, Source, find_photos
from .shards import DTYPES, ENDING, Entry, Shard, cast, shard_files, write_shard

_SHARD_BYTES = 16 << 20
_SHARD_SECONDS = 20.0
_LOOK_AROUND = 64  # photos between two looks at what other processes have written
_SETTLED = 2 * 10**9  # ns after which a file's time of change is trusted: a later change then shows in it

Progress = Callable[["Filled"], None]


@dataclasses.dataclass
class Filled:
    """What filling a store did so far.

    Attributes
    ----------
    photos : int
        Photos that were asked for.
    kept : int
        Their bags were there already.
    extracted : int
        Went through the network now.
    reused : int
        Have the content of a photo whose bag was there, under another name or label: it was taken over.
    forgotten : int
        Are no longer in the store: moved to another name, or not readable any more.
    skipped : list of PhotoError
        Could not be read.
    others : int
        Photos of the store that are not among those asked for; they stay.
    descriptors : int
        Descriptors extracted now.
    seconds : float
        Time taken so far.
    """

    photos: int
    kept: int = 0
    extracted: int = 0
    reused: int = 0
    forgotten: int = 0
    skipped: list[PhotoError] = dataclasses.field(default_factory=list)
    others: int = 0
    descriptors: int = 0
    seconds: float = 0.0

    @property
    def done(self) -> int:
        """Photos that are dealt with."""
        return self.kept + self.extracted + self.reused + len(self.skipped)


def fill(
    path: str | Path,
    source: Source,
    extractor: Extractor,
    *,
    dtype: str | None = None,
    strict: bool = False,
    progress: Progress | None = None,
) -> Filled:
    """Bring the store at `path` up to date with the photos of `source`.

    Parameters
    ----------
    path : path
        Folder of the store; made where it does not exist.
    source : Source
        Photos, as `find_photos` takes them.
    extractor : Extractor
        Makes the bags.
    dtype : {"float16", "float32"}, optional
        Of the descriptors on disk; float16 for a new store.
    strict : bool, default False
        Raise at the first photo that cannot be read, instead of naming it in the answer and going on.
    progress : function, optional
        Called after each photo with what was done so far.

    Returns
    -------
    Filled
        What was done.

    Raises
    ------
    StoreError
        The folder holds something else, or bags of another recipe or network, or the disk is full.
    """
    if dtype is not None and dtype not in DTYPES:
        raise StoreError(f"dtype of a store must be one of {', '.join(DTYPES)}, got {dtype!r}.")
    return _Filling(Path(path), find_photos(source), extractor, dtype, strict, progress).run()


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
    ) -> None:
        self.path, self.photos, self.extractor = path, _distinct(photos), extractor
        self.asked_dtype, self.strict, self.progress = dtype, strict, progress
        self.dtype = dtype or "float16"
        self.result = Filled(len(self.photos))
        self.started = time.monotonic()
        self.known: dict[str, Entry] = {}  # by name
        self.bags: dict[str, tuple[Shard, int]] = {}  # by digest
        self.seen: set[Path] = set()
        self.stamps: dict[str, tuple[int, int]] = {}  # by name, from before the photo was read
        self.others: dict[str, str] = {}  # digests by name, of photos of the store that were not asked for

    def run(self) -> Filled:
        _make_folder(self.path)
        remove_leavings(self.path)
        self._look_around()
        claim = None if self.seen else self._claim()
        asked = {photo.name for photo in self.photos}
        self.others = {name: entry.digest for name, entry in self.known.items() if name not in asked}

        writer = _Writer(self.path, self.extractor, self.dtype)
        todo = [photo for photo in self.photos if not self._is_there(photo)]
        self.result.kept = len(self.photos) - len(todo)
        self._tell()
        with contextlib.closing(self.extractor.stream(self._draw(todo), self.bags)) as stream:
            try:
                for item in stream:
                    self._take(item, writer)
                    self._tell()
            finally:
                # Also on Ctrl-C: what went through the network is worth keeping.
                try:
                    writer.close()
                finally:
                    if claim is not None:
                        claim.unlink(missing_ok=True)  # real shards now say the same, or there is nothing to say
        self.result.skipped.sort(key=lambda error: error.name)
        self.result.others = len(self.others)
        return self.result

    def _claim(self) -> Path:
        """Say in an empty store of what kind it is to be, before the work begins.

        Of two processes that do so at once with different recipes, the one with the older shard stays.
        """
        mine = _Writer(self.path, self.extractor, self.dtype).write_empty()
        try:
            self._look_around()
        except StoreError:
            if shard_files(self.path)[0] != mine:
                mine.unlink(missing_ok=True)
                raise
        return mine

    def _draw(self, todo: list[Photo]) -> Iterator[Photo]:
        """Give out the photos to do, leaving out what other processes finish meanwhile.

        Each process goes through the groups in an order of its own, so that two of them seldom do the same work.
        """
        groups = [todo[start : start + _LOOK_AROUND] for start in range(0, len(todo), _LOOK_AROUND)]
        if not self.strict:  # there, the first bad photo is to be the first
            random.Random().shuffle(groups)
        for group in groups:
            self._look_around()
            for photo in group:
                if self._is_there(photo):
                    self.result.kept += 1
                else:
                    self.stamps[photo.name] = _stamp(photo)
                    yield photo

    def _look_around(self) -> None:
        """Take note of the shards that are new since the last look."""
        for path in shard_files(self.path):
            if path in self.seen:
                continue
            self.seen.add(path)
            try:
                shard = Shard.open(path)
            except StoreError:
                continue  # damaged: as if it were not there; `Store.open` and `patchvote info` name it
            self._check_kind(shard)
            for index, entry in enumerate(shard.entries):
                self.known[entry.name] = entry
                self.bags[entry.digest] = shard, index
            for name in shard.forgotten:
                self.known.pop(name, None)

    def _check_kind(self, shard: Shard) -> None:
        recipe, spec = self.extractor.recipe, self.extractor.backbone.spec
        if shard.kind == (recipe.sampling, recipe.activation, spec.fingerprint, spec.dim):
            if self.asked_dtype not in (None, shard.dtype):
                raise StoreError(
                    f"{self.path} keeps descriptors in {shard.dtype}, not {self.asked_dtype}. Leave the type out, or "
                    "choose another folder for the store."
                )
            self.dtype = shard.dtype
            return
        if (shard.recipe.sampling, shard.recipe.activation) == (recipe.sampling, recipe.activation):
            what = f"the same recipe but another network ({shard.fingerprint}, now {spec.fingerprint})"
        else:
            what = f"another recipe (there: {shard.recipe.to_json()}; asked: {recipe.to_json()})"
        raise StoreError(f"{self.path} was made with {what}. Choose another folder for the store.")

    def _is_there(self, photo: Photo) -> bool:
        """Whether the store has this photo, by its name, label, size and time of change, without reading it."""
        entry = self.known.get(photo.name)
        if entry is None or entry.label != photo.label or not entry.modified:
            return False
        return (entry.size, entry.modified) == _stamp(photo)

    def _take(self, item: Described, writer: _Writer) -> None:
        photo = item.photo
        entry = Entry(photo.name, photo.label, item.digest, *self.stamps.pop(photo.name))
        try:
            if item.error is not None:
                raise item.error
            if item.bag is not None:
                writer.add(entry, cast(photo.name, item.bag, self.dtype))
                self.result.extracted += 1
                self.result.descriptors += len(item.bag.values)
                return
        except PhotoError as error:
            if self.strict:
                raise
            self.result.skipped.append(error)
            if photo.name in self.known:  # what the store has of it is no longer what the user has
                self._forget(photo.name, writer)
            return
        before = self.known.get(photo.name)
        if before is not None and (before.digest, before.label) == (entry.digest, entry.label):
            self.result.kept += 1
            return
        for name in [name for name, digest in self.others.items() if digest == item.digest]:
            del self.others[name]  # it was moved here
            self._forget(name, writer)
        shard, index = self.bags[item.digest]
        writer.add(entry, cast(photo.name, shard.read(index, index + 1), self.dtype))
        self.result.reused += 1

    def _forget(self, name: str, writer: _Writer) -> None:
        writer.forgotten.append(name)
        self.known.pop(name, None)
        self.result.forgotten += 1

    def _tell(self) -> None:
        self.result.seconds = time.monotonic() - self.started
        if self.progress is not None:
            self.progress(self.result)


class _Writer:
    """Collects bags and writes a shard when there are enough, or when the last one was long ago.

    A shard is written on a thread of its own, while the next one fills: waiting for the disk costs no time. At most one
    is being written, so memory holds two.
    """

    def __init__(self, path: Path, extractor: Extractor, dtype: str) -> None:
        self.path, self.extractor = path, extractor
        self.nothing: npt.NDArray[Any] = np.empty((0, extractor.backbone.spec.dim), DTYPES[dtype])
        self.forgotten: list[str] = []
        self.entries: list[Entry] = []
        self.bags: list[Bags] = []
        self.bytes = 0
        self.since = time.monotonic()
        self.thread = ThreadPoolExecutor(1, thread_name_prefix="patchvote-writer")
        self.writing: Future[Path] | None = None

    def add(self, entry: Entry, bag: Bags) -> None:
        self.entries.append(entry)
        self.bags.append(bag)
        self.bytes += bag.values.nbytes
        if self.bytes >= _SHARD_BYTES or time.monotonic() - self.since > _SHARD_SECONDS:
            self.flush()

    def flush(self) -> None:
        """Begin to write what was collected; raises what writing the shard before raised."""
        self.since = time.monotonic()
        self.wait()
        if self.entries or self.forgotten:
            entries, bags, forgotten = self.entries, self.bags, self.forgotten
            self.entries, self.bags, self.forgotten, self.bytes = [], [], [], 0
            self.writing = self.thread.submit(self._write, entries, bags, forgotten)

    def write_empty(self) -> Path:
        """Write a shard that holds nothing but the recipe."""
        return self._write([], [], [])

    def _write(self, entries: list[Entry], bags: list[Bags], forgotten: list[str]) -> Path:
        bags = bags or [Bags(self.nothing, np.zeros(1, np.int64))]
        spec = self.extractor.backbone.spec
        return write_shard(self.path, self.extractor.recipe, spec.fingerprint, entries, bags, forgotten)

    def wait(self) -> None:
        writing, self.writing = self.writing, None
        if writing is not None:
            writing.result()

    def close(self) -> None:
        """Write the rest, and wait until it is on the disk."""
        try:
            self.flush()
            self.wait()
        finally:
            self.thread.shutdown()


def _distinct(photos: list[Photo]) -> list[Photo]:
    """Leave out what is listed twice; refuse two different photos under one name."""
    distinct: dict[str, Photo] = {}
    for photo in photos:
        other = distinct.setdefault(photo.name, photo)
        same_place = isinstance(photo.source, Path) and other.source == photo.source
        if other.label != photo.label or not (other.source is photo.source or same_place):
            raise StoreError(f"two different photos are both called {photo.name!r}. A store needs a name for each.")
    return list(distinct.values())


def _make_folder(path: Path) -> None:
    try:
        path.mkdir(parents=True, exist_ok=True)
        strangers = [p.name for p in path.iterdir() if not p.name.startswith(".") and p.suffix != ENDING]
    except OSError as error:
        raise StoreError(f"{path} cannot be used as a store: {error.strerror}.") from error
    if strangers:
        raise StoreError(f"{path} holds other files ({strangers[0]}, …). Choose a new or empty folder for the store.")


def _stamp(photo: Photo) -> tuple[int, int]:
    """Size and time of change of a photo's file, or zeros where they prove nothing.

    The later of the two times that a file has: one is of its content and can be set at will, the other of anything
    about it, a new name included.
    """
    if not isinstance(photo.source, Path):
        return 0, 0
    try:
        status = photo.source.stat()
    except (OSError, ValueError):  # ValueError: a name that no file can have
        return 0, 0
    changed = max(status.st_mtime_ns, status.st_ctime_ns)
    return (status.st_size, changed) if time.time_ns() - changed > _SETTLED else (0, 0)
