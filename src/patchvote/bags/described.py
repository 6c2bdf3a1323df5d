"""Describe photos: what is kept of the bag of each comes from files, or from the network, here or on workers.

The files are those of a cache (`described`) or of a store (`fill`).
"""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections.abc import Callable, Container, Generator, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Protocol

from ..errors import PhotoError, StoreError
from ..photos.find import Photo
from ..utils.engine import Engine, Lost, in_order
from ..utils.files import temporary_folder
from ..utils.terminal import counted
from .cache import WHOLE, Folder, Kept, base_of, bound_of, root_of, trim
from .extract import Described, Extractor, lost_photo

_NAMED = 3  # damaged files that a sentence names


@dataclasses.dataclass
class Filled:
    """What was done so far, for progress and for the caller."""

    photos: int  # requested
    kept: int = 0  # photos that were in the cache or in the store already
    extracted: int = 0  # photos that went through the network
    skipped: list[PhotoError] = dataclasses.field(default_factory=list)  # photos that could not be read
    seconds: float = 0.0  # taken so far
    damaged: list[str] = dataclasses.field(default_factory=list)  # files whose photos were extracted again

    @property
    def done(self) -> int:
        """Number of photos that are finished."""
        return self.kept + self.extracted + len(self.skipped)


def damage(files: Sequence[str]) -> list[str]:
    """Return one sentence about damaged files of a cache, however many there are; none if there are none."""
    named = ", ".join([*files[:_NAMED], *(["…"] if len(files) > _NAMED else [])])
    what = counted(len(files), "file of the cache was", "files of the cache were")
    return [f"{what} damaged and made again: {named}"] if files else []


def described(
    photos: Sequence[Photo],
    extractor: Extractor,
    kept: Kept = WHOLE,
    *,
    cache: str | Path | bool | None = None,
    engine: Engine | None = None,
    progress: Callable[[Filled], None] | None = None,
    filled: Filled | None = None,
) -> Generator[Described, None, None]:
    """Yield what is kept of the bags of photos, in order: from the cache, or else from the network.

    `cache` is a folder, the user's by default; False keeps nothing. What is yielded does not depend on it: `bag` is
    what is kept, `whole` the whole bag if it has just come from the network. With an `engine`, its workers write the
    files of the cache (without one, of a temporary folder), which this process reads: they have to see the folder under
    the same path. `progress` is called after each photo with what was done, which is added to `filled`.
    """
    filled = Filled(len(photos)) if filled is None else filled
    start = time.monotonic() - filled.seconds
    with (
        _opened(extractor, kept, cache, engine) as folder,
        contextlib.closing(extracted(photos, extractor, folder, engine)) as stream,
    ):
        for item, new in stream:
            if item.error is None and item.bag is None:
                if engine is not None and item.digest not in folder:
                    raise StoreError(
                        f"{folder.path} does not hold here what the workers have written. Every machine of the cluster "
                        "has to see the folder of the cache under the same path; PATCHVOTE_CACHE names another."
                    )
                if (bag := folder.read(item.digest, filled.damaged)) is not None:
                    item = dataclasses.replace(item, bag=bag)
                else:
                    (described,) = extractor.stream([item.photo])
                    item = _written(described, folder)
            folder.wrote |= new > 0
            if item.error is not None:
                filled.skipped.append(item.error)
            elif new or item.whole is not None:
                filled.extracted += 1
            else:
                filled.kept += 1
            filled.seconds = time.monotonic() - start
            if progress is not None:
                progress(filled)
            yield item


@contextlib.contextmanager
def _opened(
    extractor: Extractor, kept: Kept, cache: str | Path | bool | None, engine: Engine | None
) -> Iterator[Folder]:
    """Open the folder of a cache, or a temporary one for workers; then cut the cache down to its bound."""
    root, bound = root_of(cache), bound_of(cache)
    with contextlib.ExitStack() as stack:
        if root is None and engine is not None:
            root, bound = stack.enter_context(temporary_folder()), None
        fingerprint = extractor.backbone.spec.fingerprint
        folder = Folder(root and base_of(root, extractor.recipe, fingerprint) / kept.name, kept)
        try:
            yield folder
        finally:
            if root is not None and folder.wrote:
                trim(root, bound)


def reduced(item: Described, kept: Kept) -> Described:
    """Return what is kept of a bag that has come from the network, or the reason why nothing can be."""
    if item.bag is None:
        return item
    try:
        return dataclasses.replace(item, bag=kept.of(item.bag), whole=item.bag)
    except ValueError as error:
        return dataclasses.replace(item, bag=None, error=PhotoError(item.photo.name, str(error)))


# --- from the network into files --------------------------------------------------------------------------------------


class BagFiles(Container[str], Protocol):
    """Files of bags, by the digests of photos."""

    @property
    def again(self) -> Callable[[], BagFiles]:
        """Makes the same files for a worker."""

    @property
    def kept(self) -> Kept:
        """What is kept of a bag."""

    def write(self, item: Described) -> None:
        """Write what is kept of a photo, at the latest when `flush` is called."""

    def flush(self) -> None:
        """Write the rest, so that others can read it."""


def extracted(
    photos: Iterable[Photo], extractor: Extractor, files: BagFiles, engine: Engine | None = None
) -> Generator[tuple[Described, int], None, None]:
    """Extract the photos that files do not have, and write them there; yield all, with the number of new descriptors.

    A photo that the files had has no bag, nor has one that a worker of an engine has written.
    """
    if engine is None:
        with contextlib.closing(extractor.stream(photos, files)) as stream:
            for item in stream:
                yield _written(item, files), 0 if item.bag is None else len(item.bag.values)
        return
    photos = list(photos)
    for photo in photos:
        if not isinstance(photo.source, Path):
            raise StoreError(f"{photo.name} is an image in memory: workers of an engine read photos from files.")
    job = _ExtractingJob(extractor.again, extractor.backbone.spec.fingerprint, files.again)
    with contextlib.closing(engine.run(job, photos)) as results:
        for photo, result in zip(photos, in_order(results), strict=True):
            if isinstance(result, Lost):
                result = Described(photo, error=lost_photo(photo.name, result)), 0
            yield result


def _written(item: Described, files: BagFiles) -> Described:
    """Write a photo that has come from the network into files."""
    item = reduced(item, files.kept)
    if item.bag is not None:
        files.write(item)
    return item


@dataclasses.dataclass(frozen=True)
class _ExtractingJob:
    """The job of a worker that extracts photos into files."""

    extractor: Callable[[], Extractor]
    fingerprint: str
    files: Callable[[], BagFiles]
    name: str = "extract"
    per_task: int = 64  # photos; a worker that ends loses no more

    def start(self) -> Callable[[Sequence[Photo]], list[tuple[Described, int]]]:
        """Load the network, and return the function that extracts some photos."""
        extractor, files = self.extractor(), self.files()
        spec = extractor.backbone.spec
        if spec.fingerprint != self.fingerprint:
            raise StoreError(
                f"a worker has another network {spec.name!r} (checksum of its weights {spec.fingerprint}, expected "
                f"{self.fingerprint}). All machines of the cluster need the same file or package."
            )

        def work(photos: Sequence[Photo]) -> list[tuple[Described, int]]:
            done = [
                (dataclasses.replace(item, bag=None, whole=None), new)
                for item, new in extracted(photos, extractor, files)
            ]
            files.flush()  # what is reported is on disk
            return done

        return work
