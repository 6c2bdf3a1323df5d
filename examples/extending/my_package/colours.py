"""A network: the mean and the spread of the colours of every cell of the photo.

It has nothing to download and nothing to learn, and shows all that an engine and a backbone have to offer. A name is
`colours`, or `colours?cell=16` for smaller cells.
"""

from __future__ import annotations

import hashlib

import numpy as np

from patchvote.errors import NetworkError
from patchvote.networks.base import NetworkSpec, Preprocessing
from patchvote.networks.names import NetworkName

VERSION = "1"  # raise it whenever descriptors change: caches and models are known by it


class Colours:
    """Describes cells by six numbers: the mean and the standard deviation of red, green and blue."""

    def __init__(self, name, cell):
        weights = hashlib.sha256(f"colours {VERSION} {cell}".encode()).hexdigest()
        self.spec = NetworkSpec(
            name=name,
            dim=6,
            size=224,
            stride=cell,  # input pixels between two cells
            preprocessing=Preprocessing(),
            activation="after",
            weights=weights,
            output="colours",
        )

    def __call__(self, images):
        """Describe RGB images ``(n, h, w, 3)`` by ``(n, rows, columns, 6)``; sides are multiples of the stride."""
        n, height, width, _ = images.shape
        cell = self.spec.stride
        cells = images.reshape(n, height // cell, cell, width // cell, cell, 3).astype(np.float32) / 255
        return np.concatenate([cells.mean(axis=(2, 4)), cells.std(axis=(2, 4))], axis=-1)


def load(name, *, activation, threads, device):
    """Load the network; `patchvote fit photos/ --network colours` calls this."""
    options = NetworkName.parse(name).options
    cell = options.get("cell", "32")
    if set(options) - {"cell"} or cell not in ("16", "32"):
        raise NetworkError(
            f"{name!r} is no network of colours: write 'colours', 'colours?cell=16' or 'colours?cell=32'."
        )
    return Colours(name, int(cell))
