"""Names of networks: their parts, the embedded ones, several joined, and names that stand in a file.

The name of one network is ``engine:what@layer?key=value&key=value``; `NetworkName` cuts it into these parts, whichever
engine it is for.

A name can do much: ``torch:package.module:function`` imports and calls, ``timm:…?pretrained=yes`` downloads, a path
opens whatever lies there. What the user types may do all that. What merely stands in a file (a model, a store, a
protocol) may come from anyone, so such a name is a `NameFromFile` for as long as it is passed on, and is refused
wherever a network is to be loaded by it, unless all of its parts are embedded networks. `beside` finds those that are
ONNX files in the folder of the file. Everything else is loaded when the user types the name.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection
from pathlib import Path, PureWindowsPath

from ..errors import NetworkError, UntypedNetworkError

EMBEDDED = ("efficientnet-lite0", "efficientnet-lite1", "efficientnet-lite2")
JOIN = "+"  # between the names of networks
_MOST_JOINED = 8  # each is held in memory, and every photo goes through each


@dataclasses.dataclass(frozen=True)
class NetworkName:
    """The parts of the name of one network; those that it does not have are empty.

    Parameters
    ----------
    engine : str
        What makes the network; the beginning of the name.
    what : str
        What the engine is to make.
    layer : str
        The layer that is read.
    options : dict
        Values by key.

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
        """Cut a name into its parts.

        Parameters
        ----------
        name : str
            The name of one network.
        known : collection of str, optional
            Keys that the options may have; any by default.

        Raises
        ------
        NetworkError
            An option is not known, or has no value.
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


class NameFromFile(str):
    """The name of a network that was read from a file, and not typed by the user.

    Examples
    --------
    >>> NameFromFile("torch:os:abort") == "torch:os:abort"
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
        They are too many.

    Examples
    --------
    >>> parts_of("efficientnet-lite0+nets/places.onnx")
    ['efficientnet-lite0', 'nets/places.onnx']
    """
    if isinstance(network, NameFromFile) and not set(_split(network)) <= set(EMBEDDED):
        raise UntypedNetworkError(network)
    return [network] if JOIN in network and _is_file(Path(network)) else _split(network)


def _split(network: str) -> list[str]:
    parts = network.split(JOIN, _MOST_JOINED)
    if len(parts) > _MOST_JOINED:
        raise NetworkError(f"{network[:80]!r}… joins more than {_MOST_JOINED} networks.")
    return parts


def beside(network: str, file: Path) -> str:
    """Return the network that `file` names, where it is embedded or an ONNX file in the same folder.

    Only the last part of a path counts: a network that was learned with in one folder may lie beside the model in
    another.

    Raises
    ------
    UntypedNetworkError
        It is anything else.
    """
    names = [network] if _in_folder(network, file.parent) else _split(network)
    found = [name if name in EMBEDDED else _in_folder(name, file.parent) for name in names]
    if not all(found):
        raise UntypedNetworkError(network, file)
    return JOIN.join(found)


def _in_folder(name: str, folder: Path) -> str:
    """Return the path of an ONNX file of this name in `folder`, or nothing."""
    path = folder / PureWindowsPath(name).name  # which knows the separators of all systems
    return str(path) if path.name.lower().endswith(".onnx") and _is_file(path) else ""


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:  # such as a name that is too long for any file
        return False
