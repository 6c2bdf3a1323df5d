"""Extractor: makes bags from photos, as fast as the network allows.

Photos are read and decoded, then their views (the parts that the network sees) are resized and go through the network,
all on the same threads, each network call on one. Views of the same size share a batch, whichever photo they come from.
Which ones do depends on the order of the photos and the number of threads, never on timing; the bags depend on neither.
"""

from __future__ import annotations

import dataclasses
import functools
from collections import deque
from collections.abc import Container, Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from PIL import Image

from ..errors import BrokenNetworkError, NetworkError, PatchvoteError, PhotoError
from ..networks import Backbone, load_pinned
from ..networks.base import describe, mean_of_cells
from ..photos.decode import Decode, Pixels, pictures, resized
from ..photos.find import Photo, Source, find_photos
from ..utils.arrays import all_finite
from ..utils.engine import Lost
from ..utils.machine import cores, one_blas_thread
from ..utils.parameters import Parameters
from ..utils.schema import brief
from .bags import Bags
from .boxes import MAX_DESCRIPTORS, MAX_PIXELS, WHOLE, Boxes, Dense, Patch, cell_boxes, input_sizes, relative
from .recipe import Recipe, as_recipe, fitting

# Pixels per call of the network. More do not fit the processor's cache: batches of 32 tiles of 224 px are a quarter
# slower than batches of 2. Fewer waste the call: single tiles of 64 px are slower than batches of 32
# (benchmarks/extract.py measures both).
_BATCH_PIXELS = 1 << 17


@dataclasses.dataclass(frozen=True, eq=False)
class Described:
    """Result for one photo: a bag, or the reason why there is none; neither if the caller had the bag already.

    `digest` is the SHA-256 of the content, `whole` the whole bag where `bag` is what is kept of it.
    """

    photo: Photo
    digest: str = ""
    bag: Bags | None = None
    error: PhotoError | None = None
    whole: Bags | None = None


class Extractor(Parameters):
    """Turns photos into bags by a recipe; in a pipeline of scikit-learn, a transformer.

    Parameters
    ----------
    recipe : Recipe or str, optional
        Recipe by which an image becomes a bag; the name of a network means the default recipe with that network, with
        one scale where the network takes images of one size only.
    backbone : Backbone, optional
        Network to use instead of the one that the recipe names: any object of that protocol.
    jobs : int, optional
        Number of threads; one per core by default.
    device : {"cpu", "cuda", "mps"}, default "cpu"
        Device on which the network runs; all but "cpu" need a build of ONNX Runtime that supports it.

    Examples
    --------
    >>> grey = np.full((100, 200, 3), 128, dtype=np.uint8)
    >>> Extractor()(grey)
    <Bags: 1 bags, 127 descriptors of 1,280 features>
    """

    estimator_type = "transformer"

    def __init__(
        self,
        recipe: Recipe | str | None = None,
        *,
        backbone: Backbone | None = None,
        jobs: int | None = None,
        device: str = "cpu",
    ) -> None:
        if jobs is not None and (not isinstance(jobs, int) or jobs < 1):
            raise PatchvoteError(f"jobs must be a whole number, at least 1, got {brief(jobs)}.")
        self.recipe = as_recipe(recipe)
        self.jobs = jobs or cores()
        self.decode: Decode = pictures  # the server decodes photos of strangers elsewhere
        if backbone is None:
            self.backbone, name = load_pinned(self.recipe.network, activation=self.recipe.activation, device=device)
            if name != self.recipe.network:
                self.recipe = dataclasses.replace(self.recipe, network=name)
        else:
            self.backbone = backbone
        if not isinstance(recipe, Recipe):
            self.recipe = fitting(self.recipe, self.backbone.spec)
        # Makes the same extractor in another process, which loads the network itself.
        self.again = functools.partial(Extractor, self.recipe, backbone=backbone, jobs=jobs, device=device)
        spec, sampling = self.backbone.spec, self.recipe.sampling
        if isinstance(sampling, Dense) and spec.stride is None:
            raise NetworkError(f"{spec.name} gives one vector per image, so it has no dense mode: use 'patch'.")
        if isinstance(sampling, Dense) and spec.fixed_size and sampling.sides != (max(spec.fixed_size),):
            height, width = spec.fixed_size
            raise NetworkError(
                f"{spec.name} takes only images of {width} x {height} pixels, so dense sampling has one scale only: "
                f"Dense(sides=({max(height, width)},))."
            )
        if isinstance(sampling, Patch):
            count, side = sampling.count, max(spec.fixed_size or (sampling.input or spec.size,))
            if (pixels := count * side**2) > MAX_PIXELS:
                raise PatchvoteError(
                    f"{count:,} patches of {side:,} px are {pixels:,} pixels per photo, over {MAX_PIXELS:,}. Use fewer "
                    "patches, or a smaller input."
                )
        elif sum((side // (spec.stride or 1)) ** 2 for side in sampling.sides) > MAX_DESCRIPTORS:
            raise NetworkError(
                f"{spec.name} has a cell every {spec.stride} pixels: sides of {sampling.sides} would give more than "
                f"{MAX_DESCRIPTORS:,} descriptors per photo. Use smaller sides."
            )

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the arguments of the constructor by name."""
        return {"recipe": self.recipe, **self.again.keywords}

    def __repr__(self) -> str:
        return f"Extractor({self.recipe!r})"

    def fit(self, X: Source, y: Any = None) -> Self:
        """Learn nothing: photos become bags by the recipe alone."""
        return self

    def transform(self, X: Source, y: Any = None) -> Bags:
        """Return the bags of photos, as a call does."""
        return self(X)

    fit_transform = transform

    def __reduce__(self) -> tuple[Any, ...]:
        return self.again, ()

    def __call__(self, source: Source) -> Bags:
        """Extract the bags of all photos, in order; raise the PhotoError of the first that cannot be read."""
        bags = []
        for item in self.stream(find_photos(source)):
            if item.bag is None:
                raise item.error or PhotoError(item.photo.name, "was not decoded.")
            bags.append(item.bag)
        return Bags.join(bags)

    def stream(self, photos: Iterable[Photo], known: Container[str] = ()) -> Generator[Described, None, None]:
        """Yield the result for each photo, in order, in bounded memory; photos are consumed a few ahead.

        Contents of the digests in `known` are not decoded: their results have no bag.
        """
        # The network has all cores, and what callers do with one bag after the other is small.
        with one_blas_thread(), _Pipeline(self, known) as pipeline:
            yield from pipeline.run(iter(photos))


@dataclasses.dataclass(frozen=True, eq=False)
class _View:
    """One input of the network: a whole image, or a box of an image, which is resized when it is needed."""

    picture: Pixels
    box: tuple[int, int, int, int] | None
    size: tuple[int, int]
    level: int
    place: Boxes | None = None  # the box in 0..1 of the image

    def tile(self) -> Pixels:
        """Return the pixels; all channels of a grey view are the same bytes, which cannot be written to."""
        tile = self.picture
        if self.box is not None:
            left, top, right, bottom = self.box
            tile = np.asarray(resized(Image.fromarray(tile[top:bottom, left:right]), self.size))
        return tile if tile.ndim == 3 else np.broadcast_to(tile[..., None], (*tile.shape, 3))


@dataclasses.dataclass(eq=False)
class _Job:
    """A photo in progress: its views, and the outputs of the network so far."""

    result: Described
    views: list[_View] = dataclasses.field(default_factory=list)
    # By view: a batch, and the row in it.
    outputs: dict[int, tuple[Future[npt.NDArray[np.float32]], int]] = dataclasses.field(default_factory=dict)


class _Pipeline:
    """One run of an extractor. Only the thread that calls `run` changes its state; workers only return values."""

    def __init__(self, extractor: Extractor, known: Container[str]) -> None:
        self._recipe, self._backbone, self._known = extractor.recipe, extractor.backbone, known
        self._decode = extractor.decode
        self._pool = ThreadPoolExecutor(extractor.jobs, thread_name_prefix="patchvote")
        self._ahead = 2 * extractor.jobs
        self._waiting: dict[tuple[int, int], list[tuple[_Job, int]]] = {}  # by size of the view

    def __enter__(self) -> _Pipeline:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        # After Ctrl-C, or if the caller stops, running calls are not waited for: they may take a minute.
        wait = kind is None or issubclass(kind, Exception)
        self._pool.shutdown(wait=wait, cancel_futures=True)

    def run(self, photos: Iterator[Photo]) -> Iterator[Described]:
        decoding: deque[Future[_Job]] = deque()
        describing: deque[_Job] = deque()
        more = True
        while more or decoding or describing:
            while more and len(decoding) < self._ahead:
                photo = next(photos, None)
                more = photo is not None
                if photo is not None:
                    decoding.append(self._pool.submit(self._prepare, photo))
            if decoding:
                job = decoding.popleft().result()
                describing.append(job)
                self._enqueue(job)
            if describing and (len(describing) > self._ahead or not decoding):
                yield self._finish(describing.popleft())

    def _prepare(self, photo: Photo) -> _Job:
        """Read and decode one photo, and choose its views (on a worker)."""
        sampling, spec = self._recipe.sampling, self._backbone.spec
        sizes = functools.partial(input_sizes, sampling, spec.stride or 1, spec.fixed_size)
        try:
            pictures, digest = self._decode(photo, sizes, self._known)
        except PhotoError as error:  # without a traceback, which would keep the file's bytes in memory
            return _Job(Described(photo, error=error.with_traceback(None)))
        views = [_View(picture, None, picture.shape[1::-1], level) for level, picture in enumerate(pictures, 1)]
        if pictures and isinstance(sampling, Patch):
            (whole,) = views
            height, width = spec.fixed_size or (sampling.input or spec.size,) * 2
            boxes, levels = sampling.pixel_boxes(*whole.size)
            parts = zip(boxes.tolist(), levels.tolist(), relative(boxes, *whole.size)[:, None], strict=True)
            views = [_View(whole.picture, box, (width, height), level, place) for box, level, place in parts]
        return _Job(Described(photo, digest), views)

    def _enqueue(self, job: _Job) -> None:
        """Add a photo's views to batches, and start the batches that are full."""
        for index, view in enumerate(job.views):
            group = self._waiting.setdefault(view.size, [])
            group.append((job, index))
            if len(group) >= max(1, _BATCH_PIXELS // (view.size[0] * view.size[1])):
                self._start(view.size)

    def _start(self, size: tuple[int, int]) -> None:
        group = self._waiting.pop(size)
        output = self._pool.submit(self._describe, [job.views[index] for job, index in group])
        for row, (job, index) in enumerate(group):
            job.outputs[index] = output, row

    def _describe(self, views: list[_View]) -> npt.NDArray[np.float32]:
        """Cut out the views of one batch and run the network on them (on a worker)."""
        tiles = [view.tile() for view in views]
        outputs = describe(self._backbone, np.stack(tiles) if len(tiles) > 1 else tiles[0][None])
        return mean_of_cells(outputs)[:, None, None] if self._recipe.mode == "patch" else outputs

    def _finish(self, job: _Job) -> Described:
        """Wait for the outputs of the oldest photo, and make its bag."""
        for size, group in list(self._waiting.items()):
            if any(waiting is job for waiting, _ in group):
                self._start(size)
        result, name = job.result, job.result.photo.name
        if result.error is not None or not job.views:
            return result
        try:
            outputs = [batch.result()[row] for batch, row in map(job.outputs.__getitem__, range(len(job.views)))]
        except BrokenNetworkError:
            raise
        except NetworkError as error:
            return dataclasses.replace(result, error=PhotoError(name, str(error)))
        bag = self._bag(job, outputs)
        if not all_finite(bag.values):
            reason = f"the network {self._backbone.spec.name!r} describes it by NaN or infinity."
            return dataclasses.replace(result, error=PhotoError(name, reason))
        return dataclasses.replace(result, bag=bag)

    def _bag(self, job: _Job, outputs: list[npt.NDArray[np.float32]]) -> Bags:
        """Make the bag of one photo from the outputs of the network."""
        pairs = zip(job.views, outputs, strict=True)
        boxes = [cell_boxes(*output.shape[:2]) if view.place is None else view.place for view, output in pairs]
        level = [view.level for view in job.views]
        if isinstance(self._recipe.sampling, Dense) and self._recipe.sampling.whole:
            outputs = [mean_of_cells(outputs[0][None])[:, None], *outputs]
            boxes, level = [np.array([WHOLE], np.float32), *boxes], [0, *level]
        ends = np.cumsum([0] + [len(part) for part in boxes])
        values = np.empty((ends[-1], self._backbone.spec.dim), np.float32)
        for output, start, end in zip(outputs, ends[:-1], ends[1:], strict=True):
            values[start:end].reshape(output.shape)[...] = output  # one copy, which also changes the order of axes
        levels = np.repeat(level, np.diff(ends)).astype(np.int16)
        return Bags(values, np.array([0, len(values)]), np.concatenate(boxes), levels)


def lost_photo(name: str, lost: Lost) -> PhotoError:
    """Return the error of a photo that ended its worker twice."""
    return PhotoError(name, f"ended the process that read it, twice: {lost.reason}")
