"""The command that suggests which unlabelled photos to label next."""

from __future__ import annotations

import itertools
import shlex
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..errors import PhotoError
from ..utils.remote import place
from ..utils.terminal import columns_of, counted, emit, say
from .common import (
    FAILED,
    SKIPPED,
    Cache,
    ColumnsOption,
    Device,
    Force,
    Jobs,
    ModelArgument,
    ModelNetwork,
    NoCache,
    QuietAnswers,
    cache_of,
    check_order,
    load,
    named_columns,
    tell_skipped,
)
from .paths import Null, paths_of, photos_of
from .predict import check_output
from .streams import interruption

if TYPE_CHECKING:
    from ..models.answers import Answer
    from ..photos.find import Found


def suggest(
    model: ModelArgument,
    photos: Annotated[
        list[str],
        typer.Argument(metavar="UNLABELLED", help="Photos, folders or lists; - reads paths from standard input."),
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
    cache: Cache = None,
    no_cache: NoCache = False,
    device: Device = "cpu",
    jobs: Jobs = None,
    quiet: QuietAnswers = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one line of JSON per photo.")] = False,
) -> None:
    """Suggest the UNLABELLED photos whose labels would teach MODEL most: uncertain, and unlike one another.

    Put them into the folders of their classes, and `patchvote add` teaches MODEL.
    """
    from ..networks.names import network_files
    from ..photos.outputs import check_outputs
    from ..photos.placing import check_folder
    from ..utils.marks import Kind
    from .progress import ProgressLine

    check_output(output, as_json)
    kept = cache_of(cache, no_cache)
    if copy_into is not None:
        check_folder(copy_into)
    names = paths_of(photos, null)
    paths = [place(name) for name in names]
    check_order(model, paths)
    named = named_columns(columns, paths)
    classifier = load(model, network=network, jobs=jobs, cache=kept, device=device)
    listed = 0 if photos == ["-"] else None
    inputs = itertools.chain([model, listed, *paths], network_files(classifier.recipe.network))
    check_outputs([(output, Kind.answers)], inputs, force=force, columns=named)
    found = photos_of(names, named)
    with interruption("interrupted; nothing was written or copied."), ProgressLine("predict", quiet) as line:
        answers = classifier.suggest(found, count, progress=line.stage)
    tell_skipped(classifier)
    if classifier.known and not quiet:
        say(f"{counted(classifier.known, 'photo was', 'photos were')} learned before, and left out.")
    if not quiet:
        _tell_missing(min(count, len(found) - len(classifier.skipped) - classifier.known), len(answers))
    _write(answers, classifier.classes, output, as_json, quiet)
    failed = 0 if copy_into is None else _copy(answers, found, copy_into, quiet)
    if answers and not quiet:
        folder = "FOLDER" if copy_into is None else shlex.quote(str(copy_into))
        where = "" if copy_into is None else f" in {copy_into}"
        say(
            "next: move them into one folder per class"
            f"{where}, then `patchvote add {shlex.quote(str(model))} {folder}` teaches the model."
        )
    if len(classifier.skipped) == len(found):
        raise typer.Exit(FAILED)
    if classifier.skipped or classifier.passed_over.types or failed:
        raise typer.Exit(SKIPPED)


def _tell_missing(possible: int, suggested: int) -> None:
    """Say why fewer photos are suggested than there are; of photos that look alike, one is suggested."""
    if possible > suggested:
        alike = counted(possible - suggested, "photo was", "photos were")
        say(f"{alike} left out: of photos that look alike, one is suggested.")
    elif not possible:
        say("no photo is left to suggest.")


def _write(answers: list[Answer], classes: Sequence[str], output: Path | None, as_json: bool, quiet: bool) -> None:
    from ..utils.files import write_file
    from .answer_table import Table
    from .answers import csv_lines, json_lines

    if output is not None:
        rows = json_lines if output.suffix.lower() == ".jsonl" else csv_lines
        write_file(output, (f"{text}\n".encode() for text in rows(answers)))
        if not quiet:
            say(f"wrote {output}")
        return
    lines: Callable[[list[Answer]], Iterator[str]] = json_lines if as_json else csv_lines
    if not as_json and sys.stdout.isatty():
        lines = Table.of([answer.name for answer in answers], classes, columns_of(sys.stdout)).lines
    for text in lines(answers):
        emit(text)


def _copy(answers: list[Answer], photos: Found, folder: Path, quiet: bool) -> int:
    """Copy photos into a folder; return how many could not be copied."""
    from ..photos.placing import Placer

    placer, copied, there, failed = Placer(folder), 0, 0, 0
    sources = {photo.name: photo.source for photo in photos}
    for answer in answers:
        source = sources[answer.name]
        if not isinstance(source, Path):
            continue
        try:
            if placer.put(source) is None:
                there += 1
            else:
                copied += 1
        except PhotoError as error:
            failed += 1
            say(error)
    if not quiet:
        before = f"; {counted(there, 'was', 'were')} there already" if there else ""
        say(f"copied {counted(copied, 'photo')} into {folder}{before}")
    return failed
