"""What the commands share: options, exit codes, where words go."""

from __future__ import annotations

import enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..utils.terminal import say

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
ModelNetwork = Annotated[
    str | None,
    typer.Option(
        "--network",
        help="The network of MODEL, as for fit, where it is neither embedded nor an ONNX file beside MODEL.",
        show_default="what MODEL names",
    ),
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
Insist = Annotated[
    bool,
    typer.Option(
        "--insist", help="Adapt even where it looks unsafe: you vouch that the photos show the model's classes."
    ),
]
Force = Annotated[bool, typer.Option("--force", help="Also replace files that patchvote did not write.")]
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
    """Name the photos that could not be read, what else was passed over, and shards of the cache that were damaged."""
    say(*classifier.damaged)
    for error in classifier.skipped:
        say(f"skipped {error}")
    say(*classifier.passed_over.sentences())


def tell_refusal(classifier: ImageClassifier) -> None:
    """Say why the model was not adapted, where it was not."""
    if classifier.refusal is not None:
        say(classifier.refusal)


def leave(classifier: ImageClassifier) -> None:
    """Exit with the code for skipped photos, where there were any."""
    if classifier.skipped or classifier.passed_over.types:
        raise typer.Exit(SKIPPED)


def report_file(default: Path, report: Path | None, no_report: bool) -> Path | None:
    """Return where the report goes, if anywhere."""
    return None if no_report else report or default
