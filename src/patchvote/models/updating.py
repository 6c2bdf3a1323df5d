"""Updating a model in its file while others may be doing the same."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol, TypeVar

from ..errors import ModelChangedError
from ..photos.find import Source
from ..utils.timing import Progress


class Learner(Protocol):
    """What learns more and is kept in a file: an `ImageClassifier`."""

    @property
    def model(self) -> Any:
        """What was learned."""

    def add(self, photos: Source, *, progress: Progress | None = None) -> Any:
        """Learn more photos."""

    def save(self, path: Path) -> None:
        """Write the model, unless its file was changed since it was read."""

    def is_from(self, path: Path) -> bool:
        """Whether the model was read from this file."""


_Learner = TypeVar("_Learner", bound=Learner)

_ATTEMPTS = 20  # each time that one fails, another process has succeeded


def add_and_save(
    classifier: _Learner,
    photos: Source,
    path: Path,
    *,
    reload: Callable[[], _Learner],
    progress: Progress | None = None,
) -> tuple[_Learner, bool]:
    """Teach a model more photos and write it; where its file was changed meanwhile, learn again from what it is now.

    Bags stay in the cache, so that learning again takes no time in the network.

    Parameters
    ----------
    classifier : ImageClassifier
        The model.
    photos : Source
        Labelled photos.
    path : Path
        File to write; only where it is the model's own is it compared with what was read.
    reload : function
        Reads the model anew.
    progress : function, optional
        As for `ImageClassifier.add`.

    Returns
    -------
    classifier : ImageClassifier
        The classifier as it was written.
    changed : bool
        Whether the model learned anything; where not, its own file is not written.
    """
    for _ in range(_ATTEMPTS):
        before = classifier.model
        classifier.add(photos, progress=progress)
        changed = classifier.model is not before
        if not changed and classifier.is_from(path):
            return classifier, changed
        try:
            classifier.save(path)
            return classifier, changed
        except ModelChangedError:
            classifier = reload()
    raise ModelChangedError(f"{path} is changed by others all the time: nothing was learned. Try again later.")
