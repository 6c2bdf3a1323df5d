"""Names of networks: their parts, embedded networks, joined networks, and names that were read from a file.

The name of one network is ``engine:what@layer?key=value&key=value``; `NetworkName` splits it into these parts for all
engines.

Loading a network by its name can run code: ``torch:package.module:function`` imports and calls,
``timm:…?pretrained=yes`` downloads, a path opens a file. A name that the user types may do all that. A name from a file
(a model, a store, a protocol) is untrusted: it is passed on as a `NameFromFile`, and no network is loaded by it unless
all of its parts are embedded networks. `beside` finds ONNX files in the folder of that file, and networks in the cache
of the Hugging Face hub. Every other network is loaded only when the user types its name.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Collection
from pathlib import Path, PureWindowsPath

from ..errors import ModelError, NetworkError, UntypedNetworkError

EMBEDDED = ("efficientnet-lite0", "efficientnet-lite1", "efficientnet-lite2")
JOIN = "+"  # between the names of networks
_MAX_JOINED = 8  # each network takes memory, and processes every photo


@dataclasses.dataclass(frozen=True)
class NetworkName:
    """The parts of the name of one network; absent parts are empty.

    Parameters
    ----------
    engine : str
        Engine that loads the network; the beginning of the name.
    what : str
        Network that the engine loads.
    layer : str
        Layer that is read.
    options : dict
        Options of the engine: text by key.

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
        """Split a name into its parts.

        Parameters
        ----------
        name : str
            Name of one network.
        known : collection of str, optional
            Allowed keys of options; any by default.

        Raises
        ------
        NetworkError
            An option is unknown, or has no value.
        """
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
    """Return the value of an option that is a number of pixels.

    Raises
    ------
    NetworkError
        It is no whole number from 1 to 9999.
    """
    if not re.fullmatch(r"[1-9]\d{0,3}", value):
        raise NetworkError(f"{key} must be a whole number of pixels, got {value[:40]!r}.")
    return int(value)


class NameFromFile(str):
    """The name of a network that was read from a file, and not typed by the user.

    Examples
    --------
    >>> NameFromFile("torch:os:abort") == "torch:os:abort"
    True
    """

    __slots__ = ()


class CachedName(str):
    """A name that was read from a file and may be loaded: all that it needs is on this machine.

    Whoever loads it makes no connection.

    Examples
    --------
    >>> CachedName("hf:owner/net") == "hf:owner/net"
    True
    """

    __slots__ = ()


def parts_of(network: str) -> list[str]:
    """Return the names of the networks that a name joins.

    Raises
    ------
    UntypedNetworkError
        The name comes from a file, and not all of its parts are embedded networks.
    NetworkError
        The name joins too many networks.

    Examples
    --------
    >>> parts_of("efficientnet-lite0+nets/places.onnx")
    ['efficientnet-lite0', 'nets/places.onnx']
    """
    if isinstance(network, NameFromFile) and not set(_split(network)) <= set(EMBEDDED):
        raise UntypedNetworkError(network)
    if isinstance(network, CachedName):
        return [CachedName(part) for part in _split(network)]
    return [network] if JOIN in network and _is_file(Path(network)) else _split(network)


def _split(network: str) -> list[str]:
    parts = network.split(JOIN, _MAX_JOINED)
    if len(parts) > _MAX_JOINED:
        raise NetworkError(f"{network[:80]!r}… joins more than {_MAX_JOINED} networks.")
    return parts


def beside(network: str, file: Path) -> str:
    """Return the network that `file` names, where it is embedded, an ONNX file in the same folder, or in a cache.

    Only the last component of a path counts: a network and its model may have been moved together to another folder.
    A network of the Hugging Face hub must be pinned, and in the hub's cache on this machine.

    Raises
    ------
    UntypedNetworkError
        The network is none of these.
    ModelError
        Networks are joined, and a file among them lies in a folder whose name would be read as a join.
    """
    whole = _trusted(network, file.parent)
    is_one = whole and (JOIN in PureWindowsPath(network).name or network.count(JOIN) >= _MAX_JOINED)
    names = [network] if is_one else _split(network)
    trusted = [_trusted(name, file.parent) for name in names]
    if whole and not all(trusted):  # what looks like a join is the name of a folder
        names, trusted = [network], [whole]
    if not all(trusted):
        raise UntypedNetworkError(network, file)
    if len(trusted) > 1 and any(JOIN in name for name in trusted):
        raise ModelError(
            f"{file} joins networks by {JOIN!r}, and the path of its folder has {JOIN!r} as well, so the two cannot be "
            "told apart. Rename the folder, or work inside it."
        )
    joined = JOIN.join(trusted)
    return CachedName(joined) if any(map(_in_cache, names)) else joined


def _trusted(name: str, folder: Path) -> str:
    """Return the name of one network that may be loaded, or "" where it may not."""
    return name if name in EMBEDDED or _in_cache(name) else _in_folder(name, folder)


def _in_cache(name: str) -> bool:
    """Whether a name is that of a network in the hub's cache."""
    if not name.startswith("hf:"):
        return False
    from .hub_cache import is_cached

    return is_cached(name)


def _in_folder(name: str, folder: Path) -> str:
    """Return the path of an ONNX file of this name in `folder`; empty where there is none."""
    path = folder / PureWindowsPath(name).name  # a Windows path splits at the separators of all systems
    return str(path) if path.name.lower().endswith(".onnx") and _is_file(path) else ""


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:  # for example, the name is too long for a file
        return False
