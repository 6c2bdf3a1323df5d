"""The engines that load networks by their names: ours, and those of other packages.

An engine is a function ``load(name, *, activation, threads, device)`` that returns a `base.Backbone`. It gets the whole
name, which `names.NetworkName.parse` splits into its parts, and the parameters of `patchvote.networks.load`. A package
adds an engine by an entry point in the group ``patchvote.networks``; in its pyproject.toml:

    [project.entry-points."patchvote.networks"]
    colours = "my_package.colours:load"

From then on ``colours``, and every name that begins with ``colours:``, ``colours@`` or ``colours?``, is a network:
``patchvote fit photos --network colours:hsv?bins=8`` calls ``my_package.colours.load("colours:hsv?bins=8", …)``.

- The `spec` of the backbone must be complete: `weights` is a hash that changes whenever descriptors change, since it is
  part of the key of cached bags, and `activation` is the requested one.
- What the network returns is compared with its `spec` (`outputs`): floating-point numbers, one row per image, `dim`
  features last, and between them the rows and columns of cells that the stride gives.
- A method ``graph()`` (`base.HasGraph`) is optional; export and fine-tuning need it.
- The names of our engines and networks, and names that end in .onnx, are reserved.
- A name that was read from a file never reaches an engine, except embedded networks, ONNX files beside that file, and
  pinned networks in the hub's cache (see `names`).

An entry point may also be a table with the fields of `known.KnownNetwork`: a short name for a network of the Hugging
Face hub, as those in networks.toml are.

Other packages are searched only when a name is not one of ours, or when all engines are listed.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Protocol

from ..errors import NetworkError, PatchvoteError, first_line
from ..utils.machine import plugins
from ..utils.terminal import nearest
from .base import Activation, Backbone, NetworkSpec
from .names import EMBEDDED, NetworkName
from .outputs import fault_of_spec

GROUP = "patchvote.networks"  # name of the group of entry points

# Modules of this package whose function `load` is an engine, by the beginning of a name; imported when needed.
OURS = {
    "hf": "hub",
    "timm": "torch_network",
    "torch": "torch_network",
    "torchvision": "torch_network",
}


class Engine(Protocol):
    """Loads a network by its name."""

    def __call__(self, name: str, *, activation: Activation, threads: int, device: str) -> Backbone:
        """Load the network."""
        ...


def engines() -> list[str]:
    """Return the names of all engines, ours and those of other packages.

    Examples
    --------
    >>> engines()[:4]
    ['hf', 'timm', 'torch', 'torchvision']
    """
    others = {entry.name for entry in plugins(GROUP)}
    return [*OURS, *sorted(others - OURS.keys())]


def load_one(name: str, *, activation: Activation, threads: int, device: str) -> Backbone:
    """Load one network with the engine that its name begins with.

    Raises
    ------
    NetworkError
        There is no such network, or it cannot be loaded.
    """
    prefix = name.partition(":")[0]
    if name in EMBEDDED:
        module = "embedded"
    elif prefix in OURS:
        module = OURS[prefix]
    elif name.lower().endswith(".onnx"):
        module = "onnx_file"
    else:
        from .known import full_name

        if (full := full_name(name)) is None:
            return _load_with_other(name, activation=activation, threads=threads, device=device)
        name, module = full, "hub"
    load: Engine = importlib.import_module(f".{module}", __package__).load
    return load(name, activation=activation, threads=threads, device=device)


def _load_with_other(name: str, *, activation: Activation, threads: int, device: str) -> Backbone:
    """Load a network with an engine of another package, whose code may raise and return anything."""
    engine = NetworkName.parse(name).engine
    entries = {entry.value: entry for entry in plugins(GROUP) if entry.name == engine}
    if not entries:
        from .known import known_names

        known = engines() if ":" in name else [*EMBEDDED, *known_names(), *engines()]
        raise NetworkError(f"there is no network {name!r}.{nearest(engine, known)} A path must end in .onnx.")
    if len(entries) > 1:
        raise NetworkError(
            f"several packages have an engine {engine!r} ({', '.join(sorted(entries))}): uninstall all but one of them."
        )
    (entry,) = entries.values()
    source = f"the engine {engine!r} ({entry.value})"
    try:
        load = entry.load()
    except (Exception, SystemExit) as error:  # importing a package may raise anything
        raise NetworkError(f"{source} cannot be imported: {first_line(error)}") from error
    if isinstance(load, Mapping):
        from .hub import load as load_from_hub
        from .known import KnownNetwork

        full = KnownNetwork.of(engine, load, source).full_name(name.partition("?")[2])
        return load_from_hub(full, activation=activation, threads=threads, device=device)
    try:
        backbone: Backbone = load(name, activation=activation, threads=threads, device=device)
    except PatchvoteError:
        raise
    except Exception as error:
        raise NetworkError(f"{source} cannot load {name!r}: {first_line(error)}") from error
    spec = getattr(backbone, "spec", None)
    if not callable(backbone) or not isinstance(spec, NetworkSpec):
        raise NetworkError(
            f"{source} returned {type(backbone).__name__!r} for {name!r}, which is no backbone: it must be callable "
            "and have a `spec` of the type NetworkSpec."
        )
    if (wrong := fault_of_spec(spec)) is not None:
        raise NetworkError(f"{source} returned a network for {name!r} with a wrong `spec`: {wrong}.")
    if spec.activation != activation:
        raise NetworkError(f"{name} cannot be read {activation!r} its last activation, only {spec.activation!r} it.")
    return backbone
