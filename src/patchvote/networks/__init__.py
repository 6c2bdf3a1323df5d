"""The networks that compute descriptors of images.

`load` takes the name of a network and returns a `base.Backbone`. `registry` describes which names there are, and how
other packages add networks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..errors import NetworkError
from .base import Activation, Backbone, HasGraph, NetworkSpec, Preprocessing
from .joined import JoinedBackbone
from .names import EMBEDDED, JOIN, NetworkName, parts_of
from .registry import engines, load_one

if TYPE_CHECKING:
    import onnx

    from .onnx_file import open_onnx

__all__ = [
    "EMBEDDED",
    "Activation",
    "Backbone",
    "NetworkName",
    "NetworkSpec",
    "Preprocessing",
    "engines",
    "graph_of",
    "load",
    "load_pinned",
    "open_onnx",
]


def load(network: str, *, activation: Activation = "after", threads: int = 1, device: str = "cpu") -> Backbone:
    """Load a network.

    Parameters
    ----------
    network : str
        One of `EMBEDDED`; or the path of an ONNX file, with its preprocessing in a TOML file of the same name (see
        `open_onnx`); or a network of the Hugging Face hub (see `hub`) or its short name (see `known`), of torch, timm
        or torchvision (see `torch_network`), or of an engine of another package (see `registry`). The descriptors of
        several networks, joined by ``+``, are concatenated (see `joined`). A name that was read from a file is refused,
        except embedded networks, ONNX files beside that file, and pinned networks in the hub's cache (see `names`).
    activation : {"after", "before"}, default "after"
        Whether descriptors are read after or before the network's last activation.
    threads : int, default 1
        Number of threads per call.
    device : {"cpu", "cuda", "mps"}, default "cpu"
        Device of ONNX Runtime.

    Examples
    --------
    >>> spec = load("efficientnet-lite0").spec
    >>> spec.dim, spec.stride
    (1280, 32)
    """
    return load_pinned(network, activation=activation, threads=threads, device=device)[0]


def load_pinned(
    network: str, *, activation: Activation = "after", threads: int = 1, device: str = "cpu"
) -> tuple[Backbone, str]:
    """Load a network as `load` does; also return the name by which the same network is found again.

    That is the given name, except that a network of the Hugging Face hub has its commit and the SHA-256 of its file.
    """
    if activation not in ("after", "before"):
        raise NetworkError(f"activation must be 'after' or 'before', got {activation!r}.")
    names = parts_of(network)
    parts = [load_one(part, activation=activation, threads=threads, device=device) for part in names]
    pinned = [str(getattr(part, "pinned_name", name)) for part, name in zip(parts, names, strict=True)]
    return parts[0] if len(parts) == 1 else JoinedBackbone(parts), type(network)(JOIN.join(pinned))


def graph_of(network: str, activation: Activation = "after") -> tuple[onnx.ModelProto, NetworkSpec]:
    """Return the ONNX graph of one network, from its input to the descriptors, and its specification.

    Raises
    ------
    NetworkError
        The network cannot be loaded, or has no ONNX graph.
    """
    backbone = load(network, activation=activation)
    if not isinstance(backbone, HasGraph):
        raise NetworkError(f"{network} has no graph in ONNX.")
    return backbone.graph(), backbone.spec


def __getattr__(name: str) -> Any:
    if name == "open_onnx":  # embedded networks do not need it
        from .onnx_file import open_onnx

        return open_onnx
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
