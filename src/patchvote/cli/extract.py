"""The command that keeps the descriptors of photos in a store."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from ..utils.remote import place
from ..utils.terminal import counted, say
from .options import Cluster, Describing, MistypedError, Printing, numbers_of
from .output import SKIPPED, progress_line
from .photos import Labelled

if TYPE_CHECKING:
    from ..bags.fill import StoreFilled
    from ..bags.recipe import Recipe


@dataclasses.dataclass(frozen=True)
class DescribingInDetail(Describing):
    """How photos are described, with the settings of each mode."""

    sides: Annotated[str | None, typer.Option(help="dense: longest sides in pixels; 224,448 by default.")] = None
    count: Annotated[int | None, typer.Option(help="patch: approximate number per photo; 100 by default.")] = None
    smallest: Annotated[int | None, typer.Option(help="patch: pixels of the smallest side; 32 by default.")] = None
    levels: Annotated[
        int | None, typer.Option(help="patch: number of sizes, each twice the one before; 3 by default.")
    ] = None
    patch_input: Annotated[int | None, typer.Option(help="patch: pixels to which each side is resized.")] = None
    activation: Annotated[Literal["after", "before"], typer.Option(help="Side of the last activation to read.")] = (
        "after"
    )

    def recipe(self) -> Recipe | str:
        """Return the recipe; options of the other mode are refused."""
        from ..bags.boxes import Dense, Patch
        from ..bags.recipe import Recipe

        dense: dict[str, Any] = {} if self.sides is None else {"sides": numbers_of("--sides", self.sides)}
        settings = {"count": self.count, "smallest": self.smallest, "levels": self.levels, "input": self.patch_input}
        patch: dict[str, Any] = {name: value for name, value in settings.items() if value is not None}
        other, refused = ("patch", patch) if self.mode == "dense" else ("dense", dense)
        if refused:
            names = ", ".join("--patch-input" if name == "input" else f"--{name}" for name in refused)
            raise MistypedError(f"{names} can be set only with --mode {other}; this is --mode {self.mode}.")
        if self.mode == "dense" and not dense and self.activation == "after":
            return self.network  # one of one size then gets one scale
        return Recipe(self.network, Dense(**dense) if self.mode == "dense" else Patch(**patch), self.activation)


def extract(
    photos: Labelled,
    store: Annotated[Path, typer.Argument(metavar="STORE", parser=place, help="Folder to keep them in.")],
    strict: Annotated[bool, typer.Option("--strict", help="Stop at the first photo that cannot be read.")] = False,
    *,
    describing: DescribingInDetail,
    cluster: Cluster,
    printing: Printing,
) -> None:
    """Describe the parts of PHOTOS by the numbers that a network computes (descriptors), kept in STORE.

    PHOTOS need no classes here. Run it again to continue after an interruption, or to add new and changed photos:
    others are not extracted again.
    """
    from ..bags.extract import Extractor
    from ..bags.fill import fill

    recipe, found = describing.recipe(), photos.found()
    with cluster.opened() as engine:
        extractor = Extractor(recipe, **cluster.settings)
        with progress_line("extract", printing.quiet) as progress:

            def tell(filled: StoreFilled) -> None:
                progress("extract", filled.done, filled.photos)

            filled = fill(store, found, extractor, strict=strict, engine=engine, progress=tell)
    say(*filled.damaged, *(f"skipped {error}" for error in filled.skipped), *found.passed_over.sentences())
    skipped = [{"name": error.name, "reason": error.reason} for error in filled.skipped]
    record = vars(filled) | {"skipped": skipped, "passed_over": found.passed_over.plain()}
    printing.tell({"store": str(store), **record}, _sentence(filled, store))
    if filled.skipped or found.passed_over.types:
        raise typer.Exit(SKIPPED)


def _sentence(filled: StoreFilled, store: Path) -> str:
    parts = [f"{counted(filled.extracted, 'photo')} extracted"]
    if filled.extracted:
        rate = filled.extracted / max(filled.seconds, 1e-9)
        parts[0] += f" ({filled.descriptors:,} descriptors, {rate:.1f} photos per second)"
    counts = {
        "were there already": filled.kept,
        "copied from photos with the same content": filled.reused,
        "removed, because they were moved or can no longer be read": filled.forgotten,
        "skipped (listed above)": len(filled.skipped),
        "others stay in the store although they are not among these photos": filled.others,
    }
    parts += [f"{count:,} {what}" for what, count in counts.items() if count]
    return f"{store}: {'; '.join(parts)}."
