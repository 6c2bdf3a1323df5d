"""A network in two parts: the trunk, which is frozen, and the tail, which is trained."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import numpy as np
import torch

from ..errors import NetworkError, PatchvoteError
from ..networks import EMBEDDED, NetworkSpec, Preprocessing, graph_of
from ..networks.graph import cut, tail
from ..networks.onnx_backbone import OnnxBackbone
from .onnx_module import OnnxModule

if TYPE_CHECKING:
    import onnx


def tunable_graph(network: str) -> tuple[onnx.ModelProto, NetworkSpec]:
    """Return the graph of a network that can be fine-tuned, and its specification.

    Raises
    ------
    NetworkError
        The network returns no feature map, or its layout is not NCHW.
    """
    graph, spec = graph_of(network)
    if spec.stride is None or spec.preprocessing.layout != "NCHW":
        raise NetworkError(f"{network} does not return a feature map in the layout NCHW, so it cannot be fine-tuned.")
    return graph, spec


def default_start(network: str, graph: onnx.ModelProto) -> str:
    """Return the tensor after which the tail of an embedded network begins: the end of its last but one stage."""
    if network not in EMBEDDED:
        raise PatchvoteError(f"say from which tensor of {network} on it shall learn: TuningSettings(start=…).")
    return str([node for node in graph.graph.node if node.op_type == "Add"][-1].output[0])


def trunk_of(graph: onnx.ModelProto, start: str, spec: NetworkSpec, device: str = "cpu") -> OnnxBackbone:
    """Return the frozen part, from pixels to the tensor `start`; a trial run shows how many features it has."""
    trunk = OnnxBackbone(spec, cut(graph, start).SerializeToString(), device=device)
    output = trunk.session.run(np.zeros((1, 3, spec.size, spec.size), np.float32))
    trunk.spec = dataclasses.replace(spec, dim=output.shape[1])
    return trunk


def tail_of(graph: onnx.ModelProto, start: str, width: int) -> OnnxModule:
    """Return the trained part, from the tensor `start` on, and verify that it computes the same as in ONNX Runtime."""
    part = tail(graph, start)
    module, blank = OnnxModule(part), NetworkSpec("tail", 0, 0, None, Preprocessing(), "after", "", "")
    x = np.random.default_rng(0).normal(size=(1, width, 4, 6)).astype(np.float32)
    expected = OnnxBackbone(blank, part.SerializeToString()).session.run(x)
    with torch.no_grad():
        output = module(torch.from_numpy(x)).numpy()
    if output.shape != expected.shape or np.abs(output - expected).max() > 1e-3 * max(1.0, np.abs(expected).max()):
        raise NetworkError(
            f"the part after {start!r} returns other numbers in torch than in ONNX Runtime: begin at a later tensor."
        )
    return module
