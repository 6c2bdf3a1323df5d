"""Fill a store with the bags of photos, without ever doing the same work twice or losing any.

A photo whose bag is there already is passed over: at once where its file's size and time of change are as they were,
after reading it where only its content is. A photo that was moved or got another label takes its bag along. Everything
else goes through the network. Finished photos are written a shard at a time, so an interruption loses at most the
shard under way; running the same command again goes on from there. Several processes may fill one store at once:
each looks now and then at what the others have written, and leaves that out.
"""

from __future__ import annotations

import contextlib
import dataclasses
import random
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from .bags import Bags
from .errors import PhotoError, StoreError
from .extract import Described, Extractor
from .files import remove_leavings
from .photos import Photo, Source, find_photos
from .shards import DTYPES, ENDING, Entry, Shard, cast, write_shard

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
        Were moved or got another label: their bags were taken over.
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
    dtype: str = "float16",
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
    dtype : {"float16", "float32"}, default "float16"
        Of the descriptors on disk.
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
    if dtype not in DTYPES:
        raise StoreError(f"dtype of a store must be one of {', '.join(DTYPES)}, got {dtype!r}.")
    return _Filling(Path(path), find_photos(source), extractor, dtype, strict, progress).run()


class _Filling:
    """One run of `fill`."""

    def __init__(
        self, path: Path, photos: list[Photo], extractor: Extractor, dtype: str, strict: bool, progress: Progress | None
    ) -> None:
        self.path, self.photos, self.extractor = path, _distinct(photos), extractor
        self.dtype, self.strict, self.progress = dtype, strict, progress
        self.result = Filled(len(self.photos))
        self.started = time.monotonic()
        self.known: dict[str, Entry] = {}  # by name
        self.bags: dict[str, tuple[Shard, int]] = {}  # by digest
        self.seen: set[Path] = set()
        self.stamps: dict[str, tuple[int, int]] = {}  # by name, from before the photo was read

    def run(self) -> Filled:
        _make_folder(self.path)
        remove_leavings(self.path)
        self._look_around()
        self.result.others = len(self.known.keys() - {photo.name for photo in self.photos})

        writer = _Writer(self.path, self.extractor)
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
                writer.close()
        self.result.skipped.sort(key=lambda error: error.name)
        return self.result

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
        for path in sorted(self.path.glob(f"[!.]*{ENDING}")):
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

    def _check_kind(self, shard: Shard) -> None:
        recipe, spec = self.extractor.recipe, self.extractor.backbone.spec
        if shard.recipe == recipe and shard.fingerprint == spec.fingerprint:
            return
        if shard.recipe == recipe:
            what = f"the same recipe but another network ({shard.fingerprint}, now {spec.fingerprint})"
        else:
            what = f"another recipe:\n  there: {shard.recipe.to_json()}\n  asked: {recipe.to_json()}"
        raise StoreError(f"{self.path} was made with {what}\nChoose another folder for the store.")

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
            return
        before = self.known.get(photo.name)
        if before is not None and (before.digest, before.label) == (entry.digest, entry.label):
            self.result.kept += 1
            return
        shard, index = self.bags[item.digest]
        writer.add(entry, cast(photo.name, shard.read(index, index + 1), self.dtype))
        self.result.reused += 1

    def _tell(self) -> None:
        self.result.seconds = time.monotonic() - self.started
        if self.progress is not None:
            self.progress(self.result)


class _Writer:
    """Collects bags and writes a shard when there are enough, or when the last one was long ago.

    A shard is written on a thread of its own, while the next one fills: waiting for the disk costs no time. At most one
    is being written, so memory holds two.
    """

    def __init__(self, path: Path, extractor: Extractor) -> None:
        self.path, self.extractor = path, extractor
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
        if self.entries:
            entries, bags = self.entries, self.bags
            self.entries, self.bags, self.bytes = [], [], 0
            recipe, fingerprint = self.extractor.recipe, self.extractor.backbone.spec.fingerprint
            self.writing = self.thread.submit(write_shard, self.path, recipe, fingerprint, entries, bags)

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
        if other.label != photo.label or (other is not photo and other.source != photo.source):
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
    """Size and time of change of a photo's file, or zeros where they prove nothing."""
    if not isinstance(photo.source, Path):
        return 0, 0
    try:
        status = photo.source.stat()
    except OSError:
        return 0, 0
    if time.time_ns() - status.st_mtime_ns < _SETTLED:
        return 0, 0
    return status.st_size, status.st_mtime_ns
