"""Names in tables, in results and on the command line.

A voter is named by its kind, with settings in brackets: ``snbnl(n_prototypes=1,q=3)``. Old names of settings are still
accepted, so that protocols and results of earlier versions stay readable. A network is named as the user typed it,
without the folders of its files.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Mapping
from pathlib import Path, PureWindowsPath
from typing import Any

from ..backbones.names import EMBEDDED, JOIN, NetworkName, parts_of

# Old and current names of settings, by kind of voter.
OLD_SETTINGS: dict[str, dict[str, str]] = {
    "snbnl": {
        "prototypes": "n_prototypes",
        "lam": "alpha",
        "minibatch": "batch_size",
        "passes": "max_iter",
        "held_out": "validation_fraction",
    },
    "nbnl": {"prototypes": "n_prototypes", "lam": "alpha", "minibatch": "batch_size", "rounds": "max_iter"},
    "nbnn": {"neighbours": "n_neighbors"},
    "local-nbnn": {"neighbours": "n_neighbors"},
}
_FILE_OPTIONS = ("weights", "mean")  # options of a network whose value may be the path of a file
_LONGEST_SLUG = 120  # characters; file systems allow 255 bytes for the complete name


def split_names(text: str | None) -> tuple[str, ...] | None:
    """Split a list of names at commas, except inside brackets; None stays None.

    Examples
    --------
    >>> split_names("snbnl(q=1,alpha=0), nbnn")
    ('snbnl(q=1,alpha=0)', 'nbnn')
    """
    if text is None:
        return None
    return tuple(filter(None, (part.strip() for part in re.split(r",(?![^(]*\))", text))))


def current_settings(kind: str, settings: Mapping[str, Any], known: Collection[str]) -> dict[str, Any]:
    """Replace old names of settings by current ones; leave all other settings unchanged.

    Parameters
    ----------
    kind : str
        Kind of the voter.
    settings : dict
        Settings, by current or old names.
    known : collection of str
        Current names of the settings of the voter.

    Examples
    --------
    >>> current_settings("snbnl", {"prototypes": 1, "q": 2}, ["n_prototypes", "q"])
    {'n_prototypes': 1, 'q': 2}
    >>> current_settings("snbnl", {"prototypes": 1}, ["prototypes"])
    {'prototypes': 1}
    """
    current = OLD_SETTINGS.get(kind, {})
    return {
        current[key] if key not in known and current.get(key) in known else key: value
        for key, value in settings.items()
    }


def same_spelling(voter: str) -> str:
    """Return the name of a voter with the current names of its settings, so that equal voters have equal names.

    Examples
    --------
    >>> same_spelling("snbnl(prototypes=1,q=inf)") == same_spelling("snbnl(n_prototypes=1,q=inf)")
    True
    """
    kind, bracket, rest = voter.partition("(")
    current = OLD_SETTINGS.get(kind.strip(), {})
    return kind + bracket + re.sub(r"\w+(?=\s*=)", lambda word: current.get(word[0], word[0]), rest)


def network_name(networks: str) -> str:
    """Return the name of networks in results: without the folders of files and the extension .onnx.

    Examples
    --------
    >>> network_name("efficientnet-lite0+weights/places.onnx")
    'efficientnet-lite0+places'
    >>> network_name("torch:my.models:net"), network_name("timm:vit_small.dino")
    ('torch:my.models:net', 'timm:vit_small.dino')
    >>> network_name("caffe:hybrid/deploy.prototxt,hybrid/net.caffemodel@inception/fc7?mean=hybrid/mean.binaryproto")
    'caffe:deploy.prototxt,net.caffemodel@inception/fc7?mean=mean.binaryproto'
    """
    return JOIN.join(map(_one_network, parts_of(networks)))


def network_file_name(network: str) -> str:
    """Return the name of a network as part of a file name, for the store of its bags.

    Where characters have to be replaced, a hash of the complete name makes it unique.

    Examples
    --------
    >>> network_file_name("weights/places.onnx")
    'places'
    >>> network_file_name("torch:my.models:net")
    'torch-my.models-net-5b558f88'
    """
    name = _one_network(network)
    if network in EMBEDDED or _is_plain_file(network):
        return name
    slug = re.sub(r"[^\w.=@-]+", "-", name)[:_LONGEST_SLUG]
    return f"{slug}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"


def _is_plain_file(network: str) -> bool:
    return network.lower().endswith(".onnx")


def _one_network(network: str) -> str:
    if network in EMBEDDED:
        return network
    if _is_plain_file(network):
        return Path(network).stem
    parts = NetworkName.parse(network)
    # Files of Caffe are separated by commas. Names of layers and models may contain slashes, too.
    what = ",".join(_without_folder(word, parts.engine == "caffe") for word in parts.what.split(","))
    options = (f"{key}={_without_folder(value, key in _FILE_OPTIONS)}" for key, value in parts.options.items())
    words = [parts.engine, what and f":{what}", parts.layer and f"@{parts.layer}", "?" if parts.options else ""]
    return "".join(words) + "&".join(options)


def _without_folder(word: str, is_path: bool) -> str:
    """Return the last part of a path: of a word known to be one, or of an absolute path. Other words are unchanged."""
    path = PureWindowsPath(word)  # it splits at the separators of all systems
    return path.name if is_path or path.root else word
