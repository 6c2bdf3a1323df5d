"""The command that writes a model as one ONNX graph."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Annotated

import typer

from ..utils.terminal import show, show_json
from .common import Force, Json, ModelArgument, ModelNetwork, Quiet, check_order, size
from .streams import interruption


def export(
    model: ModelArgument,
    output: Annotated[Path, typer.Argument(metavar="FILE", help="ONNX file to write.")],
    network: ModelNetwork = None,
    force: Force = False,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Write MODEL as one ONNX graph, for any runtime: from a photo to class scores and maps of votes."""
    from ..models.export import export_model
    from ..models.file import read_model
    from ..models.model import network_of
    from ..networks.names import network_files
    from ..photos.outputs import check_outputs
    from ..utils.marks import Kind

    check_order(model, [output])
    read = read_model(model)
    network = network or network_of(read, model)
    check_outputs([(output, Kind.graph)], itertools.chain([model], network_files(network)), force=force)
    with interruption(f"interrupted; {output} was not written."):
        graph = export_model(read, output, network=network)
    opset = graph.opset_import[0].version
    outputs = [value.name for value in graph.graph.output]
    if as_json:
        show_json({"model": str(model), "file": str(output), "opset": opset, "outputs": outputs})
    elif not quiet:
        show(f"wrote {output} ({size(output)}), opset {opset}")
        show(f"input: photo, uint8 (height, width, 3), RGB; outputs: {', '.join(outputs)}; classes: in the metadata")
