"""Update the file of a model while other processes may do the same."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol, TypeVar

from ..errors import ModelChangedError
from ..photos.find import Source
from ..utils.engine import Engine
from ..utils.terminal import Progress


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
    """Add photos to a model and write it, as `change_and_save` does; photos that were extracted are in the cache."""
    return change_and_save(
        classifier, lambda one: one.add(photos, progress=progress, engine=engine), path, reload=reload
    )


def change_and_save(
    classifier: _Learner, change: Callable[[_Learner], Any], path: Path, *, reload: Callable[[], _Learner]
) -> tuple[_Learner, bool]:
    """Change a model and write it; if its file has changed meanwhile, change the new version.

    Parameters
    ----------
    classifier : ImageClassifier
        Classifier with the model.
    change : function
        Changes the model of a classifier.
    path : Path
        File to write; it is checked for changes only if the model was read from it.
    reload : function
        Reads the model again.

    Returns
    -------
    classifier : ImageClassifier
        Classifier with the model that was written.
    changed : bool
        Whether the model has changed; if not, the file that it was read from is not written.
    """
    for _ in range(_ATTEMPTS):
        before = classifier.model
        change(classifier)
        changed = classifier.model is not before
        if not changed and classifier.is_from(path):
            return classifier, changed
        try:
            classifier.save(path)
            return classifier, changed
        except ModelChangedError:
            classifier = reload()
    raise ModelChangedError(f"{path} is changed by other processes all the time: nothing was written. Try again later.")
