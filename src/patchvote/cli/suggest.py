"""The command that suggests which unlabelled photos to label next."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..errors import PhotoError
from ..photos.outputs import Kind
from ..utils.terminal import counted, say
from .options import Cache, Machine, ModelFile, Output, Printing
from .output import Wanted, leave, print_answers, progress_line, tell_skipped
from .photos import Unlabelled

if TYPE_CHECKING:
    from ..models.answers import Answer
    from ..photos.find import Found


def suggest(
    model: ModelFile,
    photos: Unlabelled,
    count: Annotated[int, typer.Option("--count", "-n", min=1, help="Number of photos to suggest.")] = 20,
    output: Output = None,
    copy_into: Annotated[Path | None, typer.Option(metavar="DIR", help="Also copy the photos into DIR.")] = None,
    *,
    cache: Cache,
    machine: Machine,
    printing: Printing,
) -> None:
    """Suggest the unlabelled PHOTOS whose labels would teach MODEL most: uncertain, and unlike one another.

    Put them into the folders of their classes, and `patchvote add` teaches MODEL.
    """
    from ..photos.placing import check_folder

    printing.check_output(output)
    if copy_into is not None:
        check_folder(copy_into)
    classifier = model.load(machine, cache=cache.folder)
    model.check_written(classifier, [(output, Kind.answers)], photos.paths)
    found = photos.found()
    with progress_line("predict", printing.quiet) as progress:
        answers = classifier.suggest(found, count, progress=progress)
    tell_skipped(classifier)
    if classifier.known and not printing.quiet:
        say(f"{counted(classifier.known, 'photo was', 'photos were')} learned before, and left out.")
    print_answers(answers, [answer.name for answer in answers], Wanted(classifier.classes), output, printing)
    is_copied = copy_into is None or _copy(answers, found, copy_into)
    if answers and not printing.quiet:
        add = shlex.join(["patchvote", "add", str(model.model), str(copy_into or "FOLDER")])
        say(f"next: move them into one folder per class in {copy_into or 'FOLDER'}, then `{add}` teaches the model.")
    leave(classifier, found, failed=not is_copied)


def _copy(answers: list[Answer], photos: Found, folder: Path) -> bool:
    """Copy photos into a folder; return whether all could be copied."""
    from ..photos.placing import Placer

    placer, is_whole = Placer(folder), True
    sources: dict[str, Any] = {photo.name: photo.source for photo in photos}  # files, for what is typed is paths
    for answer in answers:
        try:
            placer.put(sources[answer.name])
        except PhotoError as error:
            is_whole = False
            say(error)
    return is_whole
