"""The command that looks at a collection of photos before a model is fitted to it."""

from __future__ import annotations

import itertools
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..utils.remote import RemotePath, place
from ..utils.terminal import counted, say, show, show_json
from .common import (
    SKIPPED,
    Cache,
    ColumnsOption,
    Device,
    Force,
    Jobs,
    Json,
    MistypedError,
    Mode,
    Network,
    NoCache,
    NoReport,
    PhotosArgument,
    Quiet,
    Seed,
    base_name,
    cache_of,
    named_columns,
    recipe_of,
    report_file,
    source_of,
    sources_of,
    tell_hints,
)
from .streams import KEPT, interruption

if TYPE_CHECKING:
    from PIL import Image

    from ..bags.extract import Extractor
    from ..models.check.findings import Checked
    from ..photos.find import Found
    from ..photos.moves import Move


def check(
    photos: PhotosArgument,
    test: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="DIR", parser=place, help="Test photos; copies of them are found in PHOTOS. May be repeated."
        ),
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Write a list of suspects, .csv or .jsonl, for --apply.")
    ] = None,
    move: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Move suspects into DIR, into folders of their classes; photos that only look alike stay. "
            "PHOTOS-moves.jsonl, written here, records where they were, for --undo.",
        ),
    ] = None,
    apply: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Do what the column action of an edited list says: keep; relabel, to the class in the column to; "
            "move or drop, into --move DIR.",
        ),
    ] = None,
    undo: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Move photos back, by the record of an earlier run (PHOTOS-moves.jsonl). Name the folder that it "
            "moved photos into with --move.",
        ),
    ] = None,
    columns: ColumnsOption = None,
    network: Network = "efficientnet-lite0",
    mode: Annotated[Mode, typer.Option(help="dense: all cells of the feature map. patch: patches.")] = Mode.dense,
    report: Annotated[
        Path | None, typer.Option(help="File of the page.", show_default="PHOTOS-check.html here")
    ] = None,
    no_report: NoReport = False,
    force: Force = False,
    cache: Cache = None,
    no_cache: NoCache = False,
    device: Device = "cpu",
    jobs: Jobs = None,
    seed: Seed = 0,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Find copies, wrong labels, outliers and unreadable files among labelled PHOTOS, and write a page of them.

    No photo is touched, except with --move, --apply or --undo.
    """
    from ..bags.extract import Extractor
    from ..networks.names import network_files
    from ..photos.outputs import check_outputs
    from ..utils.marks import Kind, origin_of

    if apply is not None or undo is not None:
        _check_alone(apply, undo, {"--test": test, "--output": output, "--report": report})
        moves = _edited(photos, move, apply, undo)
        done = _carry_out(moves, photos, move, keep_record=undo is None)
        _tell({}, [], done, quiet, as_json)
        if done["failed"]:
            raise typer.Exit(SKIPPED)
        return
    _check_list(output)
    if move is not None:
        _check_folders(photos, move)
    page = report_file(default := Path(f"{base_name(photos)}-check.html"), report, no_report)
    tests = test or []
    _check_apart(photos, tests)
    named, bags_folder = named_columns(columns, [photos, *tests]), cache_of(cache, no_cache, photos)
    outputs = [(page, Kind.report), (output, Kind.suspects)]
    inputs = itertools.chain([photos, *tests], network_files(network))
    origin = origin_of([photos])
    check_outputs(outputs, inputs, force=force, renewed={} if report else {default: origin}, columns=named)
    tell_hints(photos, named)
    kept = "" if no_cache else f" {KEPT}"
    with interruption(f"interrupted; nothing was written, and no photo was moved.{kept}"):
        extractor = Extractor(recipe_of(network, mode), jobs=jobs, device=device)
        source, others = source_of(photos, named), sources_of(tests, named)
        if move is not None and others is not None:
            _check_files_apart(photos, source, others)
        checked = _checked(source, others, extractor, bags_folder, seed, quiet)
    if page:
        _write_page(page, checked, photos, source, origin)
    if output:
        _write_list(output, checked)
    written = [str(path) for path in (page, output) if path]
    lines = [*checked.sentences(), *([f"wrote {' and '.join(written)}"] if written else [])]
    record = {"report": page and str(page), "list": output and str(output), **checked.plain()}
    done = _carry_out(_moves(checked, photos, move), photos, move) if move else {}
    if move:
        done["left"] = sum(not suspect.is_movable for suspect in checked.suspects)
    _tell(record, lines, done, quiet, as_json)
    if checked.skipped or checked.passed_over.types or done.get("failed"):
        raise typer.Exit(SKIPPED)


def _check_alone(apply: Path | None, undo: Path | None, others: dict[str, Path | list[Path] | None]) -> None:
    """Refuse options that --apply or --undo would ignore: they move photos, and look at none."""
    if apply is not None and undo is not None:
        raise MistypedError("--apply and --undo exclude each other: leave one of them out.")
    for option, value in others.items():
        if value is not None:
            raise MistypedError(f"{'--undo' if apply is None else '--apply'} checks nothing: leave out {option}.")
    if undo is not None and not isinstance(undo, RemotePath) and not undo.is_file():
        found = "is a folder" if undo.is_dir() else "is not there"
        raise MistypedError(f"--undo takes the record of an earlier run (…-moves.jsonl), and {undo} {found}.")
    if apply is not None and not isinstance(apply, RemotePath) and not apply.exists():
        raise MistypedError(f"--apply takes a list that --output wrote, and {apply} is not there.")


def _check_apart(photos: Path, tests: Sequence[Path]) -> None:
    """Refuse test photos that are the photos: all would be copies, and --move would take them away."""
    from ..photos.find import overlap

    for test in tests:
        if how := overlap(test, photos):
            raise MistypedError(
                f"--test {test} {how} {photos}, so that each test photo would be found to be its own copy: name test "
                "photos in another folder."
            )


def _check_files_apart(photos: Path, source: Path | Found, others: Path | Found) -> None:
    """Refuse to move photos that lists or links name as test photos: the test would lose them as well."""
    from ..photos.find import find_photos, shared_files

    if shared := shared_files(find_photos(source), find_photos(others)):
        raise MistypedError(
            f"--move would take {counted(len(shared), 'photo')} of {photos} away from the test as well, since --test "
            f"names the same files, such as {shared[0]}. Leave out --move, or name other files as test "
            "photos."
        )


def _check_folders(photos: Path, into: Path | None) -> None:
    """Refuse to move photos unless they are in a local folder, and go into another one."""
    from ..photos.placing import check_folder

    if isinstance(photos, RemotePath) or not photos.is_dir():
        raise MistypedError(
            f"photos are moved within a folder on this machine, with one folder per class; got {photos}."
        )
    if into is not None:
        check_folder(into)
        if into.resolve().is_relative_to(photos.resolve()) or photos.resolve().is_relative_to(into.resolve()):
            raise MistypedError(f"--move needs a folder outside of {photos}, and not around it; got {into}.")


def _check_list(output: Path | None) -> None:
    if output is not None and output.suffix.lower() not in (".csv", ".jsonl"):
        raise MistypedError(f"--output writes .csv or .jsonl, got {output}.")


def _checked(
    photos: Path | Found,
    test: Path | Found | None,
    extractor: Extractor,
    cache: Path | bool | None,
    seed: int,
    quiet: bool,
) -> Checked:
    """Check the photos, and say what cannot be read."""
    from ..models.check.check import check_photos
    from .progress import ProgressLine

    with ProgressLine("extract", quiet) as line:
        checked = check_photos(photos, extractor, test=test, cache=cache, progress=line.stage)
    say(*(f"skipped {error}" for error in checked.skipped))
    say(*checked.passed_over.sentences(advice=False))  # the lines of advice say how to read such photos, too
    if not quiet:
        say(*checked.passed_over.advice())
    return checked


def _write_page(page: Path, checked: Checked, photos: Path, source: Path | Found, origin: str) -> None:
    from ..models.check.page import write_check_page
    from ..photos.decode import SHOWN, load_image
    from ..photos.find import Photo, find_photos

    sources = {photo.name: photo for photo in find_photos(source)}

    def load(name: str) -> Image.Image:
        return load_image(sources.get(name) or Photo(name, photos / name), SHOWN)

    command = f"patchvote check {shlex.quote(str(photos))} -o suspects.csv"
    title = f"{base_name(photos)}: photos to look at"
    write_check_page(page, checked, load, title=title, command=command, origin=origin)


def _write_list(output: Path, checked: Checked) -> None:
    from ..utils.files import write_file
    from ..utils.terminal import csv_of, printable_json

    rows = [suspect.row() for suspect in checked.suspects]
    if output.suffix.lower() == ".jsonl":
        lines = [printable_json(row) for row in rows]
    else:
        lines = list(csv_of(rows, ["file_name", "label", "finding", "probability", "details", "action", "to"]))
    write_file(output, (f"{line}\n".encode() for line in lines))


def _moves(checked: Checked, photos: Path, into: Path) -> list[Move]:
    """Return the moves of suspects into a folder, which keeps the folders of their classes.

    Suspects of which a person has to say whether they are copies, or which copy is right, stay.
    """
    from ..photos.moves import Move, Spot

    names = [suspect.name for suspect in checked.suspects if suspect.is_movable]
    return [Move(Spot(photos, name), Spot(into, name)) for name in names]


def _edited(photos: Path, into: Path | None, apply: Path | None, undo: Path | None) -> list[Move]:
    """Return the moves that a file of the user asks for."""
    from ..models.check.findings import moves_of
    from ..photos.find import find_photos
    from ..photos.moves import read_record
    from ..utils.terminal import cell

    _check_folders(photos, into)
    if undo is not None:
        return read_record(undo, photos, into)
    found = find_photos(photos)
    empty = found.passed_over.empty
    return moves_of(apply or Path(), found, photos, into, classes=empty, spelling=lambda name: str(cell(name)))


def _carry_out(wanted: Sequence[Move], photos: Path, into: Path | None, *, keep_record: bool = True) -> dict[str, Any]:
    """Move photos, after writing down where they were; return what was done."""
    from ..photos.moves import make, plan, reduce_record, write_record

    moves = plan(wanted) if keep_record else list(wanted)
    record = write_record(Path(f"{base_name(photos)}-moves.jsonl"), moves) if keep_record and moves else None
    words = ["patchvote", "check", str(photos), "--undo", str(record), *(["--move", str(into)] if into else [])]
    undo = shlex.join(words) if record else None
    how = f"To undo what was moved: `{undo}`" if undo else "Run the same command again to move the others."
    with interruption(f"interrupted; every photo is whole, some were moved. {how}"):
        made, failed = make(moves)
    say(*map(str, failed))
    if record is not None and failed:
        record = reduce_record(record, made)
    undo = undo if made and record else None
    return {"moved": len(made), "failed": len(failed), "record": record and str(record), "undo": undo}


def _tell(record: dict[str, Any], lines: list[str], done: dict[str, Any], quiet: bool, as_json: bool) -> None:
    if as_json:
        show_json(record | done)
    elif not quiet:
        show(*lines, indent=4)
        if done:
            show(f"moved {counted(done['moved'], 'photo')}" + (f"; {done['failed']:,} not" if done["failed"] else ""))
        if done.get("left"):
            left = counted(done["left"], "suspect stays", "suspects stay")
            how = "say in a list of --output what is to become of each, and --apply it."
            show(f"{left} in place for you to decide: {how}")
        if done.get("undo"):
            show("to undo:", f"  {done['undo']}")
