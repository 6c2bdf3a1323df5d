"""Names as they stand in tables, in results and on the command line.

A voter is named by its kind, and its settings in brackets: ``snbnl(n_prototypes=1,q=3)``. A setting that has another
name today is still understood by the name it had, so that protocols and results of an earlier version stay readable.
A network is named as the user typed it, less the folders of its files.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Mapping
from pathlib import Path, PureWindowsPath
from typing import Any

from ..backbones.names import EMBEDDED, JOIN, NetworkName, parts_of

# By kind of voter: what a setting was called, and what it is called now.
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
_LONGEST_SLUG = 120  # characters; file systems allow 255 bytes for the whole name


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
    """Rename the settings that a voter knows only by another name today; leave all others as they are.

    Parameters
    ----------
    kind : str
        Kind of the voter.
    settings : dict
        Settings by the names they were given with.
    known : collection of str
        Names of the settings that the voter has.

    Examples
    --------
    >>> current_settings("snbnl", {"prototypes": 1, "q": 2}, ["n_prototypes", "q"])
    {'n_prototypes': 1, 'q': 2}
    >>> current_settings("snbnl", {"prototypes": 1}, ["prototypes"])
    {'prototypes': 1}
    """
    renamed = OLD_SETTINGS.get(kind, {})
    return {
        renamed[key] if key not in known and renamed.get(key) in known else key: value
        for key, value in settings.items()
    }


def same_spelling(voter: str) -> str:
    """Return the name of a voter with today's names of its settings: two names that mean the same become equal.

    Examples
    --------
    >>> same_spelling("snbnl(prototypes=1,q=inf)") == same_spelling("snbnl(n_prototypes=1,q=inf)")
    True
    """
    kind, bracket, rest = voter.partition("(")
    renamed = OLD_SETTINGS.get(kind.strip(), {})
    return kind + bracket + re.sub(r"\w+(?=\s*=)", lambda word: renamed.get(word[0], word[0]), rest)


def network_name(networks: str) -> str:
    """Return what results call networks: their names, without the folders of files and without the ending of ONNX.

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
    """Return what a store of a single network is called: its name, as far as a file can have it.

    Where characters are left out, a hash of the whole name keeps it apart from others.

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
    # Files of Caffe stand with commas between; the name of a layer or of a model may have slashes, too.
    what = ",".join(_without_folder(word, parts.engine == "caffe") for word in parts.what.split(","))
    options = (f"{key}={_without_folder(value, key in _FILE_OPTIONS)}" for key, value in parts.options.items())
    words = [parts.engine, what and f":{what}", parts.layer and f"@{parts.layer}", "?" if parts.options else ""]
    return "".join(words) + "&".join(options)


def _without_folder(word: str, is_path: bool) -> str:
    """Return the last part of what is known to be a path, or can be nothing else; leave other words as they are."""
    path = PureWindowsPath(word)  # which knows the separators of all systems
    return path.name if is_path or path.root else word
