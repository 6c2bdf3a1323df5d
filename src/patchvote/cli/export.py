"""The command that writes a model as one ONNX graph."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ..photos.outputs import Kind
from .options import ModelFile, Printing, check_written
from .output import size


def export(
    model: ModelFile,
    output: Annotated[Path, typer.Argument(metavar="FILE", help="ONNX file to write.")],
    *,
    printing: Printing,
) -> None:
    """Write MODEL as one ONNX graph, for any runtime: from a photo to class scores and maps of votes."""
    from ..models.export import export_model
    from ..models.file import read_model
    from ..networks.names import beside

    path = model.model
    read = read_model(path)
    network = model.network or beside(read.recipe.network, path)
    check_written([(output, Kind.graph)], [path], network, force=model.force)
    graph = export_model(read, output, network=network)
    opset, outputs = graph.opset_import[0].version, [value.name for value in graph.graph.output]
    printing.tell(
        {"model": str(path), "file": str(output), "opset": opset, "outputs": outputs},
        f"wrote {output} ({size(output)}), opset {opset}",
        f"input: photo, uint8 (height, width, 3), RGB; outputs: {', '.join(outputs)}; classes: in the metadata",
    )
