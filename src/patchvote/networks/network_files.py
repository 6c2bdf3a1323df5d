"""Find the files that a network is read from, so that no command overwrites them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from .efficientnet import weights_file
from .hub_names import is_hub_name
from .names import EMBEDDED, NetworkName, parts_of


def network_files(network: str) -> Iterator[Path]:
    """Yield the files that the name of a network leads to, lazily: files of weights take a moment to find.

    Parameters
    ----------
    network : str
        Name that may be loaded: typed by the user, or returned by `names.beside`.
    """
    for part in dict.fromkeys([network, *(piece for name in parts_of(network) for piece in _pieces(name))]):
        if part in EMBEDDED:
            yield weights_file(part)
        elif is_hub_name(full := _full_name(part)):
            from .hub_files import cached_files

            yield from cached_files(full)
        elif os.path.isfile(part):  # noqa: PTH113 - Path.is_file raises for names that no file can have
            path = Path(part)
            yield path
            if path.suffix.lower() == ".onnx":
                from .graph_file import weight_files

                yield path.with_suffix(".toml")
                yield from weight_files(path)


def _full_name(name: str) -> str:
    """Return the name on the hub that a short one stands for, or the name itself."""
    if ":" in name or name.lower().endswith(".onnx"):
        return name
    from .known import full_name

    return full_name(name) or name


def _pieces(name: str) -> list[str]:
    """Return the parts of a network's name that may be paths of files."""
    if name.lower().endswith(".onnx"):  # a path, whatever characters it has
        return [name]
    parts = NetworkName.parse(name)
    return [name, *parts.what.split(","), *parts.options.values()]
