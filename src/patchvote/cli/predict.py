"""The command that names photos, and sorts them into a folder per class if it is told to."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..photos.outputs import Kind
from ..utils.terminal import counted, say
from .options import Adapting, Cache, Cluster, MistypedError, ModelFile, Output, Printing
from .output import Wanted, leave, print_answers, progress_line
from .photos import Unlabelled, outside

if TYPE_CHECKING:
    from ..models.answers import Answer
    from ..models.sorting import Sorter

_MAX_REASONS = 5  # photos that could not be sorted of which the reason is printed


@dataclasses.dataclass(frozen=True)
class Sorting:
    """Whether, and how, photos are put into a folder per class."""

    sort_into: Annotated[Path | None, typer.Option(metavar="DIR", help="Copy photos into DIR, a folder per class.")] = (
        None
    )
    link: Annotated[bool, typer.Option("--link", help="Make links in DIR instead of copies.")] = False
    move: Annotated[bool, typer.Option("--move", help="Move photos into DIR.")] = False

    def check(self) -> None:
        """Refuse options that exclude each other, and a folder into which no photo can be put."""
        from ..photos.placing import check_folder

        if self.link and self.move:
            raise MistypedError("--link and --move exclude each other: leave one of them out.")
        if self.sort_into is not None:
            check_folder(self.sort_into)
        elif self.link or self.move:
            raise MistypedError(f"{'--link' if self.link else '--move'} can be used only with --sort-into DIR.")

    def sorter(self, classes: Sequence[str]) -> Sorter | None:
        """Return what puts photos into folders, if that is wanted."""
        from ..models.sorting import Sorter
        from ..photos.placing import How

        how = How.link if self.link else How.move if self.move else How.copy
        return None if self.sort_into is None else Sorter(self.sort_into, classes, how)


def predict(
    model: ModelFile,
    photos: Unlabelled,
    output: Output = None,
    top: Annotated[int | None, typer.Option(min=1, metavar="K", help="Also write the K likeliest classes.")] = None,
    every: Annotated[bool, typer.Option("--all", help="Also write the probability of every class.")] = False,
    *,
    adapting: Adapting,
    sorting: Sorting,
    cache: Cache,
    cluster: Cluster,
    printing: Printing,
) -> None:
    """Predict the classes of PHOTOS: a table on a terminal, CSV in a pipe or a file."""
    printing.check_output(output)
    sorting.check()
    settings = adapting.settings
    with cluster.opened() as engine:
        classifier = model.load(cluster, cache=cache.folder)
        model.check_written(classifier, [(output, Kind.answers)], photos.paths)
        found = photos.found()
        if sorting.sort_into is not None:
            found = outside(sorting.sort_into, found)
        with progress_line("extract", printing.quiet or not adapting.adapt) as progress:
            answers = classifier.answers(found, progress=progress, engine=engine, **settings)
            first = next(answers)  # after the first answer, adapting is done
        is_adapted = adapting.adapt and classifier.refusal is None
        say(*filter(None, [classifier.refusal]))
        if is_adapted and not printing.quiet:
            say(f"adapted to {counted((classifier.model.about.adapted or {}).get('photos', 0), 'photo')}.")
        answers = _told(itertools.chain([first], answers))
        if (sorter := sorting.sorter(classifier.classes)) is not None:
            answers = sorter.each(answers, found)
        names, wanted = [photo.name for photo in found], Wanted(classifier.classes, top or 0, every)
        more = {"adapted": is_adapted} if adapting.adapt else {}
        try:
            print_answers(answers, names, wanted, output, printing, more)
        finally:  # after Ctrl-C as well: every photo that was sorted is whole
            if sorter is not None:
                _tell_sorted(sorter, printing.quiet)
    if is_adapted and not printing.quiet:
        rejected, named = classifier.newly_rejected, classifier.newly_named
        say(f'adapting made {rejected:,} "none of these", and gave {named:,} that were a class.')
    say(*classifier.damaged, *classifier.passed_over.sentences())
    leave(classifier, found, failed=bool(sorter and sorter.failed))


def _told(answers: Iterator[Answer]) -> Iterator[Answer]:
    """Print why some photos have no answer, as answers are written."""
    for answer in answers:
        if answer.error is not None:
            say(f"skipped {answer.error}")
        yield answer


def _tell_sorted(sorter: Sorter, quiet: bool) -> None:
    say(*sorter.failed[:_MAX_REASONS])
    if (more := len(sorter.failed) - _MAX_REASONS) > 0:
        say(f"{counted(more, 'photo')} more could not be sorted.")
    if not quiet:
        say(sorter.summary())
