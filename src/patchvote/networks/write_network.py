"""Write a network to an ONNX file, with its settings in a TOML file beside it, as `onnx_file` reads them.

The graph also holds the settings itself: without its TOML file, it would otherwise be shown pixels that it does not
expect, and nothing would tell.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from ..utils.files import write_file
from ..utils.marks import NAME, SETTINGS_HEAD
from .base import NetworkSpec
from .onnx_file import SETTINGS

if TYPE_CHECKING:
    import onnx


def write_network(path: str | Path, graph: onnx.ModelProto, spec: NetworkSpec) -> Path:
    """Write a graph, whose first output is the descriptors, and what is known of it; return the path of the graph."""
    import onnx

    path, preprocessing = Path(path), spec.preprocessing
    lines = [
        SETTINGS_HEAD,
        f"output = {json.dumps(graph.graph.output[0].name, ensure_ascii=False)}",  # a name may hold quotes
        f"mean = {list(preprocessing.mean)}",
        f"scale = {list(preprocessing.scale)}",
        f'color = "{preprocessing.color}"',
        f"size = {spec.size}",
        *([] if spec.stride is None else [f"stride = {spec.stride}"]),
    ]
    text = "\n".join([*lines, ""])
    marked = onnx.ModelProto()
    marked.CopyFrom(graph)
    marked.producer_name = NAME
    onnx.helper.set_model_props(marked, {SETTINGS: text})
    write_file(path, [marked.SerializeToString()])
    write_file(path.with_suffix(".toml"), [text.encode()])
    return path
