"""What the commands share: options, exit codes, checks and messages."""

from __future__ import annotations

import contextlib
import dataclasses
import enum
import shlex
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..engines import EngineName, opened_engine
from ..errors import PatchvoteError
from ..utils.remote import RemotePath, place
from ..utils.terminal import flush_output, say

if TYPE_CHECKING:
    from ..bags.extract import Extractor
    from ..bags.recipe import Recipe
    from ..classifier import ImageClassifier
    from ..photos.find import Found
    from ..photos.manifests import Columns
    from ..utils.engine import Engine

FAILED, MISTYPED, SKIPPED, INTERRUPTED = 1, 2, 3, 130
_MAX_SEED = 2**32 - 1  # the largest seed that a classifier accepts


class MistypedError(PatchvoteError):
    """The arguments of a command are invalid or exclude each other; nothing was done."""


class Mode(enum.StrEnum):
    """Where descriptors are sampled."""

    dense = "dense"
    patch = "patch"


Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but errors.")]
QuietAnswers = Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but answers and errors.")]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON on standard output.")]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Also print how long each part took.")]
Jobs = Annotated[int | None, typer.Option("--jobs", "-j", min=1, help="Number of threads; one per core by default.")]
Device = Annotated[str, typer.Option("--device", help="Where the network runs: cpu, cuda (NVIDIA) or mps (Apple).")]
Seed = Annotated[int, typer.Option(min=0, max=_MAX_SEED, help="Seed of all random choices.")]
Network = Annotated[
    str,
    typer.Option(
        help="efficientnet-lite0, dinov2-small, … (`patchvote networks` lists them), an ONNX file, hf:owner/name, "
        "torch:…, timm:…"
    ),
]
ModelNetwork = Annotated[
    str | None,
    typer.Option(
        "--network",
        help="Network of MODEL, as for fit; needed if it is neither embedded nor an ONNX file beside MODEL.",
        show_default="the one that MODEL names",
    ),
]
Cache = Annotated[
    Path | None,
    typer.Option(
        help="Folder to keep what the network computes, so that no photo goes through it twice.",
        show_default="your cache",
    ),
]
NoCache = Annotated[
    bool, typer.Option("--no-cache", help="Keep nothing of what the network computes, and use nothing that is kept.")
]
PhotosArgument = Annotated[
    Path,
    typer.Argument(
        metavar="PHOTOS",
        parser=place,
        help="A folder (one folder per class), or a .csv or .jsonl with file_name and label.",
    ),
]
ColumnsOption = Annotated[
    str | None,
    typer.Option(
        "--columns",
        metavar="file=…,label=…",
        help="Columns of a .csv or .jsonl in which file_name and label have other names.",
    ),
]
ModelArgument = Annotated[Path, typer.Argument(metavar="MODEL", parser=place, help="File of a model.")]
ReportOption = Annotated[
    Path | None, typer.Option(help="File of the report.", show_default="beside the model, ending in .html")
]
Insist = Annotated[
    bool,
    typer.Option(
        "--insist", help="Adapt even if it looks unsafe; use it if you know that the photos show the model's classes."
    ),
]
Threshold = Annotated[
    float | None,
    typer.Option(
        min=0,
        max=0.999,
        help='Share of the photos of known classes that may be rejected: less familiar ones are "none of these".',
        show_default="that of MODEL, 0.05",
    ),
]
Force = Annotated[
    bool, typer.Option("--force", help="Replace a model or report, or a file that patchvote did not write.")
]
NoReport = Annotated[bool, typer.Option("--no-report", help="Write no report.")]
EngineOption = Annotated[
    EngineName, typer.Option("--engine", help="local: this process. ray: workers of a Ray cluster (extra ray).")
]
Address = Annotated[
    str | None,
    typer.Option(help="ray: address of the cluster.", show_default="$RAY_ADDRESS, or a new one on this machine"),
]
Workers = Annotated[
    int | None,
    typer.Option(min=1, help="ray: number of workers; --jobs are threads of each.", show_default="all cores"),
]


@contextlib.contextmanager
def workers_of(
    name: EngineName, address: str | None, workers: int | None, jobs: int | None
) -> Iterator[tuple[Engine | None, int | None]]:
    """Yield the engine that the options of a command name (None for this process), and the threads per process."""
    if name is EngineName.local and (address is not None or workers is not None):
        raise MistypedError("--address and --workers can be set only with --engine ray.")
    with opened_engine(name, address, workers, jobs) as engine:
        yield engine, jobs if engine is None else jobs or 1


def size(path: Path) -> str:
    """Return the size of a file as text."""
    count = path.stat().st_size
    return f"{count / 1e6:,.1f} MB" if count >= 1e5 else f"{count / 1e3:,.1f} kB"


def load(path: Path, **settings: Any) -> ImageClassifier:
    """Read a model, with the settings of the command."""
    from ..classifier import ImageClassifier

    return ImageClassifier.load(path, **settings)


def recipe_of(network: str, mode: Mode) -> Recipe | str:
    """Return the recipe of a network and a mode; dense with default settings is the network's name alone.

    A network of one size then gets one scale, where the default has two.
    """
    if mode is Mode.dense:
        return network
    from ..bags.boxes import Patch
    from ..bags.recipe import Recipe

    return Recipe(network, Patch())


def tell_one_scale(extractor: Extractor) -> None:
    """Print that photos are seen at one scale, if the network takes images of one size only."""
    fixed = extractor.backbone.spec.fixed_size
    if fixed is not None and extractor.recipe.mode == "dense":
        say(
            f"{extractor.recipe.network.partition('@')[0]} takes images of {fixed[1]} x {fixed[0]} pixels only: photos "
            "are seen at one scale, and resized to it whatever their proportions."
        )


def tell_skipped(classifier: ImageClassifier) -> None:
    """Print which photos could not be read, what else was passed over, and what was damaged in the cache."""
    say(*classifier.damaged)
    for error in classifier.skipped:
        say(f"skipped {error}")
    say(*classifier.passed_over.sentences())


def named_columns(text: str | None, photos: Sequence[Path | None]) -> Columns | None:
    """Return the columns that an option names; refuse them if no manifest is among the photos."""
    from ..photos.manifests import Columns

    if text is None:
        return None
    if not any(is_manifest(path) for path in photos if path is not None):
        raise MistypedError("--columns can be used only with a .csv or .jsonl that lists photos.")
    try:
        return Columns.parse(text)
    except PatchvoteError as error:
        raise MistypedError(f"--columns: {error}") from None


def is_manifest(path: Path) -> bool:
    """Whether a path is that of a list of photos."""
    from ..photos.manifests import ENDINGS

    return path.suffix.lower() in ENDINGS and not path.is_dir()


def source_of(path: Path, columns: Columns | None) -> Path | Found:
    """Return the photos of a manifest whose columns were named, and any other path itself."""
    if columns is None or not is_manifest(path):
        return path
    from ..photos.find import find_photos

    return find_photos(path, columns)


def sources_of(folders: list[Path], columns: Columns | None) -> Path | Found | None:
    """Return the photos of folders that an option names; those of several are named after their folder as well."""
    if len(folders) < 2:
        return source_of(folders[0], columns) if folders else None
    from ..photos.find import Found, find_photos

    found = Found()
    for folder in dict.fromkeys(folders):
        inside = find_photos(source_of(folder, columns))
        found.extend(dataclasses.replace(photo, name=f"{folder}/{photo.name}") for photo in inside)
        found.passed_over += inside.passed_over
    return found


def tell_hints(photos: Path, columns: Columns | None = None, fewest: int = 1) -> None:
    """Print what looks wrong with labelled photos, before minutes are spent on them.

    Of fewer classes than `fewest`, nothing is printed: the error that follows has the same hint.
    """
    from ..photos.find import find_photos, folder_of_classes, similar_names

    tell_answers(photos)
    found = find_photos(source_of(photos, columns))
    if len({photo.label for photo in found}) < fewest:
        return
    meant = folder_of_classes(photos, found) if photos.is_dir() else None
    if meant is not None:
        say(f"{meant} holds folders, not photos: did you mean {shlex.quote(str(meant))} in place of {photos}?")
    say(*filter(None, [similar_names(photo.label for photo in found if photo.label is not None)]))


def refuse_folder_above(photos: Path, columns: Columns | None, model: Path, classes: Iterable[str]) -> None:
    """Refuse to add a folder of folders of classes: their names would become classes, which a model cannot unlearn.

    Raises
    ------
    PatchvoteError
        Every class folder holds only folders, and none has the name of a class that the model knows.
    """
    from ..photos.find import find_photos, folder_of_classes

    if not photos.is_dir():
        return
    found = find_photos(source_of(photos, columns))
    meant = folder_of_classes(photos, found)
    if meant is not None and not {photo.label for photo in found} & set(classes):
        raise PatchvoteError(
            f"{meant} holds folders, not photos, and would become a class. Did you mean this: "
            f"{shlex.join(['patchvote', 'add', str(model), str(meant)])}? The model is as it was. If {meant.name!r} is "
            "a class, put one of its photos into that folder itself."
        )


def tell_answers(photos: Path) -> None:
    """Print that labels are answers of a model, where a list of `predict` is taken for one of labelled photos."""
    from ..utils.marks import Kind, kind_of

    with contextlib.suppress(OSError, ValueError):
        if is_manifest(photos) and kind_of(photos) is Kind.answers:
            say(f"{photos} holds answers of a model: its labels may be wrong, and are taken for the truth here.")


def tell_refusal(classifier: ImageClassifier) -> None:
    """Print why the model was not adapted, if it was not."""
    if classifier.refusal is not None:
        say(classifier.refusal)


def leave(classifier: ImageClassifier) -> None:
    """Exit with the code for skipped photos, if there were any."""
    if classifier.skipped or classifier.passed_over.types:
        raise typer.Exit(SKIPPED)


def report_file(default: Path, report: Path | None, no_report: bool) -> Path | None:
    """Return the file of the report, or None."""
    if report is not None and no_report:
        raise MistypedError("--report and --no-report exclude each other: leave one of them out.")
    return None if no_report else report or default


def cache_of(cache: Path | None, no_cache: bool, photos: Path | None = None) -> Path | bool | None:
    """Return the folder of the cache, None for the default, False for no cache.

    Raises
    ------
    MistypedError
        The options exclude each other, or the folder would stand among the class folders of these photos.
    """
    if cache is not None and no_cache:
        raise MistypedError("--cache and --no-cache exclude each other: leave one of them out.")
    if cache is not None and photos is not None and not isinstance(photos, RemotePath) and photos.is_dir():
        path, root = cache.resolve(), photos.resolve()
        below = path.relative_to(root).parts if path.is_relative_to(root) else (".",)
        if not any(name.startswith(".") for name in below):  # hidden folders are no classes
            raise MistypedError(
                f"--cache {cache} is inside of {photos}, among the folders of its classes: name a folder elsewhere."
            )
    return False if no_cache else cache


def check_insist(insist: bool, needs: object, option: str) -> None:
    """Refuse --insist if nothing is to be adapted."""
    if insist and not needs:
        raise MistypedError(f"--insist can be used only with {option}: it adapts even if that looks unsafe.")


def check_order(model: Path, photos: Sequence[Path]) -> None:
    """Refuse a model and photos in the wrong order."""
    for path in photos:
        if is_model(path) and not is_model(model):
            raise MistypedError(f"{path} is a model, and {model} is not: did you swap them?")


def is_model(path: Path) -> bool:
    """Whether a path is a model that patchvote wrote."""
    from ..utils.marks import Kind, kind_of

    with contextlib.suppress(OSError, ValueError):
        return path.is_file() and kind_of(path) is Kind.model
    return False


def numbers_of(option: str, text: str) -> tuple[int, ...]:
    """Return the whole numbers that an option lists."""
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise MistypedError(
            f"{option} takes whole numbers separated by commas, such as 224,448; got {text!r}."
        ) from None


def base_name(path: Path) -> str:
    """Return the name of a file or folder, without the ending of a known type of file.

    Examples
    --------
    >>> base_name(Path("my.patchvote")), base_name(Path("list.csv")), base_name(Path("photos/2024.1"))
    ('my', 'list', '2024.1')
    """
    known = (".patchvote", ".csv", ".jsonl")
    whole = path if path.name not in ("", "..") else path.resolve()
    return (whole.stem if whole.suffix.lower() in known else whole.name) or "photos"


@contextlib.contextmanager
def after_writing(path: Path) -> Iterator[None]:
    """If the result cannot be printed, add to the error that the model was written."""
    try:
        yield
        flush_output()
    except PatchvoteError as error:
        raise PatchvoteError(f"{error} {path} was written nevertheless.") from error
