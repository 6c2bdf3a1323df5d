"""The command that names photos."""

from __future__ import annotations

import csv
import dataclasses
import io
import itertools
import json
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..errors import PatchvoteError
from .common import SKIPPED, Jobs, ModelArgument, Quiet, check_folder, load, say, write

if TYPE_CHECKING:
    from ..classifier import Answer
    from ..photos import Photo


def predict(
    model: ModelArgument,
    photos: Annotated[
        list[str],
        typer.Argument(metavar="PHOTOS…", help="Photos, folders or lists; - reads paths from standard input."),
    ],
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Write a .csv or .jsonl file.")] = None,
    adapt: Annotated[
        bool, typer.Option("--adapt", help="Adapt to PHOTOS first, where another camera or place took them.")
    ] = False,
    jobs: Jobs = None,
    quiet: Quiet = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print a line of JSON a photo.")] = False,
) -> None:
    """Name PHOTOS: a table on a terminal, CSV in a pipe or a file."""
    from ..progress import ProgressLine

    classifier = load(model, jobs=jobs)
    progress = ProgressLine("extract", quiet or not adapt)
    answers = classifier.answers(_photos(photos), adapt=adapt, progress=progress.stage)
    bad = 0

    def counted() -> Iterator[Answer]:
        nonlocal bad
        with progress:
            first = next(answers, None)  # once the first is there, all photos have been looked at
        for answer in itertools.chain([first] if first else [], answers):
            if answer.error is not None:
                bad += 1
                say(f"skipped {answer.error}")
            yield answer

    if output is not None:
        if output.suffix.lower() not in (".csv", ".jsonl"):
            raise PatchvoteError(f"--output writes .csv or .jsonl, got {output}.")
        check_folder(output)
        lines = _json_lines if output.suffix.lower() == ".jsonl" else _csv_lines
        write(output, (f"{line}\n".encode() for line in lines(counted())))
        if not quiet:
            say(f"wrote {output}")
    else:
        terminal = sys.stdout.isatty()
        way = _json_lines if as_json else _table_lines if terminal else _csv_lines
        for line in way(counted()):
            print(line, flush=terminal or as_json)
    if bad:
        raise typer.Exit(SKIPPED)


def _photos(words: list[str]) -> Any:
    """Return one folder or list as it is, so that names stay short; several things as the photos in all of them."""
    from ..photos import find_photos

    if words == ["-"]:
        words = [line.strip() for line in sys.stdin if line.strip()]
        if not words:
            raise PatchvoteError("standard input names no photo. Give one path a line.")
    found: list[Photo] = []
    for word in words:
        path = Path(word)
        if path.is_dir() or path.suffix.lower() in (".csv", ".jsonl"):
            found.extend(dataclasses.replace(one, name=str(path / one.name)) for one in find_photos(path))
        else:
            found.extend(find_photos([path]))
    return found


def _row(answer: Answer) -> dict[str, Any]:
    from ..voting import NONE

    return {
        "file": answer.name,
        "label": NONE if answer.rejected else answer.label or "",
        "probability": round(answer.probability, 4),
        "likeliest": answer.label or "",
        "runner_up": answer.runner_up or "",
        "runner_up_probability": round(answer.runner_up_probability, 4),
        "error": answer.error.reason if answer.error else "",
    }


def _json_lines(answers: Iterable[Answer]) -> Iterator[str]:
    for answer in answers:
        yield json.dumps(_row(answer), ensure_ascii=False)


def _csv_lines(answers: Iterable[Answer]) -> Iterator[str]:
    text = io.StringIO()
    writer = None
    for answer in answers:
        row = _row(answer)
        if writer is None:
            writer = csv.DictWriter(text, list(row), lineterminator="")
            writer.writeheader()
            yield _taken(text)
        writer.writerow(row)
        yield _taken(text)


def _taken(text: io.StringIO) -> str:
    line = text.getvalue()
    text.seek(0)
    text.truncate()
    return line


def _table_lines(answers: Iterable[Answer]) -> Iterator[str]:
    for answer in answers:
        name = answer.name if len(answer.name) <= 48 else "…" + answer.name[-47:]
        if answer.error is not None:
            yield f"{name:<48}  cannot be read"
            continue
        row = _row(answer)
        label = f"{row['label']} ({answer.label}?)" if answer.rejected else row["label"]
        second = f"{answer.runner_up} {100 * answer.runner_up_probability:.0f} %"
        yield f"{name:<48}  {100 * answer.probability:3.0f} %  {label:<24}  else {second}"
