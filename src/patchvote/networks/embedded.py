"""The embedded networks: built once from the weights in their packages, then read from the cache."""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import efficientnet
from .base import Activation, NetworkSpec
from .cache import cached_graph
from .graph import channels_last, cut
from .onnx_backbone import OnnxBackbone

if TYPE_CHECKING:
    import onnx

_BUILD = 2  # version of the graphs; increment it, and all cached graphs are built again


def load(
    name: str, *, output: str = "features", activation: Activation = "after", threads: int = 1, device: str = "cpu"
) -> OnnxBackbone:
    """Load an embedded network; `output` is "features" (a feature map) or "logits" (a vector of ImageNet scores)."""
    variant = efficientnet.VARIANTS[name]
    efficientnet.weights_file(name)  # raises an error where they are not installed
    key = f"{name}-{output}-{activation}-{variant.sha256[:12]}-{_BUILD}"

    def network() -> onnx.ModelProto:
        return cut(efficientnet.build(name), output, activation)

    def built() -> bytes:
        graph = channels_last(network()) if output == "features" else network()
        return bytes(graph.SerializeToString())

    spec = NetworkSpec(
        name=name,
        dim=efficientnet.DIM if output == "features" else efficientnet.CLASSES,
        size=variant.size,
        stride=efficientnet.STRIDE if output == "features" else None,
        preprocessing=efficientnet.PREPROCESSING,
        activation=activation,
        weights=variant.sha256,
        output=output,
    )
    return OnnxBackbone(
        spec,
        cached_graph(key, built),
        threads,
        device,
        read=lambda: network().SerializeToString(),
        channels_last=output == "features",
    )
