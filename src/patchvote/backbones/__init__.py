"""The networks that describe what a box of an image shows.

`load` takes the name of an embedded network or the path of an ONNX file, and gives back something that speaks the one
protocol of `base.Backbone`.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import NetworkError
from ..utils.suggest import nearest
from .base import Activation, Backbone, NetworkSpec, Preprocessing
from .graph_file import read_graph
from .joined import JoinedBackbone
from .names import EMBEDDED, parts_of
from .onnx_file import OnnxBackbone, open_onnx
from .torch_network import ENGINES, load_torch, torch_graph

if TYPE_CHECKING:
    import onnx

__all__ = ["EMBEDDED", "Activation", "Backbone", "NetworkSpec", "Preprocessing", "graph_of", "load", "open_onnx"]

_BUILD = 1  # of the graphs; a higher number makes every cache build them again


def load(network: str, *, activation: Activation = "after", threads: int = 1, device: str = "cpu") -> Backbone:
    """Load a network.

    Parameters
    ----------
    network : str
        One of `EMBEDDED`, or the path of an ONNX file; a TOML file of the same name beside it may describe its
        preprocessing (see `open_onnx`); a network of torch, timm or torchvision (see `torch_network`), or of Caffe (see
        `caffe_network`). Several, joined by ``+``, stand side by side (see `joined`). A name that was read from a file
        may only name embedded networks (see `names`).
    activation : {"after", "before"}, default "after"
        Whether descriptors are read after or before the network's last activation.
    threads : int, default 1
        Threads of one call.
    device : {"cpu", "cuda", "mps"}, default "cpu"
        Where ONNX Runtime computes; OpenCV, which runs Caffe's networks, does so on the CPU.

    Examples
    --------
    >>> spec = load("efficientnet-lite0").spec
    >>> spec.dim, spec.stride
    (1280, 32)
    """
    if activation not in ("after", "before"):
        raise NetworkError(f"activation must be 'after' or 'before', got {activation!r}.")
    parts = parts_of(network)
    if len(parts) > 1:
        return JoinedBackbone([load(part, activation=activation, threads=threads, device=device) for part in parts])
    if network in EMBEDDED:
        return load_embedded(network, "features", activation, threads, device)
    if network.startswith("caffe:"):
        from .caffe_network import CaffeBackbone

        return CaffeBackbone(network, activation)
    if network.partition(":")[0] in ENGINES:
        return load_torch(network, activation, threads, device)
    if network.lower().endswith(".onnx"):
        return open_onnx(network, activation=activation, threads=threads, device=device)
    raise NetworkError(f"there is no network {network!r}.{nearest(network, EMBEDDED)} A path must end in .onnx.")


def load_embedded(
    name: str, output: str, activation: Activation = "after", threads: int = 1, device: str = "cpu"
) -> OnnxBackbone:
    """Load an embedded network, read at its `features` (a map) or its ImageNet `logits` (a vector)."""
    from . import efficientnet
    from .cache import cached_graph
    from .graph import cut

    variant = efficientnet.VARIANTS[name]
    efficientnet.weights_file(name)  # says how to install them where they are absent
    key = f"{name}-{output}-{activation}-{variant.sha256[:12]}-{_BUILD}"
    graph = cached_graph(key, lambda: cut(efficientnet.build(name), output, activation).SerializeToString())
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
    return OnnxBackbone(spec, graph, threads, device)


def graph_of(network: str, activation: Activation = "after") -> tuple[onnx.ModelProto, NetworkSpec]:
    """Return the graph of one network, from its input to the descriptors, and what it is like."""
    from . import efficientnet
    from .graph import cut

    parts_of(network)  # refuses what a file names
    if network in EMBEDDED:
        model = efficientnet.build(network)
        return cut(model, "features", activation), load_embedded(network, "features", activation).spec
    if network.partition(":")[0] in ENGINES:
        import onnx

        return onnx.load_from_string(torch_graph(network, activation)), load_torch(network, activation).spec
    if network.startswith("caffe:"):
        raise NetworkError("a network of Caffe has no graph in ONNX.")
    spec = open_onnx(network, activation=activation).spec
    return cut(read_graph(Path(network))[0], spec.output, activation), spec
