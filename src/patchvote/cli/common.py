"""What the commands share: options, exit codes, where words go."""

from __future__ import annotations

import enum
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..errors import PatchvoteError
from ..terminal import say

if TYPE_CHECKING:
    from ..classifier import ImageClassifier

FAILED, SKIPPED, INTERRUPTED = 1, 3, 130


class Mode(enum.StrEnum):
    """Where to look."""

    dense = "dense"
    patch = "patch"


Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but errors.")]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON on standard output.")]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Also print how long each part took.")]
Jobs = Annotated[int | None, typer.Option("--jobs", "-j", help="Threads; one a core by default.")]
Seed = Annotated[int, typer.Option(help="Fixes everything that is random.")]
Network = Annotated[
    str, typer.Option(help="efficientnet-lite0, -lite1, -lite2, an ONNX file, torch:…, timm:…, caffe:…")
]
Cache = Annotated[
    Path | None,
    typer.Option(help="Folder to keep bags in, so that no photo goes through the network twice.", show_default="yours"),
]
NoCache = Annotated[bool, typer.Option("--no-cache", help="Keep no bags.")]
PhotosArgument = Annotated[
    Path,
    typer.Argument(
        metavar="PHOTOS", help="A folder (one folder a class), or a .csv or .jsonl with file_name and label."
    ),
]
ModelArgument = Annotated[Path, typer.Argument(metavar="MODEL", help="File of a model.")]
ReportOption = Annotated[
    Path | None, typer.Option(help="File of the report.", show_default="beside the model, ending in .html")
]
NoReport = Annotated[bool, typer.Option("--no-report", help="Write no report.")]


def size(path: Path) -> str:
    """Return the size of a file in words."""
    count = path.stat().st_size
    return f"{count / 1e6:,.1f} MB" if count >= 1e5 else f"{count / 1e3:,.1f} kB"


def load(path: Path, **settings: Any) -> ImageClassifier:
    """Read a model, with the settings of the command."""
    from ..classifier import ImageClassifier

    return ImageClassifier.load(path, **settings)


def tell_skipped(classifier: ImageClassifier) -> None:
    """Name the photos that could not be read."""
    for error in classifier.skipped:
        say(f"skipped {error}")


def leave(classifier: ImageClassifier) -> None:
    """Exit with the code for skipped photos, where there were any."""
    if classifier.skipped:
        raise typer.Exit(SKIPPED)


def check_folder(path: Path) -> None:
    """Say that a file cannot be written before the work begins, not after it."""
    folder = path.parent
    if not folder.is_dir():
        raise PatchvoteError(f"{path} cannot be written: there is no folder {folder}.")
    if path.is_dir():
        raise PatchvoteError(f"{path} cannot be written: it is a folder.")


def report_file(model: Path, report: Path | None, no_report: bool) -> Path | None:
    """Return where the report goes: by default beside the model."""
    if no_report:
        return None
    page = report or model.with_suffix(".html")
    check_folder(page)
    return page


def write(path: Path, parts: Iterable[bytes]) -> None:
    """Write a file, whole or not at all; say in a sentence why it cannot be written."""
    from ..files import write_atomically

    try:
        write_atomically(path, parts)
    except OSError as error:
        raise PatchvoteError(f"{path} cannot be written: {error.strerror or error}.") from error
