"""The embedded networks: built once from the weights in their packages, then read from the cache."""

from __future__ import annotations

from . import efficientnet
from .base import Activation, NetworkSpec
from .cache import cached_graph
from .graph import cut
from .onnx_backbone import OnnxBackbone

_BUILD = 1  # version of the graphs; increment it, and all cached graphs are built again


def load(
    name: str, *, output: str = "features", activation: Activation = "after", threads: int = 1, device: str = "cpu"
) -> OnnxBackbone:
    """Load an embedded network; `output` is "features" (a feature map) or "logits" (a vector of ImageNet scores)."""
    variant = efficientnet.VARIANTS[name]
    efficientnet.weights_file(name)  # raises an error where they are not installed
    key = f"{name}-{output}-{activation}-{variant.sha256[:12]}-{_BUILD}"

    def read() -> bytes:
        return cached_graph(key, lambda: cut(efficientnet.build(name), output, activation).SerializeToString())

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
    return OnnxBackbone(spec, read(), threads, device, read=read)
