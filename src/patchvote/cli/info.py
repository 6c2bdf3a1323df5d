"""The command that shows what a model or a store holds."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from ..utils.remote import place
from ..utils.terminal import counted, emit, printable, show, show_json
from .options import Printing
from .output import SKIPPED, bytes_text, size


def info(
    path: Annotated[
        Path, typer.Argument(metavar="MODEL|STORE", parser=place, help="A model, or a folder of `extract`.")
    ],
    card: Annotated[bool, typer.Option("--card", help="Print a model's whole card, as Markdown.")] = False,
    photos: Annotated[bool, typer.Option("--photos", help="Print the names of the training photos.")] = False,
    *,
    printing: Printing,
) -> None:
    """Show what a model holds, or a store of descriptors (a folder that `extract` filled)."""
    if path.is_dir():
        _store_info(path, printing.as_json)
    else:
        _model_info(path, card, photos, printing.as_json)


def _model_info(path: Path, card: bool, photos: bool, as_json: bool) -> None:
    """Print what a model holds and how accurate it is."""
    from ..models.file import checksum_of, read_model
    from ..models.report.card import accuracy_of, rejects

    model, checksum = read_model(path), checksum_of(path)
    if card:
        for line in model.card.split("\n"):  # Markdown, whose tables must not be wrapped
            emit(printable(line))
        return
    if photos:
        if as_json:
            show_json({"model": str(path), "photos": list(model.names)})
        for name in () if as_json else model.names:
            emit(printable(name))
        return
    if as_json:
        record = {"kind": model.kind, "classes": list(model.classes), "recipe": json.loads(model.recipe.to_json())}
        about = model.about.to_plain() | {"descriptors": dict(model.descriptors), "steps": model.steps}
        del about["photos"]  # digests, which only `add` needs
        record |= {"fingerprint": model.fingerprint, "checksum": checksum, "about": about}
        record |= {"familiarity": model.familiarity and model.familiarity.settings}
        show_json({"model": str(path), **record})
        return
    rows = [
        ("model", f"{path} ({size(path)}), {model.kind}: {model.about.method}"),
        ("network", f"{model.recipe.network}, {model.recipe.mode}; checksum of its weights {model.fingerprint}"),
        ("checksum", f"{checksum}, verified"),
        ("accuracy", accuracy_of(model.about)),
        ("rejects", rejects(model)),
        ("classes", _classes(model.classes, model.about.images)),
    ]
    _show_rows(rows)


def _store_info(store: Path, as_json: bool) -> None:
    """Print what a store holds, without reading the descriptors."""
    from ..bags.store import Store

    summary = Store.open(store).summary()
    if as_json:
        show_json(summary)
    else:
        _show_rows(_store_rows(summary))
    if summary["damaged"]:
        raise typer.Exit(SKIPPED)


def _store_rows(summary: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield what the lines about a store begin with, and what they say."""
    recipe = json.loads(summary["recipe"])
    least, mean, most = summary["descriptors_per_photo"]
    settings = (f"{key} {str(value).strip('[]')}" for key, value in recipe["sampling"].items() if value is not None)
    yield "photos", f"{summary['photos']:,}"
    yield "classes", _classes(summary["classes"], summary["classes"]) or "none"
    yield "descriptors", f"{summary['descriptors']:,} ({least:,} to {most:,} per photo, {mean:,.1f} on average)"
    yield "features", f"{summary['features']:,} per descriptor, read {recipe['activation']} the last activation"
    yield "network", f"{summary['network']}, {recipe['mode']}: {', '.join(settings)}"
    yield "checksum", f"{summary['fingerprint']} (of the network's weights)"
    yield "on disk", f"{bytes_text(summary['bytes'])} in {counted(summary['shards'], 'file')}"
    for shard in summary["damaged"]:
        yield "damaged", f"{shard.rstrip('.')}. The next run extracts its photos again."


def _show_rows(rows: Iterable[tuple[str, str]]) -> None:
    for name, text in rows:
        show(f"{name:<12} {text}", indent=13)


def _classes(classes: Iterable[str], photos: Mapping[str, int]) -> str:
    return ", ".join(f"{label} ({photos.get(label, 0):,})" for label in classes)
