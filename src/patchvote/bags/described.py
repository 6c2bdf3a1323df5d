"""Describe photos: what is kept of the bag of each comes from the cache, or from the network, here or on workers."""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from pathlib import Path

from ..errors import PhotoError, StoreError
from ..photos.find import Photo
from ..utils.engine import Engine, Lost, in_order
from ..utils.files import temporary_folder
from ..utils.terminal import counted
from .cache import WHOLE, Folder, Kept, base_of, bound_of, root_of, trim
from .extract import Described, Extractor, ExtractorJob, check_files, lost_photo

_NAMED = 3  # damaged files that a sentence names


@dataclasses.dataclass
class Filled:
    """What was done so far, for progress and for the caller.

    Attributes
    ----------
    photos : int
        Number of requested photos.
    kept : int
        Photos that were in the cache or in the store already.
    extracted : int
        Photos that went through the network.
    skipped : list of PhotoError
        Photos that could not be read, with the reason.
    seconds : float
        Time taken so far.
    damaged : list of str
        Names of files that were found damaged; their photos were extracted again.
    """

    photos: int
    kept: int = 0
    extracted: int = 0
    skipped: list[PhotoError] = dataclasses.field(default_factory=list)
    seconds: float = 0.0
    damaged: list[str] = dataclasses.field(default_factory=list)

    @property
    def done(self) -> int:
        """Number of photos that are finished."""
        return self.kept + self.extracted + len(self.skipped)


def damage(files: Sequence[str]) -> list[str]:
    """Return one sentence about damaged files of a cache, however many there are; none if there are none.

    Examples
    --------
    >>> damage(["a.bag", "b.bag", "c.bag", "d.bag"])
    ['4 files of the cache were damaged and made again: a.bag, b.bag, c.bag, …']
    """
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
    what is kept, `whole` the whole bag if it has just come from the network. With an `engine`, its workers extract the
    photos and write the files of the cache, which this process reads: they have to see the folder under the same path;
    without a cache, that is a folder in the system's temporary folder. `progress` is called after each photo with what
    was done, which is added to `filled`.
    """
    filled = Filled(len(photos)) if filled is None else filled
    start = time.monotonic() - filled.seconds
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(_opened(extractor, kept, cache, engine))
        stream = (
            _extracted(photos, extractor, folder, filled)
            if engine is None
            else _from_workers(engine, photos, extractor, folder, filled)
        )
        for item, from_network in stack.enter_context(contextlib.closing(stream)):
            if item.error is not None:
                filled.skipped.append(item.error)
            elif from_network:
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


def _extracted(
    photos: Iterable[Photo], extractor: Extractor, folder: Folder, filled: Filled
) -> Generator[tuple[Described, bool], None, None]:
    """Yield what is kept of each photo, and whether it went through the network."""
    with contextlib.closing(extractor.stream(photos, folder)) as stream:
        for item in stream:
            answer = _answer(item, extractor, folder, filled)
            yield answer, answer.whole is not None


def _answer(item: Described, extractor: Extractor, folder: Folder, filled: Filled) -> Described:
    """Return what is kept of a photo that was read, maybe without a bag because the folder has it."""
    if item.error is None and item.bag is None:
        if (bag := folder.read(item.digest, filled.damaged)) is not None:
            return Described(item.photo, item.digest, bag)
        (item,) = extractor.stream([item.photo])
    item = reduced(item, folder.kept)
    if item.bag is not None:
        folder.write(item.digest, item.bag)
    return item


def reduced(item: Described, kept: Kept) -> Described:
    """Return what is kept of a bag that has come from the network, or the reason why nothing can be."""
    if item.bag is None:
        return item
    try:
        return Described(item.photo, item.digest, kept.of(item.bag), whole=item.bag)
    except ValueError as error:
        return Described(item.photo, item.digest, error=PhotoError(item.photo.name, str(error)))


# --- workers ----------------------------------------------------------------------------------------------------------


# What a worker reports of a photo: its digest, why it could not be read, if it was extracted, and damaged files.
_Written = tuple[str, PhotoError | None, bool, list[str]]


@dataclasses.dataclass(frozen=True)
class _WritingJob(ExtractorJob):
    """The job of a worker that fills a folder of a cache: photos in, files on disk, records out."""

    folder: Path
    kept: Kept

    def start(self) -> Callable[[Sequence[Photo]], list[_Written]]:
        """Load the network, and return the function that writes what is kept of some photos."""
        extractor = self.made()

        def work(photos: Sequence[Photo]) -> list[_Written]:
            folder, filled = Folder(self.folder, self.kept, must_write=True), Filled(len(photos))
            written = []
            for item, from_network in _extracted(photos, extractor, folder, filled):
                written.append((item.digest, item.error, from_network, filled.damaged))
                filled.damaged = []
            return written

        return work


def _from_workers(
    engine: Engine, photos: Sequence[Photo], extractor: Extractor, folder: Folder, filled: Filled
) -> Generator[tuple[Described, bool], None, None]:
    """Have the workers of an engine extract photos; yield what they have written, as `_extracted` does."""
    check_files(photos)
    job = _WritingJob(extractor.again, extractor.backbone.spec.fingerprint, Path(f"{folder.path}"), folder.kept)
    with contextlib.closing(engine.run(job, photos)) as results:
        for photo, written in zip(photos, in_order(results), strict=True):
            if isinstance(written, Lost):
                yield Described(photo, "", error=lost_photo(photo.name, written)), False
                continue
            digest, error, extracted, damaged = written
            filled.damaged += damaged
            if error is not None:
                yield Described(photo, digest, error=error), False
                continue
            if digest not in folder:
                raise StoreError(
                    f"{folder.path} does not hold here what the workers have written. Every machine of the cluster has "
                    "to see the folder of the cache under the same path; PATCHVOTE_CACHE names another."
                )
            folder.wrote |= extracted
            yield _answer(Described(photo, digest), extractor, folder, filled), extracted
