"""The command that shows what is in the cache, and clears it."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Annotated, Any

import typer

from ..errors import PatchvoteError
from ..utils.terminal import counted, emit, printable, show, show_json
from .options import Printing
from .output import bytes_text

_INDENT = len("networks   ")


def cache(
    folder: Annotated[
        Path | None, typer.Option("--cache", help="Folder of other commands' --cache; yours by default.")
    ] = None,
    clear: Annotated[bool, typer.Option("--clear", help="Remove descriptors of photos and built networks.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Clear it without asking.")] = False,
    *,
    printing: Printing,
) -> None:
    """Show what the cache holds, and how much of it there may be; or clear it."""
    from ..bags.cache import bags_folder, clear_bags
    from ..networks.cache import built_graphs, cache_folder

    root, where = folder or bags_folder(), folder or cache_folder()
    for path in (where, root):
        if path.exists() and not path.is_dir():
            raise PatchvoteError(f"{path} is no folder. Name one by --cache, or for all commands by $PATCHVOTE_CACHE.")
    networks = {} if folder else {path: path.stat().st_size for path in built_graphs()}
    if not clear:
        _show(folder, root, where, networks, printing.as_json)
        return
    what = "descriptors of photos" + ("" if folder else " and built networks")
    if not yes:
        typer.confirm(f"Remove all {what} in {where}?", abort=True, err=True)
    bags = clear_bags(root)
    for path in networks:
        with contextlib.suppress(OSError):
            path.unlink()
    size = sum(networks.values())
    if printing.as_json:
        show_json({"removed": bags + size, "bags": bags, "networks": size})
    elif not printing.quiet:
        more = "" if folder else f" and {bytes_text(size)} of built networks"
        show(f"removed {bytes_text(bags)} of descriptors{more}")


def _show(folder: Path | None, root: Path, where: Path, networks: dict[Path, int], as_json: bool) -> None:
    from ..bags.cache import bound_of, files_in, kinds_in

    bound, files = bound_of(folder), list(files_in(root))
    size, photos, built = sum(one.size for one in files), len({one.path.stem for one in files}), sum(networks.values())
    if as_json:
        record: dict[str, Any] = {"folder": str(where), "bytes": size, "bound": bound, "photos": photos}
        record["kinds"] = kinds_in(root)  # by network, recipe and way to keep bags
        show_json(record | {"networks": [path.name for path in networks], "network_bytes": built})
        return
    limit = "no bound" if bound is None else f"at most {bytes_text(bound)}"
    emit(f"folder     {printable(where)}")  # on one line, since people copy it
    sizes = f"{bytes_text(size)} of descriptors of {counted(photos, 'photo')}; {limit} ($PATCHVOTE_CACHE_SIZE)"
    show(f"photos     {sizes}", indent=_INDENT)
    if not folder:
        show(f"networks   {bytes_text(built)} in {counted(len(networks), 'built network')}", indent=_INDENT)
