"""What the commands print: progress, answers as a table, as CSV and as JSON, and what several commands say.

Results go to standard output, progress and messages to standard error. JSON holds names exactly; CSV is read by
spreadsheets and shown by terminals (`utils.terminal`).
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence, Sized
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from ..utils.terminal import (
    Progress,
    columns_of,
    csv_of,
    emit,
    padded,
    printable,
    printable_json,
    say,
    shortened,
    width,
)

if TYPE_CHECKING:
    from ..classifier import ImageClassifier
    from ..models.answers import Answer
    from .options import Printing

FAILED, MISTYPED, SKIPPED, INTERRUPTED = 1, 2, 3, 130  # exit codes
_SECONDS_BETWEEN_LINES = 10.0  # of progress, where there is no terminal
_MOST_LABEL = 40  # columns
_GAP = "  "
_HEADS = ("photo", "class", "probability", "next likeliest")
_UNREADABLE = "cannot be read"  # longer than "none of these"


@contextlib.contextmanager
def progress_line(stage: str, quiet: bool = False) -> Iterator[Progress]:
    """Yield a function that shows how much of a stage is done: a bar on a terminal, a line now and then elsewhere."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    last, is_terminal = time.monotonic(), sys.stderr.isatty()
    columns = TextColumn("{task.description}", markup=False), BarColumn(28), MofNCompleteColumn(), TimeRemainingColumn()
    bar = Bar(*columns, console=Console(stderr=True), transient=True, disable=quiet or not is_terminal)
    task = bar.add_task(stage, total=None)

    def show_progress(present: str, done: int, total: int) -> None:
        nonlocal last, stage
        if present != stage:
            stage = present
            bar.reset(task, description=printable(stage))
        bar.update(task, completed=done, total=total)
        if not (quiet or is_terminal) and time.monotonic() - last >= _SECONDS_BETWEEN_LINES:
            last = time.monotonic()
            say(f"{stage}: {done:,} of {total:,}")

    with bar:
        yield show_progress


def tell_skipped(classifier: ImageClassifier) -> None:
    """Print what was not read, and why the model was not adapted if that was asked for."""
    say(*classifier.damaged, *(f"skipped {error}" for error in classifier.skipped))
    say(*classifier.passed_over.sentences(), *filter(None, [classifier.refusal]))


def leave(classifier: ImageClassifier, photos: Sized | None = None, *, failed: bool = False) -> None:
    """Exit with a code if all of some photos were skipped, or if any was, or more has failed."""
    if photos is not None and len(classifier.skipped) == len(photos):
        raise typer.Exit(FAILED)
    if failed or classifier.skipped or classifier.passed_over.types:
        raise typer.Exit(SKIPPED)


def size(path: Path) -> str:
    """Return the size of a file as text."""
    return bytes_text(path.stat().st_size)


def bytes_text(count: int) -> str:
    """Return a number of bytes as text, such as "5.0 GB"."""
    from rich.filesize import decimal

    return decimal(count)


# --- answers ----------------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Wanted:
    """Which probabilities are written besides those of the two likeliest classes: of the `top` classes, or `every`."""

    classes: tuple[str, ...] = ()
    top: int = 0
    every: bool = False

    def cells(self, answer: Answer) -> dict[str, Any]:
        """Return the further columns of a row: the same for every answer, empty where a photo could not be read."""
        columns: dict[str, Any] = {}
        ranks = range(1, min(self.top, len(self.classes)) + 1)
        for rank, (label, probability) in itertools.zip_longest(ranks, answer.top(len(ranks)), fillvalue=("", None)):
            columns |= {f"top_{rank}": label, f"top_{rank}_probability": _exact(probability)}
        if self.every:
            known = dict(answer.top())
            columns |= {f"probability of {label}": _exact(known.get(label)) for label in self.classes}
        return columns

    def plain(self, answer: Answer) -> dict[str, Any]:
        """Return the further entries of a JSON object."""
        entries: dict[str, Any] = {}
        if self.top:
            entries["top"] = [{"label": label, "probability": _exact(p)} for label, p in answer.top(self.top)]
        if self.every:
            entries["probabilities"] = {label: _exact(p) for label, p in answer.top()}
        return entries

    @property
    def below(self) -> int | None:
        """How many classes a table lists on lines of their own, 0 for all of them; None for none."""
        return 0 if self.every else self.top if self.top > 1 else None


def _exact(probability: float | None) -> float | None:
    return None if probability is None else round(probability, 6)


LIKELIEST = Wanted()


def json_lines(
    answers: Iterable[Answer], wanted: Wanted = LIKELIEST, more: Mapping[str, Any] | None = None
) -> Iterator[str]:
    """Yield one JSON object per answer, with more entries."""
    from ..models.answers import row

    for answer in answers:
        yield printable_json({**row(answer), **wanted.plain(answer), **(more or {})})


def csv_lines(answers: Iterable[Answer], wanted: Wanted = LIKELIEST) -> Iterator[str]:
    """Yield a header and one row per answer, each on one line."""
    from ..models.answers import row

    return csv_of({**row(answer), **wanted.cells(answer)} for answer in answers)


def table_lines(
    answers: Iterable[Answer], names: Sequence[str], wanted: Wanted, columns: int | None = None
) -> Iterator[str]:
    """Yield answers as a table for people: a header, and one line per photo and per further class that is wanted.

    Lines are printed as answers come, so the widths of the columns are computed before. The name of a photo is never
    cut, since people copy it: one that is too long for its column has a line of its own, above its answer. The last
    column has the next likeliest class; for "none of these", which has no probability, the two likeliest ones.
    """
    most, head = columns or sys.maxsize, _HEADS if wanted.below is None else _HEADS[:3]
    widest_label = min(max(width(printable(label)) for label in (*wanted.classes, _UNREADABLE)), _MOST_LABEL)
    room = max(most - widest_label - len(_GAP.join(("", "", *_HEADS[2:]))), len(_HEADS[0]))
    widest_name = min(max(width(printable(name)) for name in (*names, _HEADS[0])), room)

    def row(name: str, label: str, probability: str = "", others: str = "") -> str:
        label = padded(shortened(printable(label), widest_label, keep_start=True), widest_label)
        line = _GAP.join([padded(name, widest_name), label, probability.rjust(len(_HEADS[2])), printable(others)])
        return shortened(line.rstrip(), most, keep_start=True)

    yield row(*head)
    for answer in answers:
        name = printable(answer.name)
        if width(name) > widest_name:
            yield name
            name = ""
        if answer.error is not None:
            yield row(name, _UNREADABLE)
            continue
        ranked = answer.top(2 if wanted.below is None else wanted.below or None)
        ranked = ranked if answer.rejected else ranked[1:]
        others = [f"{label} {_percent(probability)}" for label, probability in ranked]
        yield row(name, answer.label or "", _percent(answer.probability), ", ".join(others if len(head) > 3 else ()))
        for label, probability in () if wanted.below is None else ranked:
            yield row("", label, _percent(probability))


def _percent(probability: float | None) -> str:
    return "" if probability is None else f"{100 * probability:.0f} %"


def print_answers(
    answers: Iterable[Answer],
    names: Sequence[str],
    wanted: Wanted,
    output: Path | None,
    printing: Printing,
    more: Mapping[str, Any] | None = None,
) -> None:
    """Write answers to a file, or print them as they come: a table on a terminal, CSV in a pipe."""
    from ..utils.files import write_file

    is_terminal, as_json = output is None and sys.stdout.isatty(), printing.as_json
    if as_json or (output is not None and output.suffix.lower() == ".jsonl"):
        lines = json_lines(answers, wanted, more)
    elif is_terminal:
        lines = table_lines(answers, names, wanted, columns_of(sys.stdout))
    else:
        lines = csv_lines(answers, wanted)
    if output is not None:
        write_file(output, (f"{line}\n".encode() for line in lines))
        if not printing.quiet:
            say(f"wrote {output}")
        return
    for number, line in enumerate(lines):
        emit(line, flush=is_terminal or as_json or not number)  # the first at once: it fails if the output is closed
