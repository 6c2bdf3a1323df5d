"""The command that names photos."""

from __future__ import annotations

import dataclasses
import io
import itertools
import os
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TextIO

import typer

from ..engines.choose import EngineName
from ..errors import PatchvoteError
from ..utils.counting import counted
from ..utils.remote import place
from ..utils.terminal import emit, say
from .common import (
    FAILED,
    SKIPPED,
    Address,
    EngineOption,
    Force,
    Insist,
    Jobs,
    MistypedError,
    ModelArgument,
    ModelNetwork,
    Quiet,
    Workers,
    check_engine,
    check_insist,
    check_order,
    load,
    tell_refusal,
    workers_of,
)
from .streams import interruption

if TYPE_CHECKING:
    from ..classifier import ImageClassifier
    from ..models.answers import Answer
    from ..photos.find import Found
    from .progress import ProgressLine


def predict(
    model: ModelArgument,
    photos: Annotated[
        list[str],
        typer.Argument(metavar="PHOTOS…", help="Photos, folders or lists; - reads paths from standard input."),
    ],
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Write a .csv or .jsonl file.")] = None,
    force: Force = False,
    adapt: Annotated[
        bool, typer.Option("--adapt", help="Adapt to PHOTOS first, if they are from another camera or place.")
    ] = False,
    insist: Insist = False,
    network: ModelNetwork = None,
    jobs: Jobs = None,
    engine: EngineOption = EngineName.local,
    address: Address = None,
    workers: Workers = None,
    quiet: Quiet = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one line of JSON per photo.")] = False,
) -> None:
    """Predict the classes of PHOTOS: a table on a terminal, CSV in a pipe or a file."""
    from ..backbones.network_files import network_files
    from ..photos.outputs import check_outputs
    from ..utils.marks import Kind
    from .progress import ProgressLine

    _check_output(output, as_json)
    check_insist(insist, adapt, "--adapt")
    check_engine(engine, adapt)
    names = _paths(photos)
    paths = [place(name) for name in names]
    check_order(model, paths)
    with workers_of(engine, address, workers, jobs) as (where, threads):
        classifier = load(model, network=network, jobs=threads)
        listed = 0 if photos == ["-"] else None  # standard input, which may be redirected from the output file
        inputs = itertools.chain([model, listed, *paths], network_files(classifier.recipe.network))
        check_outputs([(output, Kind.answers)], inputs, force=force)
        progress = ProgressLine("extract", quiet or not adapt)
        settings: dict[str, Any] = {"adapt": adapt, "insist": insist, "progress": progress.stage, "engine": where}
        counter = _Counter(classifier, adapt, quiet)
        _write(counter.each(classifier.answers(_photos(names), **settings), progress), counter, output, as_json)
    say(*classifier.damaged)
    say(*classifier.passed_over.sentences())
    if counter.failed == counter.total:
        raise typer.Exit(FAILED)
    if counter.failed or classifier.passed_over.types:
        raise typer.Exit(SKIPPED)


def _write(answers: Iterator[Answer], counter: _Counter, output: Path | None, as_json: bool) -> None:
    """Write answers to a file, or print them as they come."""
    from ..utils.files import write_file
    from .answers import csv_lines, json_lines, table_lines

    def json_rows(answers: Iterable[Answer]) -> Iterator[str]:
        return json_lines(answers, lambda: {"adapted": counter.classifier.refusal is None} if counter.adapt else {})

    if output is not None:
        lines = json_rows if output.suffix.lower() == ".jsonl" else csv_lines
        with interruption(f"interrupted; {output} was not written."):
            write_file(output, (f"{line}\n".encode() for line in lines(answers)))
        if not counter.quiet:
            say(f"wrote {output}")
        return
    terminal = sys.stdout.isatty()
    lines = json_rows if as_json else table_lines if terminal else csv_lines
    for number, line in enumerate(lines(answers)):
        emit(line, flush=terminal or as_json or not number)  # the first at once: it fails if the output is closed


@dataclasses.dataclass
class _Counter:
    """Counts answers as they are written, and prints why some photos have none."""

    classifier: ImageClassifier
    adapt: bool
    quiet: bool
    total: int = 0
    failed: int = 0

    def each(self, answers: Iterator[Answer], progress: ProgressLine) -> Iterator[Answer]:
        with progress:
            first = next(answers, None)  # after the first answer, adapting is done
        tell_refusal(self.classifier)
        if self.adapt and not self.quiet and self.classifier.refusal is None:
            say(f"adapted to {counted((self.classifier.model.about.adapted or {}).get('photos', 0), 'photo')}.")
        for answer in itertools.chain([first] if first else [], answers):
            self.total += 1
            if answer.error is not None:
                self.failed += 1
                say(f"skipped {answer.error}")
            yield answer


def _check_output(output: Path | None, as_json: bool) -> None:
    if output is None:
        return
    if output.suffix.lower() not in (".csv", ".jsonl"):
        raise MistypedError(f"--output writes .csv or .jsonl, got {output}.")
    if as_json:
        raise MistypedError("--json prints and --output writes a file: leave one out. A .jsonl file also holds JSON.")


def _paths(words: list[str]) -> list[str]:
    """Return the paths in the arguments, or in the lines of standard input."""
    from ..photos.manifests import lines

    if "-" in words and len(words) > 1:
        raise MistypedError("- reads paths from standard input, and stands alone; a file of that name is ./-.")
    if words == ["-"]:
        words = [line.strip() for line in lines(_standard_input(), "standard input") if line.strip()]
        if not words:
            raise PatchvoteError("standard input names no photo. Give one path per line.")
    return words


def _photos(names: list[str]) -> Found:
    """Return the photos in all files, folders and manifests that were named.

    The name of a photo is its path as it was typed; in a folder, it begins with the folder as it was typed; in a
    manifest, it is the file_name unchanged. If two photos would have the same name, their full paths are used instead.
    """
    from ..photos.find import Found, find_photos
    from ..photos.manifests import ENDINGS

    found = Found()
    for name in names:
        path = place(name)
        if path.is_dir():
            inside = find_photos(path)
            found.extend(dataclasses.replace(one, name=os.path.join(name, one.name)) for one in inside)  # noqa: PTH118
            found.passed_over += inside.passed_over.without_folders()
        else:
            found.extend(find_photos(path if path.suffix.lower() in ENDINGS else [name]))
    sources: dict[str, set[str]] = {}
    for one in found:
        sources.setdefault(one.name, set()).add(str(one.source))
    return Found(
        (one if len(sources[one.name]) == 1 else dataclasses.replace(one, name=str(one.source)) for one in found),
        found.passed_over,
    )


def _standard_input() -> TextIO:
    if sys.stdin is None:
        raise PatchvoteError("standard input is closed, so it names no photo. Give paths instead of -.")
    if isinstance(sys.stdin, io.TextIOWrapper):  # file names are bytes, whatever the locale
        sys.stdin.reconfigure(errors="surrogateescape")
    return sys.stdin
