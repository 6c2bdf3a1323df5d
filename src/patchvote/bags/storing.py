"""Extract photos and write their bags to a store: the part of filling a store that many workers can share.

Here a photo is read, goes through the network, and its bag is written. Which photos to extract, and what to do about
photos that were moved, changed or cannot be read, is decided by one process (`fill`). Workers of an engine write their
shards themselves and report what they did, so that descriptors never travel.
"""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from pathlib import Path

from ..errors import PhotoError, StoreError
from ..photos.find import Photo
from ..utils.engine import Lost
from .entries import Entry
from .extract import Extractor
from .shard_writing import SHARD_BYTES, ShardWriter, cast
from .stock import Stock

_SETTLED = 2 * 10**9  # ns after which a file's time of change is trusted: a later change then gives another time
_PER_TASK = 64  # photos; their bags take two to three shards, and a worker that ends loses no more


@dataclasses.dataclass(frozen=True)
class Stored:
    """What became of one photo.

    Parameters
    ----------
    photo : Photo
        The photo.
    entry : Entry
        Metadata of the photo, as it was read.
    descriptors : int
        Number of descriptors that were extracted; 0 if the store has a bag of this content already.
    error : PhotoError or None
        Reason why the photo has no bag.
    """

    photo: Photo
    entry: Entry
    descriptors: int = 0
    error: PhotoError | None = None


def store_bags(
    photos: Iterable[Photo], extractor: Extractor, stock: Stock, writer: ShardWriter
) -> Generator[Stored, None, None]:
    """Extract photos one after the other, and hand their bags to the writer; contents in the stock are not extracted.

    Parameters
    ----------
    photos : iterable of Photo
        Photos, consumed as needed.
    extractor : Extractor
        Extractor that makes the bags.
    stock : Stock
        What the store is known to hold.
    writer : ShardWriter
        Writer of the store.

    Yields
    ------
    Stored
        One record per photo, in order.
    """
    stamps: dict[str, tuple[int, int]] = {}  # size and time of each file before it was read, by name

    def stamped() -> Iterator[Photo]:
        for photo in photos:
            stamps[photo.name] = stamp_of(photo)
            yield photo

    with contextlib.closing(extractor.stream(stamped(), stock.bags)) as stream:
        for item in stream:
            entry = Entry(item.photo.name, item.photo.label, item.digest, *stamps.pop(item.photo.name))
            if item.bag is None:
                yield Stored(item.photo, entry, error=item.error)
                continue
            try:
                writer.add(entry, cast(entry.name, item.bag, stock.dtype))
            except PhotoError as error:
                yield Stored(item.photo, entry, error=error)
            else:
                yield Stored(item.photo, entry, len(item.bag.values))


def stamp_of(photo: Photo) -> tuple[int, int]:
    """Return size and time of change of a photo's file, or zeros if they cannot be relied on.

    The time is the later of mtime and ctime: any program can set mtime, and ctime also changes with the file's name.
    """
    if not isinstance(photo.source, Path):
        return 0, 0
    try:
        status = photo.source.stat()
    except (OSError, ValueError):  # ValueError: not a valid file name
        return 0, 0
    changed = max(status.st_mtime_ns, status.st_ctime_ns)
    return (status.st_size, changed) if time.time_ns() - changed > _SETTLED else (0, 0)


@dataclasses.dataclass(frozen=True)
class StoringJob:
    """The job of a worker that fills a store: photos in, shards on disk, records out.

    Parameters
    ----------
    path : Path
        Folder of the store.
    extractor : function
        Makes the extractor on the worker, which loads the network once.
    fingerprint : str
        Fingerprint that the network must have.
    dtype : str
        Type of the descriptors on disk.
    shard_bytes : int
        Size of the descriptors at which a shard is written.
    """

    path: Path
    extractor: Callable[[], Extractor]
    fingerprint: str
    dtype: str
    shard_bytes: int
    name: str = "extract"
    per_task: int = _PER_TASK

    def start(self) -> Callable[[Sequence[Photo]], list[Stored]]:
        """Load the network, and return the function that stores the bags of some photos."""
        extractor = same_extractor(self.extractor, self.fingerprint)
        stock = Stock(self.path, extractor.recipe, self.fingerprint, extractor.backbone.spec.dim, self.dtype)

        def work(photos: Sequence[Photo]) -> list[Stored]:
            stock.look_around()
            # Closed before anything is reported: what is reported as stored is on disk.
            with contextlib.closing(writer_of(stock, self.shard_bytes)) as writer:
                return list(store_bags(photos, extractor, stock, writer))

        return work


def same_extractor(make: Callable[[], Extractor], fingerprint: str) -> Extractor:
    """Make the extractor of a worker, whose network must have this fingerprint.

    Raises
    ------
    StoreError
        The worker has another network of this name.
    """
    extractor = make()
    spec = extractor.backbone.spec
    if spec.fingerprint != fingerprint:
        raise StoreError(
            f"a worker has another network {spec.name!r} (checksum of its weights {spec.fingerprint}, expected "
            f"{fingerprint}). All machines of the cluster need the same file or package."
        )
    return extractor


def check_files(photos: Iterable[Photo]) -> None:
    """Refuse images in memory, which are not sent to workers; raises StoreError."""
    for photo in photos:
        if not isinstance(photo.source, Path):
            raise StoreError(f"{photo.name} is an image in memory: workers of an engine read photos from files.")


def lost_photo(name: str, lost: Lost) -> PhotoError:
    """Return the error of a photo that ended its worker twice."""
    return PhotoError(name, f"ended the process that read it, twice: {lost.reason}")


def writer_of(stock: Stock, shard_bytes: int = SHARD_BYTES) -> ShardWriter:
    """Return a writer for the store, whose shards are later than those of the stock."""
    kind = stock.recipe, stock.fingerprint, stock.dim, stock.dtype
    writer = ShardWriter(stock.path, *kind, shard_bytes=shard_bytes)
    writer.after = stock.last_number
    return writer
