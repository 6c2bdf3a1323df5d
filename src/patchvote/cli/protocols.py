"""The command that runs the paper's experiments."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any

import typer

from ..errors import PatchvoteError
from ..utils.terminal import say, show, show_json
from .common import SKIPPED, Force, Jobs, Json, Quiet
from .streams import interruption


def _names(text: str | None) -> tuple[str, ...] | None:
    """Cut at commas, except inside brackets: `snbnl(q=1,lam=0),nbnn` names two voters."""
    if text is None:
        return None
    return tuple(filter(None, (part.strip() for part in re.split(r",(?![^(]*\))", text))))


def protocol(
    name: Annotated[str | None, typer.Argument(metavar="NAME", help="Of the protocol, or a .toml file.")] = None,
    data: Annotated[Path | None, typer.Option(metavar="DIR", help="Folder of the image set.")] = None,
    splits: Annotated[int | None, typer.Option(min=1, help="Only the first so many splits.")] = None,
    settings: Annotated[str | None, typer.Option(help="Only these, with commas between.")] = None,
    pairs: Annotated[str | None, typer.Option(help="Only these pairs of domains, such as amazon-webcam.")] = None,
    voters: Annotated[str | None, typer.Option(help="Only these; settings in brackets: 'snbnl(prototypes=1)'.")] = None,
    recipes: Annotated[str | None, typer.Option(help="Only these, such as dense,patch-32x3-before.")] = None,
    networks: Annotated[
        str | None, typer.Option(help="Names or ONNX files; A+B puts descriptors side by side.")
    ] = None,
    results: Annotated[Path, typer.Option(metavar="DIR", help="Folder of results.")] = Path("results"),
    bags: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Folder to keep bags in.", show_default="your cache")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only tell what would be done, and how long it takes.")
    ] = False,
    summary: Annotated[bool, typer.Option("--summary", help="Print the means of the kept results.")] = False,
    report: Annotated[
        bool, typer.Option("--report", help="Write docs/results.md and its plots from the results.")
    ] = False,
    force: Force = False,
    jobs: Jobs = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Run the experiment NAME of the paper on the image set in DIR, or show its results.

    Finished cells are kept in results/NAME and never computed again: run the command again to go on.
    """
    from ..protocols.protocol import PROTOCOLS, Protocol
    from ..protocols.results import Results

    kept = Results(results)
    if report:
        from ..protocols.page.page import write_results

        say(f"wrote {write_results(kept, results.parent / 'docs', force=force)}")
        return
    if name is None:
        raise PatchvoteError(f"name a protocol: {', '.join(PROTOCOLS)}, or a .toml file.")
    chosen = Protocol.load(name)
    if summary:
        _print_summary(chosen, kept, as_json)
        return
    if data is None:
        raise PatchvoteError(f"say where the photos of {chosen.title} are: patchvote protocol {name} --data DIR.")

    from ..protocols.datasets import read_dataset
    from ..protocols.runner import Runner, Selection, default_bags_folder, plan
    from ..protocols.stores import Stores

    selection = Selection(_names(settings), _names(pairs), _names(voters), _names(recipes), _names(networks), splits)
    groups, finished = plan(chosen, selection, kept)
    dataset = read_dataset(chosen.layout, data)
    stores = Stores(bags or default_bags_folder(chosen.layout), {photo.name: photo for photo in dataset.photos}, jobs)
    runner = Runner(chosen, dataset, stores, kept)
    cells = sum(len(group.voters) for group in groups)
    if not quiet:
        say(f"{chosen.title}: {len(dataset.photos):,} photos; {cells} cells to compute, {finished} finished already.")
    if dry_run:
        _tell_time(runner, groups, cells, finished, as_json)
        return
    skipped = _compute(runner, groups, cells, quiet)
    if as_json:
        _print_summary(chosen, kept, as_json)
    if skipped:
        raise typer.Exit(SKIPPED)


def _compute(runner: Any, groups: Any, cells: int, quiet: bool) -> set[str]:
    from .progress import ProgressLine

    skipped: set[str] = set()
    kept = "interrupted. Finished cells are kept: run the same command again to go on."
    with ProgressLine("extract", quiet) as line, interruption(kept):

        def extracting(recipe: str, done: Any) -> None:
            line.stage(f"extract {recipe}", done.done, done.photos)
            for error in done.skipped:
                if error.name not in skipped:
                    skipped.add(error.name)
                    say(f"skipped {error}")

        for count, (group, voter, cell) in enumerate(runner.compute(groups, extracting), start=1):
            if not quiet:
                seconds = cell["train_seconds"] + cell["test_seconds"]
                say(f"{group.words}, {group.recipe}, {voter}: {cell['accuracy']:.2f} % in {seconds:.1f} s")
            line.stage("vote", count, cells)
    return skipped


def _tell_time(runner: Any, groups: Any, cells: int, finished: int, as_json: bool) -> None:
    from .progress import duration

    extraction, voting = runner.estimate(groups)
    if as_json:
        told = {"cells": cells, "finished": finished, "extraction_seconds": extraction, "voting_seconds": voting}
        show_json(told)
        return
    for group in groups[:8]:
        show(f"{group.words}, {group.recipe}, {group.networks}: {', '.join(group.voters)}")
    if len(groups) > 8:
        show(f"… and {len(groups) - 8} more of this kind")
    show(f"about {duration(extraction)} of extraction and {duration(voting)} of voting")


def _print_summary(protocol: Any, results: Any, as_json: bool) -> None:
    from ..protocols.page.summary import summarise

    rows = summarise(protocol, results)
    if as_json:
        show_json(rows, indent=1)
        return
    if not rows:
        raise PatchvoteError(f"there are no results of {protocol.name} in {results.folder} yet.")
    columns = [(f"{row['setting']} {row['pair'] or ''}", row["voter"], row["recipe"], row["network"]) for row in rows]
    widths = [max(map(len, column)) for column in zip(*columns, strict=True)]
    for row, names in zip(rows, columns, strict=True):
        spread = f" ± {row['deviation']:.2f} ({row['splits']} splits)" if row["splits"] > 1 else " (1 split)"
        paper = f"   paper {row['paper']:.2f}" if row["paper"] is not None else ""
        where = "  ".join(name.ljust(width) for name, width in zip(names, widths, strict=True))
        show(f"{where} {row['mean']:6.2f}{spread}{paper}")
