"""Sort photos into a folder per class, by the answers of a model.

The classes are those of a model file, which may come from a stranger: their folders are named so that none of them is
elsewhere (`folder_names`). Rejected photos go into a folder that no class can have.
"""

from __future__ import annotations

import collections
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from ..errors import PhotoError
from ..photos.find import Photo
from ..photos.placing import How, Placer, folder_names
from ..utils.terminal import counted, some
from ..voters.votes import NONE
from .answers import Answer

_SHOWN = 10  # folders that the summary lists


class Sorter:
    """Puts photos into the folders of their classes, below the folder `root`."""

    def __init__(self, root: Path, classes: Iterable[str], how: How = How.copy) -> None:
        self._placer, self._how = Placer(root, how), how
        self._folders = dict(folder_names(classes, [NONE]))
        self._counts: collections.Counter[str] = collections.Counter()
        self._there = 0  # photos that were there already
        self._seen: set[Path] = set()
        self.failed: list[PhotoError] = []

    def put(self, answer: Answer, source: Path) -> None:
        """Put a photo into the folder of its answer; one without an answer, or that was put already, stays."""
        if answer.likeliest is None or source in self._seen:
            return
        self._seen.add(source)
        folder = NONE if answer.rejected else self._folders[answer.likeliest]
        if self._placer.put(source, folder) is None:
            self._there += 1
        else:
            self._counts[folder] += 1

    def each(self, answers: Iterable[Answer], photos: Iterable[Photo]) -> Iterator[Answer]:
        """Put each photo into the folder of its answer, then yield the answer; `failed` has those that stay.

        Photos are moved once all answers are there: a later one may be a link to an earlier one.
        """
        sources = {photo.name: photo.source for photo in photos if isinstance(photo.source, Path)}
        waiting = []
        for answer in answers:
            if self._how is How.move:
                waiting.append(answer)
            else:
                self._try(answer, sources)
            yield answer
        for answer in waiting:
            self._try(answer, sources)

    def _try(self, answer: Answer, sources: Mapping[str, Path]) -> None:
        try:
            if answer.name in sources:
                self.put(answer, sources[answer.name])
        except PhotoError as error:
            self.failed.append(error)

    def summary(self) -> str:
        """Return in words how many photos went where."""
        counts = [f"{folder} {count:,}" for folder, count in self._counts.most_common()]
        where = f": {some(counts, _SHOWN)}" if counts else ""
        before = f"; {counted(self._there, 'was', 'were')} there already" if self._there else ""
        return f"{self._how} {counted(self._counts.total(), 'photo')} into {self._placer.root}{where}{before}"
