"""The command that looks at a collection of photos before a model is fitted to it."""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..photos.outputs import Kind
from ..utils.remote import RemotePath, place
from ..utils.terminal import cell, counted, csv_of, printable_json, say, show
from .options import Cache, Describing, Force, Machine, MistypedError, Printing, Report, check_list, check_written
from .output import SKIPPED, progress_line
from .photos import Labelled, base_name

if TYPE_CHECKING:
    from PIL import Image

    from ..models.check.findings import Checked
    from ..photos.moves import Move

_COLUMNS = ["file_name", "label", "finding", "probability", "details", "action", "to"]  # of a list of suspects


@dataclasses.dataclass(frozen=True)
class Moving:
    """Which photos are moved, and where."""

    move: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Move suspects into DIR; PHOTOS-moves.jsonl records it.")
    ] = None
    apply: Annotated[
        Path | None, typer.Option(metavar="FILE", exists=True, help="Do what the column action of an edited list says.")
    ] = None
    undo: Annotated[
        Path | None, typer.Option(metavar="FILE", exists=True, dir_okay=False, help="Move back what a record says.")
    ] = None

    def check(self, photos: Path) -> None:
        """Refuse to move photos unless they are in a local folder, and go into another one."""
        from ..photos.find import overlap
        from ..photos.placing import check_folder

        if self.apply is not None and self.undo is not None:
            raise MistypedError("--apply and --undo exclude each other: leave one of them out.")
        if isinstance(photos, RemotePath) or not photos.is_dir():
            raise MistypedError(
                f"photos are moved within a folder on this machine, with one folder per class; got {photos}."
            )
        if (into := self.move) is not None:
            check_folder(into)
            if overlap(into, photos):
                raise MistypedError(f"--move needs a folder outside of {photos}, and not around it; got {into}.")

    def moves(self, photos: Path) -> list[Move]:
        """Return the moves that the file of --apply or --undo asks for."""
        from ..models.check.findings import moves_of
        from ..photos.find import find_photos
        from ..photos.moves import read_record

        if self.undo is not None:
            return read_record(self.undo, photos, self.move)
        found = find_photos(photos)
        more: dict[str, Any] = {"classes": found.passed_over.empty, "spelling": lambda name: str(cell(name))}
        return moves_of(self.apply or Path(), found, photos, self.move, **more)

    def carry_out(self, wanted: Sequence[Move], photos: Path) -> dict[str, Any]:
        """Move photos, after writing down where they were; return what was done."""
        from ..photos.moves import make, plan, reduce_record, write_record

        moves, record = list(wanted) if self.undo else plan(wanted), None
        if self.undo is None and moves:
            record = write_record(Path(f"{base_name(photos)}-moves.jsonl"), moves)
        into = [] if self.move is None else ["--move", str(self.move)]
        undo = shlex.join(["patchvote", "check", str(photos), "--undo", str(record), *into])
        made, failed = make(moves)
        say(*map(str, failed))
        if record is not None and failed:
            record = reduce_record(record, made)
        done = {"moved": len(made), "failed": len(failed), "record": record and str(record)}
        return done | {"undo": undo if made and record else None}


def check(
    photos: Labelled,
    test: Annotated[
        list[Path] | None, typer.Option(metavar="DIR", parser=place, help="Test photos; copies of them are found.")
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="List of suspects to write, for --apply.")
    ] = None,
    force: Force = False,
    *,
    moving: Moving,
    describing: Describing,
    report: Report,
    cache: Cache,
    machine: Machine,
    printing: Printing,
) -> None:
    """Find copies, wrong labels, outliers and unreadable files among labelled PHOTOS, and write a page of them.

    No photo is touched, except with --move, --apply or --undo.
    """
    from ..bags.extract import Extractor
    from ..models.check.check import check_photos
    from ..photos.moves import Move, Spot

    root, tests = photos.photos, test or []
    if moving != Moving():
        moving.check(root)
    if moving.apply is not None or moving.undo is not None:
        _tell({}, [], moving.carry_out(moving.moves(root), root), printing)
        return
    check_list(output)
    page = report.file(default := Path(f"{base_name(root)}-check.html"))
    outputs = [(page, Kind.report), (output, Kind.suspects)]
    check_written(outputs, [root, *tests], describing.network, force=force, renewed=default)
    photos.tell_hints()
    with progress_line("extract", printing.quiet) as progress:
        extractor = Extractor(describing.recipe(), **machine.settings)
        checked = check_photos(
            photos.source(), extractor, test=photos.sources(tests), cache=cache.folder, progress=progress
        )
    passed_over = checked.passed_over
    say(*(f"skipped {error}" for error in checked.skipped), *passed_over.sentences(advice=not printing.quiet))
    if page:
        _write_page(page, checked, photos)
    if output:
        _write_list(output, checked)
    written = [str(path) for path in (page, output) if path]
    lines = [*checked.sentences(), *([f"wrote {' and '.join(written)}"] if written else [])]
    record = {"report": page and str(page), "list": output and str(output), **checked.plain()}
    done = {}
    if moving.move:
        names = [suspect.name for suspect in checked.suspects if suspect.is_movable]
        done = moving.carry_out([Move(Spot(root, name), Spot(moving.move, name)) for name in names], root)
        done["left"] = len(checked.suspects) - len(names)
    _tell(record, lines, done, printing, skipped=bool(checked.skipped or passed_over.types))


def _write_page(page: Path, checked: Checked, photos: Labelled) -> None:
    from ..models.check.page import write_check_page
    from ..photos.decode import SHOWN, load_image
    from ..photos.find import Photo

    sources = {photo.name: photo for photo in photos.found()}

    def load(name: str) -> Image.Image:
        return load_image(sources.get(name) or Photo(name, photos.photos / name), SHOWN)

    command = f"patchvote check {shlex.quote(str(photos.photos))} -o suspects.csv"
    title = f"{base_name(photos.photos)}: photos to look at"
    write_check_page(page, checked, load, title=title, command=command)


def _write_list(output: Path, checked: Checked) -> None:
    from ..utils.files import write_file

    rows = [suspect.row() for suspect in checked.suspects]
    lines = map(printable_json, rows) if output.suffix.lower() == ".jsonl" else csv_of(rows, _COLUMNS)
    write_file(output, (f"{line}\n".encode() for line in lines))


def _tell(
    record: dict[str, Any], lines: list[str], done: dict[str, Any], printing: Printing, *, skipped: bool = False
) -> None:
    if done:
        failed = f"; {done['failed']:,} not" if done["failed"] else ""
        lines.append(f"moved {counted(done['moved'], 'photo')}{failed}")
    if done.get("left"):
        left = counted(done["left"], "suspect stays", "suspects stay")
        how = "say in a list of --output what is to become of each, and --apply it."
        lines.append(f"{left} in place for you to decide: {how}")
    printing.tell(record | done, *lines, indent=4)
    if done.get("undo") and not (printing.quiet or printing.as_json):
        show("to undo:", f"  {done['undo']}")  # on one line, since people copy it
    if skipped or done.get("failed"):
        raise typer.Exit(SKIPPED)
