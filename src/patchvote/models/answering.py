"""Answer photos on the workers of an engine: lists of paths go out, names and probabilities come back."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from ..bags.extract import Described, lost_photo
from ..errors import ModelError, PatchvoteError, PhotoError
from ..photos.find import Photo
from ..utils.engine import Engine, Lost
from .file import checksum_of
from .known import known_photos, short

if TYPE_CHECKING:
    from .namer import Namer

_PER_TASK = 32  # photos: some seconds of work, so that sending them costs little


@dataclasses.dataclass(frozen=True)
class Answered:
    """Answer of a worker for one photo.

    Parameters
    ----------
    probability : array of shape (classes,) or None
        Probability of each class; None if the photo could not be read.
    familiarity : float or None
        Familiarity of the photo, if the model has one.
    known : bool
        Whether the model has learned from this photo.
    error : PhotoError or None
        Reason why the photo could not be read.
    """

    probability: npt.NDArray[np.float64] | None = None
    familiarity: float | None = None
    known: bool = False
    error: PhotoError | None = None


@dataclasses.dataclass(frozen=True)
class AnsweringJob:
    """The job of a worker that answers photos with a model.

    Parameters
    ----------
    path : Path
        File of the model.
    load : function
        Reads the model and its network, once per worker.
    checksum : str or None
        Checksum that the file must have.
    name : str
        Name of the stage.
    """

    path: Path
    load: Callable[[], Namer]
    checksum: str | None
    name: str = "predict"
    per_task: int = _PER_TASK

    def start(self) -> Callable[[Sequence[Photo]], list[Answered]]:
        """Read the model; return the function that answers some photos.

        Raises
        ------
        ModelError
            The worker reads another model under this name.
        """
        namer = self.load()
        if checksum_of(self.path) != self.checksum:
            raise ModelError(f"{self.path} has changed since the command began, or is another file on a worker.")
        known = known_photos(namer.model.about)

        def answer(item: Described) -> Answered:
            if item.bag is None:
                return Answered(error=item.error or PhotoError(item.photo.name, "could not be read."))
            probability = namer.model.probability(item.bag)
            return Answered(probability, namer.model.familiarity_of(item.bag, probability), short(item.digest) in known)

        return lambda photos: [answer(item) for item in namer.described(list(photos))]


def answered(engine: Engine, job: AnsweringJob, photos: Sequence[Photo]) -> Iterator[tuple[int, Answered]]:
    """Yield the numbers of photos and the answers of the workers, in any order.

    Raises
    ------
    PatchvoteError
        A photo is an image in memory, which is not sent to workers.
    """
    images = [photo.name for photo in photos if not isinstance(photo.source, Path)]
    if images:
        raise PatchvoteError(f"{images[0]} is an image in memory: workers of an engine read photos from files.")
    for number, answer in engine.run(job, photos):
        yield number, Answered(error=lost_photo(photos[number].name, answer)) if isinstance(answer, Lost) else answer
