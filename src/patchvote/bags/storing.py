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
from typing import TYPE_CHECKING

from ..errors import PhotoError, StoreError
from ..photos.find import Photo
from ..utils.engine import Lost
from .bags import Bags
from .codes import Codes
from .entries import Entry
from .extract import Described, Extractor
from .keep import Keep, has_parts
from .shard_writer import SHARD_BYTES, ShardWriter
from .shard_writing import cast, check_fits
from .stock import Stock

if TYPE_CHECKING:
    from .lending import Lender

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
    photos: Iterable[Photo], extractor: Extractor | Lender, stock: Stock, writer: ShardWriter
) -> Generator[Stored, None, None]:
    """Extract photos one after the other, and hand their bags to the writer; contents in the stock are not extracted.

    Parameters
    ----------
    photos : iterable of Photo
        Photos, consumed as needed.
    extractor : Extractor or Lender
        Extractor that makes the bags, or the store that lends them.
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
            stamp = stamps.pop(item.photo.name)
            entry = Entry(item.photo.name, item.photo.label, item.digest, *(item.stamp or stamp))
            yield _stored(item, entry, stock, writer)


def _stored(item: Described, entry: Entry, stock: Stock, writer: ShardWriter) -> Stored:
    if item.error is not None or item.bag is None:
        return Stored(item.photo, entry, error=item.error)
    count = item.count or len(item.bag.values)
    try:
        bag = kept_of(entry.name, item.bag, entry.digest, stock.keep, stock.dtype)
    except PhotoError as error:
        return Stored(item.photo, entry, error=error)
    writer.add(with_count(entry, bag, count), bag)
    return Stored(item.photo, entry, count)


def kept_of(name: str, bag: Bags, digest: str, keep: Keep, dtype: str) -> Bags | Codes:
    """Return what a store keeps of the bag of a photo, as it is stored.

    Raises
    ------
    PhotoError
        If a descriptor, or what is computed from the descriptors, does not fit into the type.
    """
    if not has_parts(keep.name):  # something is computed from the descriptors in float16
        check_fits(name, bag, "float16")
    return cast(name, keep.of(bag, digest), dtype)


def with_count(entry: Entry, kept: Bags | Codes, count: int) -> Entry:
    """Return an entry that tells how many descriptors a photo has, if fewer or others are kept."""
    return entry if len(kept.values) == count else dataclasses.replace(entry, descriptors=count)


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
    keep : Keep
        What the store keeps of each bag.
    """

    path: Path
    extractor: Callable[[], Extractor]
    fingerprint: str
    dtype: str
    shard_bytes: int
    keep: Keep
    name: str = "extract"
    per_task: int = _PER_TASK

    def start(self) -> Callable[[Sequence[Photo]], list[Stored]]:
        """Load the network, and return the function that stores the bags of some photos.

        Raises
        ------
        StoreError
            The worker has another network of this name.
        """
        extractor = self.extractor()
        spec = extractor.backbone.spec
        if spec.fingerprint != self.fingerprint:
            raise StoreError(
                f"a worker has another network {spec.name!r} (checksum of its weights {spec.fingerprint}, "
                f"expected {self.fingerprint}). All machines of the cluster need the same file or package."
            )
        stock = Stock(self.path, extractor.recipe, spec.fingerprint, spec.dim, self.dtype, keep=self.keep)

        def work(photos: Sequence[Photo]) -> list[Stored]:
            stock.look_around()
            # Closed before anything is reported: what is reported as stored is on disk.
            with contextlib.closing(writer_of(stock, self.shard_bytes)) as writer:
                return list(store_bags(photos, extractor, stock, writer))

        return work


def lost_photo(name: str, lost: Lost) -> PhotoError:
    """Return the error of a photo that ended its worker twice."""
    return PhotoError(name, f"ended the process that read it, twice: {lost.reason}")


def writer_of(stock: Stock, shard_bytes: int = SHARD_BYTES) -> ShardWriter:
    """Return a writer for the store, whose shards are later than those of the stock."""
    kind = stock.recipe, stock.fingerprint, stock.dim, stock.dtype
    writer = ShardWriter(stock.path, *kind, shard_bytes=shard_bytes, keep=stock.keep)
    writer.after = stock.last_number
    return writer
