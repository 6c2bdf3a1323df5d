"""The command that shows what is in the cache, and clears it."""

from __future__ import annotations

import contextlib
import sys
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from ..errors import PatchvoteError
from ..utils.terminal import counted, emit, printable, say, show, show_json
from .common import Json, MistypedError
from .streams import Interrupted

_INDENT = len("networks   ")


def cache(
    folder: Annotated[
        Path | None,
        typer.Option("--cache", help="Folder that other commands got by --cache.", show_default="your cache"),
    ] = None,
    clear: Annotated[
        bool, typer.Option("--clear", help="Remove the descriptors of photos and the built networks in it.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Clear it without asking.")] = False,
    as_json: Json = False,
) -> None:
    """Show what the cache holds, and how much of it there may be; or clear it."""
    if yes and not clear:
        raise MistypedError("--yes can be used only with --clear.")
    _check_folder(folder)
    if not clear:
        _show(folder, as_json)
        return
    if yes or _agreed(folder):
        _clear(folder, as_json)
    else:
        show("nothing was removed.")


def _check_folder(folder: Path | None) -> None:
    """Refuse something that is no folder, in which commands keep nothing."""
    from ..bags.cache import bags_folder
    from ..networks.cache import cache_folder

    for path in [folder] if folder else [cache_folder(), bags_folder()]:
        if path.exists() and not path.is_dir():
            raise PatchvoteError(
                f"{path} is no folder, so nothing can be kept in it. Remove it, or name a folder: --cache here and in "
                "other commands, or $PATCHVOTE_CACHE for all."
            )


def _show(folder: Path | None, as_json: bool) -> None:
    from ..bags.cache import bags_folder, bound_of, kinds_in
    from ..networks.cache import cache_folder

    root, bound = folder or bags_folder(), bound_of(folder)
    kinds = kinds_in(root)
    size, photos = sum(one.size for one in kinds), len(frozenset[str]().union(*(one.digests for one in kinds)))
    networks = [] if folder else _networks()
    where = folder or cache_folder()
    if as_json:
        record: dict[str, Any] = {"folder": str(where), "bytes": size, "bound": bound, "photos": photos}
        record |= {"kinds": [one.plain() for one in kinds], "networks": [path.name for path, _ in networks]}
        record |= {"network_bytes": sum(size for _, size in networks)}
        show_json(record)
        return
    limit = "no bound" if bound is None else f"at most {_bytes(bound)}"
    emit(f"folder     {printable(where)}")  # on one line, since people copy it
    sizes = f"{_bytes(size)} of descriptors of {counted(photos, 'photo')}; {limit} ($PATCHVOTE_CACHE_SIZE)"
    show(f"photos     {sizes}", indent=_INDENT)
    lines = (f"{'':{_INDENT}}{_bytes(one.size):>9}  {one.sentence(time.time())}" for one in kinds)
    show(*lines, indent=_INDENT + 11)
    if not folder:
        count = counted(len(networks), "built network")
        show(f"networks   {_bytes(sum(size for _, size in networks))} in {count}, beside the bound", indent=_INDENT)


def _agreed(folder: Path | None) -> bool:
    """Ask whether to clear the cache."""
    from ..networks.cache import cache_folder

    if sys.stdin is None or not sys.stdin.isatty():  # None: it was closed before the command began
        raise MistypedError("--clear asks before it removes anything, and there is nobody to ask: add --yes.")
    what = "descriptors of photos" if folder else "descriptors of photos and built networks"
    question = f"Remove all {what} in {folder or cache_folder()}?"
    try:
        return typer.confirm(question, err=True)
    except typer.Abort:  # Ctrl-C, or the end of the input
        say("")
        raise Interrupted("interrupted; nothing was removed.") from None


def _clear(folder: Path | None, as_json: bool) -> None:
    from ..bags.cache import bags_folder, clear_bags

    bags, networks = clear_bags(folder or bags_folder()), 0
    for path, size in [] if folder else _networks():
        with contextlib.suppress(OSError):
            path.unlink()
            networks += size
    if as_json:
        show_json({"removed": bags + networks, "bags": bags, "networks": networks})
    else:
        show(
            f"removed {_bytes(bags)} of descriptors" + ("" if folder else f" and {_bytes(networks)} of built networks")
        )


def _networks() -> list[tuple[Path, int]]:
    from ..networks.cache import built_graphs

    return [(path, path.stat().st_size) for path in built_graphs()]


def _size_below(folder: Path) -> int:
    """Return the bytes of all files below a folder, without following links."""
    return sum(path.lstat().st_size for path in folder.rglob("*") if path.is_file() and not path.is_symlink())


def _bytes(count: int) -> str:
    """Return a number of bytes as text.

    Examples
    --------
    >>> _bytes(5_000_000_000), _bytes(31_200), _bytes(0)
    ('5.0 GB', '31.2 kB', '0 bytes')
    """
    for size, unit in ((10**9, "GB"), (10**6, "MB"), (10**3, "kB")):
        if count >= size:
            return f"{count / size:,.1f} {unit}"
    return f"{count} bytes"
