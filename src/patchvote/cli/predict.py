"""The command that names photos."""

from __future__ import annotations

import dataclasses
import io
import itertools
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TextIO

import typer

from ..errors import PatchvoteError
from ..utils.terminal import emit, say
from .common import SKIPPED, Force, Insist, Jobs, ModelArgument, ModelNetwork, Quiet, load, tell_refusal
from .streams import interruption

if TYPE_CHECKING:
    from ..models.answers import Answer
    from ..photos.find import Found


def predict(
    model: ModelArgument,
    photos: Annotated[
        list[str],
        typer.Argument(metavar="PHOTOS…", help="Photos, folders or lists; - reads paths from standard input."),
    ],
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Write a .csv or .jsonl file.")] = None,
    force: Force = False,
    adapt: Annotated[
        bool, typer.Option("--adapt", help="Adapt to PHOTOS first, where another camera or place took them.")
    ] = False,
    insist: Insist = False,
    network: ModelNetwork = None,
    jobs: Jobs = None,
    quiet: Quiet = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print a line of JSON a photo.")] = False,
) -> None:
    """Name PHOTOS: a table on a terminal, CSV in a pipe or a file."""
    from ..backbones.network_files import network_files
    from ..photos.outputs import check_outputs
    from ..utils.files import write_file
    from ..utils.marks import Kind
    from .answers import csv_lines, json_lines, table_lines
    from .progress import ProgressLine

    if output is not None and output.suffix.lower() not in (".csv", ".jsonl"):
        raise PatchvoteError(f"--output writes .csv or .jsonl, got {output}.")
    paths = _paths(photos)
    classifier = load(model, network=network, jobs=jobs)
    listed = 0 if photos == ["-"] else None  # standard input, which may be the very file that is to be written
    check_outputs(
        [(output, Kind.answers)],
        itertools.chain([model, listed, *paths], network_files(classifier.recipe.network)),
        force=force,
    )
    progress = ProgressLine("extract", quiet or not (adapt or insist))
    answers = classifier.answers(_photos(paths), adapt=adapt or insist, insist=insist, progress=progress.stage)
    bad = 0

    def counted() -> Iterator[Answer]:
        nonlocal bad
        with progress:
            first = next(answers, None)  # once the first is there, all photos have been looked at
        tell_refusal(classifier)
        for answer in itertools.chain([first] if first else [], answers):
            if answer.error is not None:
                bad += 1
                say(f"skipped {answer.error}")
            yield answer

    if output is not None:
        lines = json_lines if output.suffix.lower() == ".jsonl" else csv_lines
        with interruption(f"interrupted; {output} was not written."):
            write_file(output, (f"{line}\n".encode() for line in lines(counted())))
        if not quiet:
            say(f"wrote {output}")
    else:
        terminal = sys.stdout.isatty()
        way = json_lines if as_json else table_lines if terminal else csv_lines
        for number, line in enumerate(way(counted())):
            emit(line, flush=terminal or as_json or not number)  # the first at once: it shows whether anybody can read
    say(*classifier.damaged)
    say(*classifier.passed_over.sentences())
    if bad or classifier.passed_over.types:
        raise typer.Exit(SKIPPED)


def _paths(words: list[str]) -> list[Path]:
    from ..photos.manifests import lines

    if words == ["-"]:
        words = [line.strip() for line in lines(_standard_input(), "standard input") if line.strip()]
        if not words:
            raise PatchvoteError("standard input names no photo. Give one path a line.")
    return [Path(word) for word in words]


def _photos(paths: list[Path]) -> Found:
    """Return the photos in all that was named."""
    from ..photos.find import Found, find_photos

    found = Found()
    for path in paths:
        if path.is_dir() or path.suffix.lower() in (".csv", ".jsonl"):
            here = find_photos(path)
            found.extend(dataclasses.replace(one, name=str(path / one.name)) for one in here)
            found.passed_over += here.passed_over.without_folders()
        else:
            found.extend(find_photos([path]))
    return found


def _standard_input() -> TextIO:
    if sys.stdin is None:
        raise PatchvoteError("standard input is closed, so it names no photo. Give paths instead of -.")
    if isinstance(sys.stdin, io.TextIOWrapper):  # names of files are bytes, whatever the language says
        sys.stdin.reconfigure(errors="surrogateescape")
    return sys.stdin
