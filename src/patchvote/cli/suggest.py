"""The command that suggests which unlabelled photos to label next."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..errors import PhotoError
from ..utils.file_kinds import Kind
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
    copy_into: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Also copy the suggested photos into DIR.")
    ] = None,
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
    model.check_written(classifier, [(output, Kind.answers)], photos.inputs(), columns=photos.named)
    found = photos.found()
    with progress_line("predict", printing.quiet) as progress:
        answers = classifier.suggest(found, count, progress=progress)
    tell_skipped(classifier)
    if not printing.quiet:
        possible = min(count, len(found) - len(classifier.skipped) - classifier.known)
        say(*_left_out(classifier.known, possible, len(answers)))
    print_answers(answers, [answer.name for answer in answers], Wanted(classifier.classes), output, printing)
    is_copied = copy_into is None or _copy(answers, found, copy_into, printing.quiet)
    if answers and not printing.quiet:
        folder = "FOLDER" if copy_into is None else shlex.quote(str(copy_into))
        where = "" if copy_into is None else f" in {copy_into}"
        say(
            "next: move them into one folder per class"
            f"{where}, then `patchvote add {shlex.quote(str(model.model))} {folder}` teaches the model."
        )
    leave(classifier, found, failed=not is_copied)


def _left_out(known: int, possible: int, suggested: int) -> list[str]:
    """Say why fewer photos are suggested than there are; of photos that look alike, one is suggested."""
    lines = [f"{counted(known, 'photo was', 'photos were')} learned before, and left out."] if known else []
    if possible > suggested:
        alike = counted(possible - suggested, "photo was", "photos were")
        lines.append(f"{alike} left out: of photos that look alike, one is suggested.")
    elif not possible:
        lines.append("no photo is left to suggest.")
    return lines


def _copy(answers: list[Answer], photos: Found, folder: Path, quiet: bool) -> bool:
    """Copy photos into a folder; return whether all could be copied."""
    from ..photos.placing import Placer

    placer, copied, there, is_whole = Placer(folder), 0, 0, True
    sources = {photo.name: photo.source for photo in photos}
    for answer in answers:
        source = sources[answer.name]
        if not isinstance(source, Path):
            continue
        try:
            is_new = placer.put(source) is not None
            copied, there = copied + is_new, there + (not is_new)
        except PhotoError as error:
            is_whole = False
            say(error)
    if not quiet:
        before = f"; {counted(there, 'was', 'were')} there already" if there else ""
        say(f"copied {counted(copied, 'photo')} into {folder}{before}")
    return is_whole
