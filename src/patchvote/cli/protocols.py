"""The commands that run the paper's experiments and show their results."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from ..engines.choose import EngineName
from ..errors import PatchvoteError
from ..utils.terminal import say, show, show_json
from .checked import Checked
from .common import SKIPPED, Address, Device, EngineOption, Force, Jobs, Json, Quiet, Workers, workers_of
from .streams import interruptible, interruption

if TYPE_CHECKING:
    from ..protocols import Experiment, Protocol, Selection
    from ..utils.engine import Engine

_AS_BEFORE = "as-before"  # hidden command with the flags of the previous version, used if no sub-command is named

Name = Annotated[str, typer.Argument(metavar="NAME", help="Name of the protocol, or a .toml file.")]
Data = Annotated[Path, typer.Option(metavar="DIR", help="Folder of the image set.")]
Splits = Annotated[int | None, typer.Option(min=1, help="Only the first splits, this many.")]
Settings = Annotated[str | None, typer.Option(help="Only these settings, separated by commas.")]
Pairs = Annotated[str | None, typer.Option(help="Only these pairs of domains, such as amazon-webcam.")]
Voters = Annotated[
    str | None, typer.Option(help="Only these voters (how parts vote); settings in brackets: 'snbnl(q=1)'.")
]
Recipes = Annotated[
    str | None, typer.Option(help="Only these recipes (where parts are taken), such as dense,patch-32x3-before.")
]
Networks = Annotated[str | None, typer.Option(help="Names or ONNX files; A+B puts descriptors side by side.")]
ResultsFolder = Annotated[Path, typer.Option("--results", metavar="DIR", help="Folder of results.")]
BagsFolder = Annotated[
    Path | None,
    typer.Option(
        "--bags", metavar="DIR", help="Folder to keep bags (descriptors of photos) in.", show_default="your cache"
    ),
]
Memory = Annotated[
    float | None,
    typer.Option(
        min=0.001, help="Gigabytes of descriptors to hold at once; the memory of a voter is extra.", show_default="4"
    ),
]
_RESULTS = Path("results")


class _OldFlags(TyperGroup):
    """Sub-commands; without the name of one, the flags of the previous version."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if not args or (args[0] not in self.commands and args[0] not in ctx.help_option_names):
            args = [_AS_BEFORE, *args]
        return super().parse_args(ctx, args)


app = typer.Typer(cls=_OldFlags, rich_markup_mode=None, help="Run the paper's experiments, and show their results.")


@app.command(cls=Checked)
@interruptible
def run(
    name: Name,
    data: Data,
    splits: Splits = None,
    settings: Settings = None,
    pairs: Pairs = None,
    voters: Voters = None,
    recipes: Recipes = None,
    networks: Networks = None,
    results: ResultsFolder = _RESULTS,
    bags: BagsFolder = None,
    memory: Memory = None,
    device: Device = "cpu",
    jobs: Jobs = None,
    engine: EngineOption = EngineName.local,
    address: Address = None,
    workers: Workers = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Run the experiment NAME of the paper on the image set in DIR.

    Finished cells are kept in results/NAME and never computed again: run the command again to continue.
    """
    from ..protocols import Selection

    selection = Selection.parse(settings, pairs, voters, recipes, networks, splits=splits)
    with workers_of(engine, address, workers, jobs) as (where, threads):
        experiment = _experiment(name, data, results, selection, bags, memory, threads, device)
        _run(experiment, results, quiet, as_json, where)


@app.command("plan", cls=Checked)
@interruptible
def plan_(
    name: Name,
    data: Data,
    splits: Splits = None,
    settings: Settings = None,
    pairs: Pairs = None,
    voters: Voters = None,
    recipes: Recipes = None,
    networks: Networks = None,
    results: ResultsFolder = _RESULTS,
    bags: BagsFolder = None,
    jobs: Jobs = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Show what `run` would compute, and how long it would take; nothing is written."""
    from ..protocols import Selection

    selection = Selection.parse(settings, pairs, voters, recipes, networks, splits=splits)
    _plan(_experiment(name, data, results, selection, bags, None, jobs), quiet, as_json)


@app.command(cls=Checked)
@interruptible
def summary(name: Name, results: ResultsFolder = _RESULTS, as_json: Json = False) -> None:
    """Print the means of the stored results."""
    from ..protocols import Protocol

    _summary(Protocol.load(name), results, as_json)


@app.command(cls=Checked)
@interruptible
def report(results: ResultsFolder = _RESULTS, force: Force = False) -> None:
    """Write docs/results.md and its plots from the results."""
    _report(results, force)


@app.command(cls=Checked)
@interruptible
def fold(name: Name, results: ResultsFolder = _RESULTS) -> None:
    """Merge cells that are in separate files into cells.jsonl, including those of the previous version.

    `run` does this at its end; the command is for runs that were interrupted.
    """
    from ..protocols import Protocol, Results

    folded = Results(results).fold(Protocol.load(name).name)
    say(f"folded {folded:,} cells into {results}.")


@app.command(_AS_BEFORE, hidden=True, cls=Checked)
@interruptible
def as_before(
    name: Annotated[str | None, typer.Argument(metavar="NAME")] = None,
    data: Annotated[Path | None, typer.Option(metavar="DIR")] = None,
    splits: Splits = None,
    settings: Settings = None,
    pairs: Pairs = None,
    voters: Voters = None,
    recipes: Recipes = None,
    networks: Networks = None,
    results: ResultsFolder = _RESULTS,
    bags: BagsFolder = None,
    memory: Memory = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Same as the command plan.")] = False,
    summarise: Annotated[bool, typer.Option("--summary", help="Same as the command summary.")] = False,
    write_report: Annotated[bool, typer.Option("--report", help="Same as the command report.")] = False,
    force: Force = False,
    jobs: Jobs = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Do what the previous version did with these flags."""
    from ..protocols import PROTOCOLS, Protocol, Selection

    if write_report:
        _report(results, force)
        return
    if name is None:
        raise PatchvoteError(f"name a protocol: {', '.join(PROTOCOLS)}, or a .toml file.")
    protocol = Protocol.load(name)
    if summarise:
        _summary(protocol, results, as_json)
        return
    if data is None:
        raise PatchvoteError(f"say where the photos of {protocol.title} are: patchvote protocol {name} --data DIR.")
    selection = Selection.parse(settings, pairs, voters, recipes, networks, splits=splits)
    experiment = _experiment(name, data, results, selection, bags, memory, jobs)
    if dry_run:
        _plan(experiment, quiet, as_json)
    else:
        _run(experiment, results, quiet, as_json)


# --- what the commands share ----------------------------------------------------------------------------------------


def _experiment(
    name: str,
    data: Path,
    results: Path,
    selection: Selection,
    bags: Path | None,
    memory: float | None,
    jobs: int | None,
    device: str = "cpu",
) -> Experiment:
    from ..protocols import Experiment, Results

    budget = None if memory is None else int(memory * (1 << 30))
    more: dict[str, Any] = {"selection": selection, "bags": bags, "jobs": jobs, "memory": budget, "device": device}
    return Experiment(name, data, Results(results), **more)


def _run(experiment: Experiment, results: Path, quiet: bool, as_json: bool, engine: Engine | None = None) -> None:
    from .progress import ProgressLine
    from .protocol_progress import Progress

    kept = "interrupted. Finished cells are kept: run the same command again to continue."
    with ProgressLine("extract", quiet) as line, interruption(kept):
        outcome = experiment.run(Progress(line, quiet), engine)
    if as_json:
        _summary(experiment.protocol, results, as_json)
    if outcome.skipped:
        raise typer.Exit(SKIPPED)


def _plan(experiment: Experiment, quiet: bool, as_json: bool) -> None:
    from ..utils.pace import duration
    from .protocol_progress import announce

    if not quiet:
        announce(experiment)
    extraction, voting = experiment.estimate()
    if as_json:
        counts = {"cells": experiment.cells, "finished": experiment.finished}
        show_json(counts | {"extraction_seconds": extraction, "voting_seconds": voting})
    if as_json or quiet:
        return
    for group in experiment.groups[:8]:
        show(f"{group.words}, {group.recipe}, {group.networks}: {', '.join(group.voters)}")
    if len(experiment.groups) > 8:
        show(f"… and {len(experiment.groups) - 8} more of this kind")
    show(f"about {duration(extraction)} of extraction and {duration(voting)} of voting")


def _report(results: Path, force: bool) -> None:
    from ..protocols import Results
    from ..protocols.page.page import write_results

    say(f"wrote {write_results(Results(results), results.parent / 'docs', force=force)}")


def _summary(protocol: Protocol, results: Path, as_json: bool) -> None:
    from ..protocols import Results
    from ..protocols.page.summary import summarise

    rows = summarise(protocol, Results(results))
    if as_json:
        show_json(rows, indent=1)
        return
    if not rows:
        raise PatchvoteError(f"there are no results of {protocol.name} in {results} yet.")
    columns = [(f"{row['setting']} {row['pair'] or ''}", row["voter"], row["recipe"], row["network"]) for row in rows]
    widths = [max(map(len, column)) for column in zip(*columns, strict=True)]
    for row, names in zip(rows, columns, strict=True):
        spread = f" ± {row['deviation']:.2f} ({row['splits']} splits)" if row["splits"] > 1 else " (1 split)"
        paper = f"   paper {row['paper']:.2f}" if row["paper"] is not None else ""
        where = "  ".join(name.ljust(width) for name, width in zip(names, widths, strict=True))
        show(f"{where} {row['mean']:6.2f}{spread}{paper}")
