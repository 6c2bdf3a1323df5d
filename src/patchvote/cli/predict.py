"""The command that names photos."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..engines import EngineName
from ..utils.remote import place
from ..utils.terminal import columns_of, counted, emit, say
from .common import (
    FAILED,
    SKIPPED,
    Address,
    Cache,
    ColumnsOption,
    Device,
    EngineOption,
    Force,
    Insist,
    Jobs,
    MistypedError,
    ModelArgument,
    ModelNetwork,
    NoCache,
    QuietAnswers,
    Threshold,
    Workers,
    cache_of,
    check_insist,
    check_order,
    load,
    named_columns,
    tell_refusal,
    workers_of,
)
from .paths import Null, paths_of, photos_of
from .sorting import Sorting
from .streams import Interrupted, interruption

if TYPE_CHECKING:
    from ..classifier import ImageClassifier
    from ..models.answers import Answer
    from .answers import Wanted
    from .progress import ProgressLine


def predict(
    model: ModelArgument,
    photos: Annotated[
        list[str],
        typer.Argument(metavar="PHOTOS", help="Photos, folders or lists; - reads paths from standard input."),
    ],
    null: Null = False,
    columns: ColumnsOption = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Write a .csv or .jsonl file.")] = None,
    top: Annotated[
        int | None,
        typer.Option(min=1, metavar="K", help="Also write the K likeliest classes, each with its probability."),
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="Also write the probability of every class.")] = False,
    force: Force = False,
    threshold: Threshold = None,
    adapt: Annotated[
        bool, typer.Option("--adapt", help="Adapt to PHOTOS first, if they are from another camera or place.")
    ] = False,
    insist: Insist = False,
    sort_into: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Copy photos into DIR, into a folder per class.")
    ] = None,
    link: Annotated[bool, typer.Option("--link", help="Make links in DIR instead of copies.")] = False,
    move: Annotated[
        bool, typer.Option("--move", help="Move photos into DIR; if the same bytes are there, the original is removed.")
    ] = False,
    network: ModelNetwork = None,
    cache: Cache = None,
    no_cache: NoCache = False,
    device: Device = "cpu",
    jobs: Jobs = None,
    engine: EngineOption = EngineName.local,
    address: Address = None,
    workers: Workers = None,
    quiet: QuietAnswers = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one line of JSON per photo.")] = False,
) -> None:
    """Predict the classes of PHOTOS: a table on a terminal, CSV in a pipe or a file."""
    from ..networks.names import network_files
    from ..photos.outputs import check_outputs
    from ..utils.marks import Kind
    from .answers import Wanted
    from .progress import ProgressLine

    check_output(output, as_json)
    sorting = Sorting(sort_into, link, move)
    check_insist(insist, adapt, "--adapt")
    kept = cache_of(cache, no_cache)
    names = paths_of(photos, null)
    paths = [place(name) for name in names]
    check_order(model, paths)
    named = named_columns(columns, paths)
    with workers_of(engine, address, workers, jobs) as (where, threads):
        classifier = load(model, network=network, jobs=threads, cache=kept, device=device)
        listed = 0 if photos == ["-"] else None  # standard input, which may be redirected from the output file
        inputs = itertools.chain([model, listed, *paths], network_files(classifier.recipe.network))
        check_outputs([(output, Kind.answers)], inputs, force=force, columns=named)
        progress = ProgressLine("extract", quiet or not adapt)
        settings: dict[str, Any] = {"adapt": adapt, "insist": insist, "progress": progress.stage, "engine": where}
        settings["threshold"] = threshold
        counter = _Counter(classifier, adapt, quiet)
        found = sorting.outside(photos_of(names, named))
        answers = counter.each(classifier.answers(found, **settings), progress)
        wanted, names = Wanted(classifier.classes, top or 0, every), [photo.name for photo in found]
        _write(sorting.each(answers, found, classifier.classes, quiet), counter, wanted, names, output, as_json)
    say(*classifier.damaged)
    say(*classifier.passed_over.sentences())
    if counter.failed == counter.total:
        raise typer.Exit(FAILED)
    if counter.failed or sorting.failed or classifier.passed_over.types:
        raise typer.Exit(SKIPPED)


def _write(
    answers: Iterator[Answer],
    counter: _Counter,
    wanted: Wanted,
    names: list[str],
    output: Path | None,
    as_json: bool,
) -> None:
    """Write answers to a file, or print them as they come."""
    from ..utils.files import write_file
    from .answer_table import Table
    from .answers import csv_lines, json_lines

    def json_rows(answers: Iterable[Answer]) -> Iterator[str]:
        return json_lines(
            answers, wanted, lambda: {"adapted": counter.classifier.refusal is None} if counter.adapt else {}
        )

    rows = functools.partial(csv_lines, wanted=wanted)
    if output is not None:
        lines = json_rows if output.suffix.lower() == ".jsonl" else rows
        with interruption(f"interrupted; {output} was not written."):
            write_file(output, (f"{line}\n".encode() for line in lines(answers)))
        if not counter.quiet:
            say(f"wrote {output}")
        return
    terminal = sys.stdout.isatty()
    lines = json_rows if as_json else rows
    if terminal and not as_json:
        lines = Table.of(names, counter.classifier.classes, columns_of(sys.stdout), wanted).lines
    try:
        for number, line in enumerate(lines(answers)):
            emit(line, flush=terminal or as_json or not number)  # the first at once: it fails if the output is closed
    except KeyboardInterrupt:
        done = f"{counter.total:,} of {counted(len(names), 'photo')}"
        raise Interrupted(f"interrupted after {done}; answers that were printed are complete.") from None


@dataclasses.dataclass
class _Counter:
    """Counts answers as they are written, and prints why some photos have none."""

    classifier: ImageClassifier
    adapt: bool
    quiet: bool
    total: int = 0
    failed: int = 0
    rejected: int = 0

    def each(self, answers: Iterator[Answer], progress: ProgressLine) -> Iterator[Answer]:
        with progress:
            first = next(answers, None)  # after the first answer, adapting is done
        tell_refusal(self.classifier)
        adapted = self.adapt and not self.quiet and self.classifier.refusal is None
        if adapted:
            say(f"adapted to {counted((self.classifier.model.about.adapted or {}).get('photos', 0), 'photo')}.")
        for answer in itertools.chain([first] if first else [], answers):
            self.total += 1
            if answer.error is not None:
                self.failed += 1
                say(f"skipped {answer.error}")
            self.rejected += answer.rejected
            yield answer
        if adapted and (self.rejected or self.classifier.newly_named):
            self._tell_rejected()

    def _tell_rejected(self) -> None:
        """Say how many photos the adapted model rejects, and for how many that has changed, in both directions."""
        from ..voters.votes import NONE

        named = self.classifier.newly_rejected
        before = f" Without --adapt, {named:,} of these would have been named." if named else ""
        if new := self.classifier.newly_named:
            before += f" Without --adapt, {new:,} more would have been rejected."
        advice = " --threshold 0 names every photo, if you know that all of them show the model's classes."
        say(
            f'{self.rejected:,} of {counted(self.total, "photo")} {"is" if self.rejected == 1 else "are"} "{NONE}".'
            f"{before}{advice if self.rejected else ''}"
        )


def check_output(output: Path | None, as_json: bool) -> None:
    """Refuse an output that is neither .csv nor .jsonl, and one beside --json."""
    if output is None:
        return
    if output.suffix.lower() not in (".csv", ".jsonl"):
        raise MistypedError(f"--output writes .csv or .jsonl, got {output}.")
    if as_json:
        raise MistypedError("--json prints and --output writes a file: leave one out. A .jsonl file also holds JSON.")
