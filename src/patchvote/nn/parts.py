"""A network in two parts: the trunk, which stays as it is, and the tail, which learns."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import numpy as np
import torch

from ..backbones import EMBEDDED, NetworkSpec, Preprocessing, graph_of
from ..backbones.graph import cut, tail
from ..backbones.onnx_backbone import OnnxBackbone
from ..errors import NetworkError, PatchvoteError
from .onnx_module import OnnxModule

if TYPE_CHECKING:
    import onnx


def tunable_graph(network: str) -> tuple[onnx.ModelProto, NetworkSpec]:
    """Return the graph of a network that can be fine-tuned, and what it is like.

    Raises
    ------
    NetworkError
        It gives no feature map, or one whose features come last.
    """
    graph, spec = graph_of(network)
    if spec.stride is None or spec.preprocessing.layout != "NCHW":
        raise NetworkError(f"{network} does not give a feature map in the order NCHW, so it cannot be fine-tuned here.")
    return graph, spec


def default_start(network: str, graph: onnx.ModelProto) -> str:
    """Return the tensor that the tail of an embedded network begins behind: the end of its last but one stage."""
    if network not in EMBEDDED:
        raise PatchvoteError(f"say from which tensor of {network} on it shall learn: TuningSettings(start=…).")
    return str([node for node in graph.graph.node if node.op_type == "Add"][-1].output[0])


def trunk_of(graph: onnx.ModelProto, start: str, spec: NetworkSpec) -> OnnxBackbone:
    """Return what stays as it is, from pixels to the tensor `start`; its width is found by asking it."""
    trunk = OnnxBackbone(spec, cut(graph, start).SerializeToString())
    answer = trunk.session.run(np.zeros((1, 3, spec.size, spec.size), np.float32))
    trunk.spec = dataclasses.replace(spec, dim=answer.shape[1])
    return trunk


def tail_of(graph: onnx.ModelProto, start: str, width: int) -> OnnxModule:
    """Return what learns, from the tensor `start` on, after it was seen to compute what ONNX Runtime does."""
    part = tail(graph, start)
    rest, blank = OnnxModule(part), NetworkSpec("tail", 0, 0, None, Preprocessing(), "after", "", "")
    x = np.random.default_rng(0).normal(size=(1, width, 4, 6)).astype(np.float32)
    expected = OnnxBackbone(blank, part.SerializeToString()).session.run(x)
    with torch.no_grad():
        given = rest(torch.from_numpy(x)).numpy()
    if given.shape != expected.shape or np.abs(given - expected).max() > 1e-3 * max(1.0, np.abs(expected).max()):
        raise NetworkError(f"what follows {start!r} gives other numbers in torch than in ONNX Runtime: begin later.")
    return rest
