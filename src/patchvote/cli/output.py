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
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from ..utils.terminal import (
    Pace,
    Progress,
    columns_of,
    counted,
    csv_of,
    emit,
    muted,
    padded,
    printable,
    printable_json,
    say,
    shortened,
    width,
)

if TYPE_CHECKING:
    from ..bags.extract import Extractor
    from ..classifier import ImageClassifier
    from ..models.answers import Answer
    from .options import Printing

FAILED, MISTYPED, SKIPPED, INTERRUPTED = 1, 2, 3, 130  # exit codes
_SECONDS_BETWEEN_LINES = 10.0  # of progress, where there is no terminal
_SHOWN = 0.005  # probability from which on a table of all classes lists a class: less would be shown as 0 %
_LEAST_LIKELIEST, _MOST_LABEL = 22, 40  # columns
_MOST_NAMES = 0.9  # share of the photos whose names are to fit beside their answers; a few long ones do not decide
_GAP = "  "
_HEADS = ("photo", "class", "probability", "likeliest", "next likeliest")
_UNREADABLE = "cannot be read"  # longer than "none of these"


@contextlib.contextmanager
def progress_line(stage: str, quiet: bool = False) -> Iterator[Progress]:
    """Yield a function that shows how much of a stage is done: a bar on a terminal, a line now and then elsewhere."""
    from rich.console import Console
    from rich.progress import BarColumn, TextColumn
    from rich.progress import Progress as Bar

    pace, last, is_terminal = Pace(stage), time.monotonic(), sys.stderr.isatty()
    columns = TextColumn("{task.description}", markup=False), BarColumn(bar_width=28), TextColumn("{task.fields[text]}")
    bar = Bar(*columns, console=Console(stderr=True), transient=True, disable=quiet or not is_terminal)
    task = bar.add_task(stage, total=None, text="")

    def show_progress(stage: str, done: int, total: int) -> None:
        nonlocal last
        text = pace.text(stage, done, total)
        bar.update(task, description=printable(stage), completed=done, total=total, text=text)
        if not (quiet or is_terminal) and time.monotonic() - last >= _SECONDS_BETWEEN_LINES:
            last = time.monotonic()
            say(f"{stage}: {text}")

    with bar:
        yield show_progress


def tell_one_scale(extractor: Extractor) -> None:
    """Print that photos are seen at one scale, if the network takes images of one size only."""
    fixed = extractor.backbone.spec.fixed_size
    if fixed is not None and extractor.recipe.mode == "dense":
        say(
            f"{extractor.recipe.network.partition('@')[0]} takes images of {fixed[1]} x {fixed[0]} pixels only: photos "
            "are seen at one scale, and resized to it whatever their proportions."
        )


def tell_skipped(classifier: ImageClassifier) -> None:
    """Print what was not read, and why the model was not adapted if that was asked for."""
    say(*classifier.damaged, *(f"skipped {error}" for error in classifier.skipped))
    say(*classifier.passed_over.sentences(), *filter(None, [classifier.refusal]))


def leave(classifier: ImageClassifier, *, failed: bool = False) -> None:
    """Exit with the code for skipped photos, if there were any or more has failed."""
    if failed or classifier.skipped or classifier.passed_over.types:
        raise typer.Exit(SKIPPED)


def size(path: Path) -> str:
    """Return the size of a file as text."""
    return bytes_text(path.stat().st_size)


def bytes_text(count: int) -> str:
    """Return a number of bytes as text.

    Examples
    --------
    >>> bytes_text(5_000_000_000), bytes_text(31_200), bytes_text(0)
    ('5.0 GB', '31.2 kB', '0 bytes')
    """
    for unit_size, unit in ((10**9, "GB"), (10**6, "MB"), (10**3, "kB")):
        if count >= unit_size:
            return f"{count / unit_size:,.1f} {unit}"
    return f"{count} bytes"


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
    def below(self) -> bool:
        """Whether a table lists classes below the answer, on a line each."""
        return self.every or self.top > 1

    def shown(self, answer: Answer) -> list[tuple[str, float]]:
        """Return the classes that a table lists below the answer: all that are wanted, except the label."""
        if not self.below:
            return []
        ranked = enumerate(answer.top(None if self.every else self.top), 1)
        listed = [(label, p) for rank, (label, p) in ranked if p >= _SHOWN or rank <= max(self.top, 1)]
        return listed if answer.rejected else listed[1:]

    def left_out(self, answer: Answer) -> int:
        """Return how many of all classes a table does not list, since all of them are hardly likely."""
        return len(answer.top()) - len(self.shown(answer)) - (not answer.rejected) if self.every else 0


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


@dataclasses.dataclass(frozen=True)
class Table:
    """Answers as a table for people: a header, and one line per photo.

    Lines are printed as answers come, so the widths of the columns are computed before, from the names of all photos
    and classes and the width of the terminal. The name of a photo is never cut, since people copy it: one that is too
    long for its column stands on a line of its own, above its answer. In a narrow terminal, the runner-up is left out
    where that lets the names stand beside their answers. A photo that is "none of these" has no probability; its
    likeliest class stands apart, muted, in a column of its own.
    """

    name: int  # columns of the terminal; 0 for what is not shown
    label: int
    likeliest: int
    second: int
    wanted: Wanted = LIKELIEST

    @classmethod
    def of(
        cls, names: Iterable[str], classes: Sequence[str], columns: int | None = None, wanted: Wanted = LIKELIEST
    ) -> Table:
        """Return the table of some photos and classes, as wide as they need and no wider than the terminal."""
        longest = max(width(printable(label)) for label in classes)
        label = min(max(longest, len(_UNREADABLE)), _MOST_LABEL)
        likeliest, second = (max(min(longest, _MOST_LABEL) + len(" 100 %"), len(head)) for head in _HEADS[3:])
        if wanted.below:  # the others are listed there, and have no column
            likeliest = second = 0
        widths = sorted(width(printable(name)) for name in names) or [0]
        name = max(len(_HEADS[0]), widths[-1])
        if columns is None:
            return cls(name, label, likeliest, second, wanted)
        gap, least = len(_GAP), min(likeliest, len(_HEADS[3]))
        columns -= len(_HEADS[2]) + 2 * gap
        label = min(label, max(len(_UNREADABLE), columns - len(_HEADS[0]) - min(likeliest, _LEAST_LIKELIEST) - gap))
        usual = max(len(_HEADS[0]), widths[int(_MOST_NAMES * (len(widths) - 1))])
        if usual + label + least + gap > columns:  # names do not fit anyway, and stand above their answers
            usual = len(_HEADS[0])
        room = columns - label - usual
        if room < likeliest + second + 2 * gap:
            second = 0
            likeliest = max(least, min(likeliest, room - gap))
        room = columns - label - sum(cells + gap for cells in (likeliest, second) if cells)
        return cls(min(name, max(room, len(_HEADS[0]))), label, likeliest, second, wanted)

    def lines(self, answers: Iterable[Answer]) -> Iterator[str]:
        """Yield the header, then the answers, each on one line, and one line per further class that is wanted."""
        yield self._row(*_HEADS, faint=False)
        for answer in answers:
            name = printable(answer.name)
            if width(name) > self.name:
                yield name
                name = ""
            if answer.error is not None:
                yield self._row(name, _UNREADABLE)
                continue
            first = f"{answer.likeliest} {_percent(answer.likeliest_probability)}" if answer.rejected else ""
            second = f"{answer.runner_up} {_percent(answer.runner_up_probability)}"
            yield self._row(name, answer.label or "", _percent(answer.probability), first, second)
            for other, probability in self.wanted.shown(answer):
                yield self._row("", other, _percent(probability))
            if left_out := self.wanted.left_out(answer):
                yield self._row("", counted(left_out, "more class", "more classes"), f"< {100 * _SHOWN:g} %")

    def _row(
        self, name: str, label: str, probability: str = "", likeliest: str = "", second: str = "", *, faint: bool = True
    ) -> str:
        cells = [
            padded(name, self.name),
            padded(shortened(printable(label), self.label, keep_start=True), self.label),
            probability.rjust(len(_HEADS[2])),
        ]
        if self.likeliest:
            likeliest = shortened(printable(likeliest), self.likeliest)
            cells.append((muted(likeliest) if faint else likeliest) + padded("", self.likeliest - width(likeliest)))
        if self.second:
            cells.append(shortened(printable(second), self.second))
        return _GAP.join(cells).rstrip()


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
        lines = Table.of(names, wanted.classes, columns_of(sys.stdout), wanted).lines(answers)
    else:
        lines = csv_lines(answers, wanted)
    if output is not None:
        write_file(output, (f"{line}\n".encode() for line in lines))
        if not printing.quiet:
            say(f"wrote {output}")
        return
    for number, line in enumerate(lines):
        emit(line, flush=is_terminal or as_json or not number)  # the first at once: it fails if the output is closed
