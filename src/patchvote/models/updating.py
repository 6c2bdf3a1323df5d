"""Update the file of a model while other processes may do the same."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol, TypeVar

from ..errors import ModelChangedError
from ..photos.find import Source
from ..utils.engine import Engine
from ..utils.timing import Progress


class Learner(Protocol):
    """A classifier that learns more and is stored in a file: an `ImageClassifier`."""

    @property
    def model(self) -> Any:
        """Model that was learned."""

    def add(self, photos: Source, *, progress: Progress | None = None, engine: Engine | None = None) -> Any:
        """Learn more photos."""

    def save(self, path: Path) -> None:
        """Write the model, unless its file has changed since it was read."""

    def is_from(self, path: Path) -> bool:
        """Whether the model was read from this file."""


_Learner = TypeVar("_Learner", bound=Learner)

_ATTEMPTS = 20  # enough: whenever one fails, another process has succeeded


def add_and_save(
    classifier: _Learner,
    photos: Source,
    path: Path,
    *,
    reload: Callable[[], _Learner],
    progress: Progress | None = None,
    engine: Engine | None = None,
) -> tuple[_Learner, bool]:
    """Add photos to a model and write it; if its file has changed meanwhile, add them to the new version.

    Bags are in the cache by then, so no photo passes the network again.

    Parameters
    ----------
    classifier : ImageClassifier
        Classifier with the model.
    photos : Source
        Labelled photos to add.
    path : Path
        File to write; it is checked for changes only if the model was read from it.
    reload : function
        Reads the model again.
    progress, engine
        As for `ImageClassifier.add`.

    Returns
    -------
    classifier : ImageClassifier
        Classifier with the model that was written.
    changed : bool
        Whether the model learned anything; if not, the file that it was read from is not written.
    """
    for _ in range(_ATTEMPTS):
        before = classifier.model
        classifier.add(photos, progress=progress, engine=engine)
        changed = classifier.model is not before
        if not changed and classifier.is_from(path):
            return classifier, changed
        try:
            classifier.save(path)
            return classifier, changed
        except ModelChangedError:
            classifier = reload()
    raise ModelChangedError(f"{path} is changed by other processes all the time: nothing was learned. Try again later.")
