"""Names of networks: ``engine:what@layer?key=value&key=value``, several of them joined by ``+``.

Loading a network by its name can run code, download, and open files. A name that the user types may do all that. A
name from a file (a model, a store, a protocol) is a `NameFromFile`: no network is loaded by it except embedded
networks, ONNX files in the same folder (`beside`), and pinned networks in the cache of the Hugging Face hub.
"""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Collection, Iterator
from pathlib import Path, PureWindowsPath

from ..errors import ModelError, NetworkError, UntypedNetworkError

EMBEDDED = ("efficientnet-lite0", "efficientnet-lite1", "efficientnet-lite2")
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
    """Return the names of the networks that a name joins; refuse untrusted names.

    Examples
    --------
    >>> parts_of("efficientnet-lite0+nets/places.onnx")
    ['efficientnet-lite0', 'nets/places.onnx']
    """
    parts = [network] if JOIN in network and os.path.isfile(network) else network.split(JOIN)  # noqa: PTH113
    if isinstance(network, NameFromFile) and not set(parts) <= set(EMBEDDED):
        raise UntypedNetworkError(network)
    if len(parts) > _MAX_JOINED:
        raise NetworkError(f"{network[:80]!r}… joins more than {_MAX_JOINED} networks.")
    return [CachedName(part) for part in parts] if isinstance(network, CachedName) else parts


def beside(network: str, file: Path) -> str:
    """Return the network that `file` names, where it is embedded, an ONNX file in the same folder, or in a cache.

    Only the last component of a path counts: a network and its model may have been moved together to another folder.

    Raises
    ------
    UntypedNetworkError
        The network is none of these.
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
        if part in EMBEDDED:
            from .embedded import weights_file

            yield weights_file(part)
        elif os.path.isfile(part):  # noqa: PTH113 - Path.is_file raises for names that no file can have
            yield Path(part)
            if part.lower().endswith(".onnx"):
                from .graph_file import weight_files

                yield Path(part).with_suffix(".toml")
                yield from weight_files(Path(part))
        elif ":" not in part or part.startswith("hf:"):
            from .hub import cached_files
            from .list import full_name

            yield from cached_files(full_name(part) or part)


def _pieces(name: str) -> list[str]:
    """Return the parts of a network's name that may be paths of files."""
    if name.lower().endswith(".onnx"):  # a path, whatever characters it has
        return [name]
    parts = NetworkName.parse(name)
    return [name, *parts.what.split(","), *parts.options.values()]
