"""The networks that compute descriptors of images, by name.

An *engine* is a function ``load(name, *, activation, threads, device)`` that returns a `base.Backbone`. A package adds
one by an entry point in the group ``patchvote.networks``; in its pyproject.toml:

    [project.entry-points."patchvote.networks"]
    colours = "my_package.colours:load"

From then on ``colours``, and every name that begins with ``colours:``, ``colours@`` or ``colours?``, is a network, and
the engine gets the whole name (`NetworkName.parse` splits it). The `spec` of the backbone must be complete: `weights`
is a hash that changes whenever descriptors change, since it is part of the key of cached bags. Export and fine-tuning
also need a method ``graph()``, which returns an ONNX graph from preprocessed images to the descriptors.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from ..errors import NetworkError, PatchvoteError, first_line
from ..utils.machine import plugins
from ..utils.terminal import nearest
from .base import Activation, Backbone, JoinedBackbone, NetworkSpec, Preprocessing
from .names import EMBEDDED, ENGINES, GROUP, JOIN, NetworkName, full_name, known_networks, parts_of

if TYPE_CHECKING:
    import onnx

__all__ = [
    "EMBEDDED",
    "Activation",
    "Backbone",
    "NetworkName",
    "NetworkSpec",
    "Preprocessing",
    "graph_of",
    "load",
    "load_pinned",
]


def load(network: str, *, activation: Activation = "after", threads: int = 1, device: str = "cpu") -> Backbone:
    """Load a network, or several joined by ``+``.

    A name is one of `EMBEDDED`, the path of an ONNX file (see `onnx_file`), or begins with an engine: ``hf`` (`hub`),
    ``torch``, ``timm`` or ``torchvision`` (`torch_modules`), or that of another package. `activation` says whether
    descriptors are read after or before the network's last activation; `threads` are those of one call, and `device`
    is "cpu", "cuda" or "mps".
    """
    return load_pinned(network, activation=activation, threads=threads, device=device)[0]


def load_pinned(
    network: str, *, activation: Activation = "after", threads: int = 1, device: str = "cpu"
) -> tuple[Backbone, str]:
    """Load a network as `load` does; also return the name by which the same network is found again.

    That is the given name, except that a network of the Hugging Face hub has its commit and the SHA-256 of its file.
    """
    names = parts_of(network)
    parts = [_load_one(part, activation=activation, threads=threads, device=device) for part in names]
    found = [part.spec.name for part in parts]
    pinned = [full if full.startswith("hf:") else name for full, name in zip(found, names, strict=True)]
    return parts[0] if len(parts) == 1 else JoinedBackbone(parts), type(network)(JOIN.join(pinned))


def graph_of(network: str, activation: Activation = "after") -> tuple[onnx.ModelProto, NetworkSpec]:
    """Return the ONNX graph of one network, from its input to the descriptors, and its specification."""
    backbone = load(network, activation=activation)
    if not hasattr(backbone, "graph"):
        raise NetworkError(f"{network} has no graph in ONNX.")
    return backbone.graph(), backbone.spec


def _load_one(name: str, **settings: Any) -> Backbone:
    """Load one network with the engine that its name begins with; other packages come after our own names."""
    prefix = name.partition(":")[0]
    if name in EMBEDDED:
        module = "embedded"
    elif prefix in ENGINES:
        module = ENGINES[prefix]
    elif name.lower().endswith(".onnx"):
        module = "onnx_file"
    else:
        if (full := full_name(name)) is None:
            return _load_with_other(name, **settings)
        name, module = full, "hub"
    backbone: Backbone = importlib.import_module(f".{module}", __package__).load(name, **settings)
    return backbone


def _load_with_other(name: str, **settings: Any) -> Backbone:
    """Load a network with an engine of another package, whose code may raise and return anything."""
    parsed = NetworkName.parse(name)
    entries = {entry.name: entry for entry in plugins(GROUP)}
    entry = entries.get(parsed.engine)
    if entry is None:
        known = [*([] if ":" in name else [*EMBEDDED, *known_networks()]), *ENGINES, *entries]
        raise NetworkError(f"there is no network {name!r}.{nearest(parsed.engine, known)} A path must end in .onnx.")
    source = f"the engine {parsed.engine!r} ({entry.value})"
    try:
        backbone: Backbone = entry.load()(name, **settings)
    except PatchvoteError:
        raise
    except (Exception, SystemExit) as error:
        raise NetworkError(f"{source} cannot load {name!r}: {first_line(error)}") from error
    spec = getattr(backbone, "spec", None)
    if not callable(backbone) or not isinstance(spec, NetworkSpec):
        raise NetworkError(f"{source} returned {type(backbone).__name__!r} for {name!r}, which is no backbone.")
    if spec.activation != settings["activation"]:
        raise NetworkError(f"{name} can only be read {spec.activation!r} its last activation.")
    return backbone
