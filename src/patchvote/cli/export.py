"""The command that writes a model as one ONNX graph."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ..terminal import show, show_json
from .common import Json, ModelArgument, Quiet, check_folder, size


def export(
    model: ModelArgument,
    output: Annotated[Path, typer.Argument(metavar="FILE", help="ONNX file to write.")],
    network: Annotated[
        str | None, typer.Option(help="The network's ONNX file, where it is no longer where it was.")
    ] = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Write MODEL as one ONNX graph, for any runtime: a photo in, class scores and maps of votes out."""
    from ..export import export_model
    from ..model import network_of, read_model

    check_folder(output)
    read = read_model(model)
    graph = export_model(read, output, network=network or network_of(read, model))
    opset = graph.opset_import[0].version
    outputs = [value.name for value in graph.graph.output]
    if as_json:
        show_json({"model": str(model), "file": str(output), "opset": opset, "outputs": outputs})
    elif not quiet:
        show(f"wrote {output} ({size(output)}), opset {opset}")
        show(f"in: photo, uint8 (height, width, 3), RGB. out: {', '.join(outputs)}. Its metadata has the classes.")
