"""The command line of the experiments: run a protocol, sum up its results, write the page of results."""

from __future__ import annotations

import argparse
import json
import re
import sys
from pathlib import Path

from patchvote.bags.described import Filled
from patchvote.cli.output import progress_line
from patchvote.errors import PatchvoteError, PhotoError

from .clutter import write_collages
from .paper import TABLES, estimate
from .protocol import PROTOCOLS, Protocol
from .results import Results
from .runner import MEMORY, Runner, Selection, plan

_SELECTED = {
    "settings": "only these settings, separated by commas",
    "pairs": "only these pairs of domains, such as amazon-webcam",
    "voters": "only these voters (how parts vote); settings in brackets: 'snbnl(q=1)'",
    "recipes": "only these recipes (where parts are taken), such as dense,patch-32x3-before",
    "networks": "names or ONNX files; A+B puts descriptors side by side",
}


def _names(text: str) -> tuple[str, ...]:
    """Split a list of names at commas, except inside brackets."""
    return tuple(filter(None, (part.strip() for part in re.split(r",(?![^(]*\))", text))))


def paper(args: argparse.Namespace) -> int:
    """Make the paper's tables from photos: run the protocols of each, then write docs/results.md."""
    chosen = [args.table] if args.table else list(TABLES)
    missed = 0
    if "clutter" in chosen and not (args.sets / "clutter").is_dir() and not args.dry_run:
        write_collages(args.sets / "office_caltech" / "amazon", args.sets / "sun397", args.sets / "clutter")
    for name, folder in (TABLES[table] for table in chosen):
        if (args.sets / folder).is_dir():
            words = ["run", name, "--data", str(args.sets / folder), "--results", str(args.results)]
            missed |= run(_parser().parse_args([*words, *(["--dry-run"] if args.dry_run else [])]))
        else:
            print(f"{name}: skipped, since there is no folder {args.sets / folder}")
    return missed if args.dry_run else missed | report(args)


def run(args: argparse.Namespace) -> int:
    """Compute the cells that are not finished; with --dry-run, list them."""
    protocol, results = Protocol.load(args.protocol), Results(args.results)
    selection = Selection(**{name: getattr(args, name) for name in [*_SELECTED, "splits"]})
    groups, finished = plan(protocol, selection, results)
    cells = sum(len(group.voters) for group in groups)
    hours = estimate(protocol, groups, results) / 3600
    print(f"{protocol.title}: {cells} cells to compute in about {hours:.1f} hours, {finished} finished already.")
    if args.dry_run:
        for group in groups:
            print(f"{group.words}, {group.recipe}, {group.network}: {', '.join(group.voters)}")
        return 0
    memory = int(args.memory * (1 << 30))
    runner = Runner.open(
        protocol, args.data, results, bags=args.bags, jobs=args.jobs, memory=memory, device=args.device
    )
    skipped: dict[str, PhotoError] = {}
    with progress_line("extract") as progress:

        def extracting(recipe: str, done: Filled) -> None:
            progress(f"extract {recipe}", done.done, done.photos)
            skipped.update({error.name: error for error in done.skipped})

        for group, voter, cell in runner.compute(groups, extracting):
            seconds = cell["train_seconds"] + cell["test_seconds"]
            print(f"{group.words}, {group.recipe}, {voter}: {cell['accuracy']:.2f} % in {seconds:.1f} s", flush=True)
    for error in skipped.values():
        print(f"skipped {error}")
    return 3 if skipped else 0


def summary(args: argparse.Namespace) -> int:
    """Print the means of the stored results."""
    from .page.tables import summarise

    rows = summarise(Protocol.load(args.protocol), Results(args.results))
    if args.json:
        print(json.dumps(rows, indent=1))
    elif not rows:
        raise PatchvoteError(f"there are no results of {args.protocol} in {args.results} yet.")
    for row in () if args.json else rows:
        where = "  ".join(filter(None, (row[key] for key in ("setting", "pair", "voter", "recipe", "network"))))
        paper = f"   paper {row['paper']:.2f}" if row["paper"] is not None else ""
        print(f"{where}  {row['mean']:.2f} ± {row['deviation']:.2f} (splits: {row['splits']}){paper}")
    return 0


def report(args: argparse.Namespace) -> int:
    """Write docs/results.md and its plots, beside the folder of results."""
    from .page.page import write_results

    print(f"wrote {write_results(Results(args.results), args.results.parent / 'docs')}")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m experiments", description=(__doc__ or "").split(": ")[0] + ".")
    commands = parser.add_subparsers(required=True, metavar="paper | run | summary | report")
    for work in (paper, run, summary, report):
        command = commands.add_parser(work.__name__, help=work.__doc__, description=work.__doc__)
        command.set_defaults(work=work)
        add = command.add_argument
        add("--results", type=Path, default=Path("results"), metavar="DIR", help="folder of results")
        if work is paper:
            add("--data", dest="sets", type=Path, required=True, metavar="DIR", help="folder of the image sets")
            add("--table", choices=TABLES, help="one table only")
            add("--dry-run", action="store_true", help="list the cells, and compute nothing")
        if work in (run, summary):
            add("protocol", help=f"{', '.join(PROTOCOLS)}, or a .toml file")
        if work is summary:
            add("--json", action="store_true", help="print JSON")
        if work is run:
            add("--data", type=Path, required=True, metavar="DIR", help="folder of the image set")
            add("--splits", type=int, help="only the first splits, this many")
            for name, words in _SELECTED.items():
                add(f"--{name}", type=_names, help=words)
            add("--bags", type=Path, metavar="DIR", help="folder of bags (default: your cache)")
            add("--memory", type=float, default=MEMORY / (1 << 30), help="gigabytes of descriptors to hold at once")
            add("--jobs", type=int, help="threads of extraction (default: one per core)")
            add("--device", default="cpu", help="cpu, cuda or mps")
            add("--dry-run", action="store_true", help="list the cells, and compute nothing")
    return parser


def main(words: list[str] | None = None) -> int:
    """Run the command line; an error becomes a message and the exit code 1."""
    args = _parser().parse_args(words)
    try:
        return int(args.work(args))
    except PatchvoteError as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted. Finished cells are kept: run the same command again to continue.", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
