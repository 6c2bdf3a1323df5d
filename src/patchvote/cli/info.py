"""The command that shows what a model or a store holds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from ..errors import PatchvoteError
from ..utils.remote import place
from ..utils.terminal import emit, printable, show, show_json
from .common import Json, MistypedError, size


def info(
    path: Annotated[
        Path, typer.Argument(metavar="MODEL|STORE", parser=place, help="A model, or a folder that `extract` filled.")
    ],
    card: Annotated[bool, typer.Option("--card", help="Print a model's whole card, as Markdown.")] = False,
    photos: Annotated[
        bool, typer.Option("--photos", help="Print the names of the training photos that a model holds.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Show what a model holds, or a store of descriptors (a folder that `extract` filled)."""
    if not path.exists():
        from ..photos.find import near_path

        raise PatchvoteError(
            f"{path} is neither a model nor a store: there is no such file or folder.{near_path(path)}"
        )
    if path.is_dir():
        if card or photos:
            what = "--card prints the card" if card else "--photos prints the training photos"
            raise MistypedError(f"{what} of a model, and {path} is a folder.")
        from ..bags.shards import shard_files
        from .bags import store_info

        if not shard_files(path):
            raise PatchvoteError(
                f"{path} is neither a model nor a store of descriptors: it is a folder of other files. If it holds "
                f"photos, `patchvote check {path}` looks at them and `patchvote fit {path}` learns from them."
            )
        store_info(path, as_json)
    else:
        model_info(path, card, photos, as_json)


def model_info(path: Path, card: bool, photos: bool, as_json: bool) -> None:
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
    images = model.about.images
    rows = [
        ("model", f"{path} ({size(path)}), {model.kind}: {model.about.method}"),
        ("network", f"{model.recipe.network}, {model.recipe.mode}; checksum of its weights {model.fingerprint}"),
        ("checksum", f"{checksum}, verified"),
        ("accuracy", accuracy_of(model.about)),
        ("rejects", rejects(model)),
        ("classes", ", ".join(f"{label} ({images.get(label, 0):,})" for label in model.classes)),
    ]
    for name, text in rows:
        show(f"{name:<10} {text}", indent=11)
