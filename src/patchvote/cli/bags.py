"""Commands about bags: `extract`, and `info` for a store."""

from __future__ import annotations

import enum
import functools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..engines import EngineName
from ..utils.remote import place
from ..utils.terminal import counted, padded, printable, say, show, show_json, width
from .common import (
    SKIPPED,
    Address,
    ColumnsOption,
    Device,
    EngineOption,
    Jobs,
    Json,
    MistypedError,
    Mode,
    Network,
    Quiet,
    Workers,
    named_columns,
    numbers_of,
    source_of,
    tell_one_scale,
    workers_of,
)
from .streams import interruption

if TYPE_CHECKING:
    from ..bags.boxes import Dense, Patch
    from ..bags.fill import StoreFilled
    from ..photos.find import PassedOver
    from .progress import ProgressLine


class Activation(enum.StrEnum):
    """Side of the last activation on which descriptors are read."""

    after = "after"
    before = "before"


class Dtype(enum.StrEnum):
    """Type of the numbers on disk."""

    float16 = "float16"
    float32 = "float32"


def extract(
    photos: Annotated[
        Path,
        typer.Argument(
            metavar="PHOTOS",
            parser=place,
            help="A folder (flat, or one folder per class), a .csv or .jsonl, or a photo.",
        ),
    ],
    store: Annotated[
        Path,
        typer.Argument(metavar="STORE", parser=place, help="Folder to keep them in; created if it does not exist."),
    ],
    columns: ColumnsOption = None,
    network: Network = "efficientnet-lite0",
    mode: Annotated[
        Mode, typer.Option(help="dense: all cells of the feature map. patch: the paper's patches.")
    ] = Mode.dense,
    sides: Annotated[
        str | None, typer.Option(help="dense: longest sides in pixels, one per scale.", show_default="224,448")
    ] = None,
    count: Annotated[
        int | None,
        typer.Option(help="patch: approximate number per image (the paper: 100 or 400).", show_default="100"),
    ] = None,
    smallest: Annotated[
        int | None, typer.Option(help="patch: side of the smallest patches, in pixels.", show_default="32")
    ] = None,
    levels: Annotated[
        int | None, typer.Option(help="patch: number of sizes, each twice the one before.", show_default="3")
    ] = None,
    patch_input: Annotated[
        int | None, typer.Option(help="patch: side in pixels to which each is resized; the network's own by default.")
    ] = None,
    activation: Annotated[
        Activation, typer.Option(help="Read descriptors after or before the last activation.")
    ] = Activation.after,
    dtype: Annotated[Dtype | None, typer.Option(help="Type of the stored numbers.", show_default="float16")] = None,
    device: Device = "cpu",
    jobs: Jobs = None,
    engine: EngineOption = EngineName.local,
    address: Address = None,
    workers: Workers = None,
    strict: Annotated[bool, typer.Option("--strict", help="Stop at the first photo that cannot be read.")] = False,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Describe the parts of PHOTOS by the numbers that a network computes (descriptors), kept in STORE.

    Run it again to continue after an interruption, or to add new and changed photos: others are not extracted again.
    """
    from ..bags.extract import Extractor
    from ..bags.fill import fill
    from ..bags.recipe import Recipe
    from ..photos.find import find_photos
    from .progress import ProgressLine

    patch = _given(count=count, smallest=smallest, levels=levels, input=patch_input)
    sampling = _sampling(mode, sides, patch)
    found = find_photos(source_of(photos, named_columns(columns, [photos])))
    default = mode is Mode.dense and sides is None and activation is Activation.after
    advice = f"interrupted. What was extracted is kept in {store}: run the same command again to continue."
    with interruption(advice), workers_of(engine, address, workers, jobs) as (where, threads):
        # With default settings, a network of one size gets one scale.
        recipe = network if default else Recipe(network, sampling, activation.value)
        extractor = Extractor(recipe, jobs=threads, device=device)
        if not quiet:
            tell_one_scale(extractor)
        with ProgressLine("extract", quiet) as line:
            settings: dict[str, Any] = {"dtype": dtype and dtype.value, "strict": strict, "engine": where}
            filled = fill(store, found, extractor, **settings, progress=functools.partial(_advance, line))
    _print_filled(filled, found.passed_over, store, quiet, as_json)
    if filled.skipped or found.passed_over.types:
        raise typer.Exit(SKIPPED)


def _advance(line: ProgressLine, filled: StoreFilled) -> None:
    """Show how many photos are done."""
    line.show(filled.done, filled.photos)


def _sampling(mode: Mode, sides: str | None, patch: dict[str, Any]) -> Dense | Patch:
    """Return the sampling that the options of one mode describe; options of the other mode are refused."""
    from ..bags.boxes import Dense, Patch

    dense = _given(sides=numbers_of("--sides", sides) if sides is not None else None)
    if refused := dense if mode is Mode.patch else patch:
        other = Mode.dense if mode is Mode.patch else Mode.patch
        names = ", ".join("--patch-input" if name == "input" else f"--{name}" for name in refused)
        raise MistypedError(f"{names} can be set only with --mode {other}; this is --mode {mode}.")
    return Dense(**dense) if mode is Mode.dense else Patch(**patch)


def _print_filled(filled: StoreFilled, passed_over: PassedOver, store: Path, quiet: bool, as_json: bool) -> None:
    """Print what was extracted, and what was not."""
    for shard in filled.damaged:
        say(shard)
    for error in filled.skipped:
        say(f"skipped {error}")
    say(*passed_over.sentences())
    if as_json:
        record = {key: value for key, value in vars(filled).items() if key != "skipped"}
        record["skipped"] = [{"name": error.name, "reason": error.reason} for error in filled.skipped]
        record["passed_over"] = passed_over.plain()
        show_json({"store": str(store), **record})
    elif not quiet:
        show(_sentence(filled, store))


def store_info(store: Path, as_json: bool) -> None:
    """Print what a store holds, without reading the descriptors."""
    from ..bags.store import Store

    summary = Store.open(store).summary()
    if as_json:
        show_json(summary)
    else:
        for name, words in _store_rows(summary):
            show(f"{name:<12} {words}", indent=13)
        if summary["classes"]:
            show("", *_class_lines(summary["classes"]))
        if summary["without_label"]:
            show("", f"{counted(summary['without_label'], 'photo')} without a class")
    if summary["damaged"]:
        raise typer.Exit(SKIPPED)


def _store_rows(summary: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield what the lines about a store begin with, and what they say."""
    recipe = json.loads(summary["recipe"])
    least, mean, most = summary["descriptors_per_photo"]
    yield "photos", f"{summary['photos']:,}"
    yield "descriptors", f"{summary['descriptors']:,} ({least:,} to {most:,} per photo, {mean:,.1f} on average)"
    yield "features", f"{summary['features']:,} per descriptor, stored as {' and '.join(summary['dtype'])}"
    activation = f"read {recipe['activation']} its last activation"
    yield "network", f"{summary['network']}, {activation}; checksum of its weights {summary['fingerprint']}"
    settings = ", ".join(f"{key} {_plain(value)}" for key, value in recipe["sampling"].items())
    yield "mode", f"{recipe['mode']}: {settings}"
    files = f"{summary['bytes'] / 1e6:,.1f} MB in {counted(summary['shards'], 'file')}"
    yield "on disk", f"{files}, {summary['bytes'] / summary['photos'] / 1e3:,.1f} kB per photo"
    if count := summary["superseded"]:
        yield "superseded", f"{count:,} older descriptions of photos that changed, moved or were written twice"
    yield "checksums", "of every file and photo, verified on reading"
    if aside := summary["set_aside"]:
        yield "set aside", f"{counted(len(aside), 'damaged file')}, such as {aside[0]}"
    for shard in summary["damaged"]:
        yield "damaged", f"{shard.rstrip('.')}. The next run extracts its photos again."


def _class_lines(classes: dict[str, int]) -> Iterator[str]:
    """Yield the classes with their numbers of photos, as numbers and as bars."""
    names = {name: printable(name) for name in classes}
    columns, most = max(map(width, names.values())), max(classes.values())
    yield counted(len(classes), "class", "classes")
    for name, photos in classes.items():
        yield f"  {padded(names[name], columns)} {photos:>7,} {'█' * max(1, round(30 * photos / most))}"


def _given(**settings: Any) -> dict[str, Any]:
    """Return the settings that are not None; the others keep the defaults of their class."""
    return {name: value for name, value in settings.items() if value is not None}


def _plain(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return " and ".join(map(str, value))
    return "the network's own" if value is None else str(value)


def _sentence(filled: Any, store: Path) -> str:
    parts = [f"{counted(filled.extracted, 'photo')} extracted"]
    if filled.extracted:
        rate = filled.extracted / max(filled.seconds, 1e-9)
        parts[0] += f" ({filled.descriptors:,} descriptors, {rate:.1f} photos per second)"
    if filled.kept:
        parts.append(f"{filled.kept:,} were there already")
    if filled.reused:
        parts.append(f"{filled.reused:,} copied from photos with the same content")
    if filled.forgotten:
        parts.append(f"{filled.forgotten:,} removed, because they were moved or can no longer be read")
    if filled.skipped:
        parts.append(f"{len(filled.skipped):,} skipped (listed above)")
    if filled.others:
        parts.append(f"{filled.others:,} others stay in the store although they are not among these photos")
    return f"{store}: " + "; ".join(parts) + "."
