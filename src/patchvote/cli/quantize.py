"""The command that writes a network in 8-bit integers, and tells what that brings here."""

from __future__ import annotations

import dataclasses
import itertools
from pathlib import Path
from typing import Annotated

import typer

from ..utils.remote import place
from ..utils.terminal import show, show_json
from .common import (
    Cache,
    ColumnsOption,
    Device,
    Force,
    Jobs,
    Json,
    MistypedError,
    Network,
    NoCache,
    PhotosArgument,
    Quiet,
    Seed,
    after_writing,
    cache_of,
    named_columns,
    source_of,
)
from .fit import VOTERS
from .streams import interruption


def quantize(
    photos: PhotosArgument,
    output: Annotated[Path, typer.Argument(metavar="OUTPUT", parser=place, help="ONNX file to write.")],
    network: Network = "efficientnet-lite0",
    voter: Annotated[str, typer.Option(help=VOTERS)] = "auto",
    columns: ColumnsOption = None,
    budget: Annotated[float, typer.Option(min=0, help="Seconds for training both voters.")] = 60.0,
    force: Force = False,
    cache: Cache = None,
    no_cache: NoCache = False,
    device: Device = "cpu",
    jobs: Jobs = None,
    seed: Seed = 0,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Write a network in 8-bit integers, calibrated on PHOTOS, and tell what that costs and brings on this machine.

    OUTPUT is a network of its own: fit PHOTOS MODEL --network OUTPUT. A model that learned with another network
    cannot use it.
    """
    from ..backbones.network_files import network_files
    from ..models.quantize_network import quantize_network
    from ..photos.outputs import check_outputs
    from ..utils.marks import Kind
    from ..utils.remote import RemotePath
    from .progress import ProgressLine

    if isinstance(output, RemotePath) or output.suffix.lower() != ".onnx":
        raise MistypedError(f"OUTPUT must be a local file that ends in .onnx, got {output}.")
    named, settings = named_columns(columns, [photos]), output.with_suffix(".toml")
    outputs = [(output, Kind.graph), (settings, Kind.settings)]
    check_outputs(outputs, itertools.chain([photos], network_files(network)), force=force, columns=named)
    before = output.stat() if output.exists() else None

    def stopped() -> str:
        is_written = output.exists() and output.stat() != before
        what = f"{output} was written, but not compared" if is_written else f"{output} was not written"
        return f"interrupted; {what}. Run the same command again."

    with interruption(stopped), ProgressLine("calibrate", quiet) as line:
        found = quantize_network(
            source_of(photos, named),
            output,
            network,
            voter=voter,
            budget=budget,
            cache=cache_of(cache, no_cache, photos),
            jobs=jobs,
            device=device,
            seed=seed,
            progress=line.stage,
        )
    with after_writing(output):
        if as_json:
            record = {"network": str(output), "calibrated": found.calibrated, "time_ratio": found.time_ratio}
            show_json({**record, "trials": [dataclasses.asdict(trial) for trial in (found.before, found.after)]})
        elif not quiet:
            show(
                *found.sentences(),
                f"wrote {output}, calibrated on {found.calibrated} photos, and its settings, {settings}.",
            )
