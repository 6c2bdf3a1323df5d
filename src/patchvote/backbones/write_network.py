"""Write a network to an ONNX file, with its settings in a TOML file beside it, as `onnx_file` reads them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from ..utils.files import write_file
from .base import NetworkSpec

if TYPE_CHECKING:
    import onnx


def write_network(path: str | Path, graph: onnx.ModelProto, spec: NetworkSpec) -> Path:
    """Write a graph, whose first output is the descriptors, and what is known of it; return the path of the graph."""
    path, preprocessing = Path(path), spec.preprocessing
    lines = [
        f"output = {json.dumps(graph.graph.output[0].name, ensure_ascii=False)}",  # a name may hold quotes
        f"mean = {list(preprocessing.mean)}",
        f"scale = {list(preprocessing.scale)}",
        f'color = "{preprocessing.color}"',
        f"size = {spec.size}",
        *([] if spec.stride is None else [f"stride = {spec.stride}"]),
    ]
    write_file(path, [graph.SerializeToString()])
    write_file(path.with_suffix(".toml"), ["\n".join([*lines, ""]).encode()])
    return path
