"""What `predict` does with the photos themselves: sort them into a folder per class, if it is told to."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import PhotoError
from ..utils.terminal import counted, say
from .common import MistypedError
from .paths import outside

if TYPE_CHECKING:
    from ..models.answers import Answer
    from ..models.sorting import Sorter
    from ..photos.find import Found


_MAX_TOLD = 5  # photos that could not be sorted, of which each is told why


class Sorting:
    """The options --sort-into, --link and --move, and the number of photos that could not be sorted.

    Raises
    ------
    MistypedError
        Options exclude each other.
    PatchvoteError
        Photos cannot be put into the folder.
    """

    def __init__(self, folder: Path | None, link: bool, move: bool) -> None:
        if link and move:
            raise MistypedError("--link and --move exclude each other: leave one of them out.")
        if folder is None and (link or move):
            raise MistypedError(f"{'--link' if link else '--move'} can be used only with --sort-into DIR.")
        if folder is not None:
            from ..photos.placing import check_folder

            check_folder(folder)
        self._folder, self._link, self._move, self.failed = folder, link, move, 0

    def outside(self, photos: Found) -> Found:
        """Leave out photos that are in the folder already, which may itself be inside a folder of photos."""
        return photos if self._folder is None else outside(self._folder, photos)

    def each(self, answers: Iterator[Answer], photos: Found, classes: Sequence[str], quiet: bool) -> Iterator[Answer]:
        """Put each photo into the folder of its class, then yield its answer; at the end, say how many went where."""
        if self._folder is None:
            yield from answers
            return
        from ..models.sorting import Sorter
        from ..photos.placing import How

        how = How.link if self._link else How.move if self._move else How.copy
        sorter = Sorter(self._folder, classes, how)
        sources = {photo.name: photo.source for photo in photos}
        answered = []
        try:
            for answer in answers:
                if self._move:  # once all photos have been read: a later one may be a link to this one
                    answered.append(answer)
                else:
                    self._put(sorter, answer, sources[answer.name])
                yield answer
            for answer in answered:
                self._put(sorter, answer, sources[answer.name])
        finally:  # after Ctrl-C as well: every photo that was sorted is whole
            if (more := self.failed - _MAX_TOLD) > 0:
                say(f"{counted(more, 'photo')} more cannot be {how} into {self._folder}.")
            if not quiet:
                say(sorter.summary())

    def _put(self, sorter: Sorter, answer: Answer, source: object) -> None:
        try:
            if isinstance(source, Path):
                sorter.put(answer, source)
        except PhotoError as error:
            self.failed += 1
            if self.failed <= _MAX_TOLD:
                say(error)
