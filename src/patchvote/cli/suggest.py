"""The command that suggests which unlabelled photos to label next."""

from __future__ import annotations

import itertools
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..errors import PhotoError
from ..utils.counting import counted
from ..utils.remote import place
from ..utils.terminal import emit, say
from .common import (
    FAILED,
    SKIPPED,
    ColumnsOption,
    Device,
    Force,
    Jobs,
    ModelArgument,
    ModelNetwork,
    Quiet,
    check_order,
    columns_of,
    load,
    tell_skipped,
)
from .paths import Null, paths_of, photos_of
from .predict import check_output

if TYPE_CHECKING:
    from ..models.answers import Answer
    from ..photos.find import Found


def suggest(
    model: ModelArgument,
    photos: Annotated[
        list[str],
        typer.Argument(metavar="UNLABELLED…", help="Photos, folders or lists; - reads paths from standard input."),
    ],
    null: Null = False,
    columns: ColumnsOption = None,
    count: Annotated[int, typer.Option("--count", "-n", min=1, help="Number of photos to suggest.")] = 20,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Write a .csv or .jsonl file.")] = None,
    copy_into: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Also copy the suggested photos into DIR.")
    ] = None,
    force: Force = False,
    network: ModelNetwork = None,
    device: Device = "cpu",
    jobs: Jobs = None,
    quiet: Quiet = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one line of JSON per photo.")] = False,
) -> None:
    """Suggest the UNLABELLED photos whose labels would teach MODEL most: uncertain, and unlike one another.

    Put them into the folders of their classes, and `patchvote add` teaches MODEL.
    """
    from ..backbones.network_files import network_files
    from ..photos.outputs import check_outputs
    from ..photos.placing import check_folder
    from ..utils.marks import Kind
    from .progress import ProgressLine

    check_output(output, as_json)
    if copy_into is not None:
        check_folder(copy_into)
    names = paths_of(photos, null)
    paths = [place(name) for name in names]
    check_order(model, paths)
    named = columns_of(columns, paths)
    classifier = load(model, network=network, jobs=jobs, device=device)
    listed = 0 if photos == ["-"] else None
    inputs = itertools.chain([model, listed, *paths], network_files(classifier.recipe.network))
    check_outputs([(output, Kind.answers)], inputs, force=force, columns=named)
    found = photos_of(names, named)
    with ProgressLine("predict", quiet) as line:
        answers = classifier.suggest(found, count, progress=line.stage)
    tell_skipped(classifier)
    if classifier.known and not quiet:
        say(f"{counted(classifier.known, 'photo was', 'photos were')} learned before, and left out.")
    _write(answers, output, as_json, quiet)
    failed = 0 if copy_into is None else _copy(answers, found, copy_into, quiet)
    if len(classifier.skipped) == len(found):
        raise typer.Exit(FAILED)
    if classifier.skipped or classifier.passed_over.types or failed:
        raise typer.Exit(SKIPPED)


def _write(answers: list[Answer], output: Path | None, as_json: bool, quiet: bool) -> None:
    from ..utils.files import write_file
    from .answers import csv_lines, json_lines, table_lines

    if output is not None:
        lines = json_lines if output.suffix.lower() == ".jsonl" else csv_lines
        write_file(output, (f"{text}\n".encode() for text in lines(answers)))
        if not quiet:
            say(f"wrote {output}")
        return
    for text in (json_lines if as_json else table_lines if sys.stdout.isatty() else csv_lines)(answers):
        emit(text)


def _copy(answers: list[Answer], photos: Found, folder: Path, quiet: bool) -> int:
    """Copy photos into a folder; return how many could not be copied."""
    from ..photos.placing import Placer

    placer, copied, failed = Placer(folder), 0, 0
    sources = {photo.name: photo.source for photo in photos}
    for answer in answers:
        source = sources[answer.name]
        try:
            copied += isinstance(source, Path) and placer.put(source) is not None
        except PhotoError as error:
            failed += 1
            say(error)
    if not quiet:
        say(f"copied {counted(copied, 'photo')} into {folder}")
    return failed
