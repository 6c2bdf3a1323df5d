"""The files that a network is read from, so that no command writes over one of them."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

from .efficientnet import weights_file
from .graph_file import weight_files
from .names import EMBEDDED


def network_files(network: str) -> Iterator[Path]:
    """Yield the files that the name of a network leads to, one after the other: finding the last ones takes a moment.

    Parameters
    ----------
    network : str
        A name that can be loaded as it is: typed by the user, or found by `names.beside`.
    """
    for part in dict.fromkeys([network, *re.split("[+,@:?&=]", network)]):
        if part in EMBEDDED:
            yield weights_file(part)
        elif os.path.isfile(part):  # noqa: PTH113 - the method of a path raises for what is no name
            path = Path(part)
            yield path
            if path.suffix.lower() == ".onnx":
                yield path.with_suffix(".toml")
                yield from weight_files(path)
