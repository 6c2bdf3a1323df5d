"""Several networks with the same stride: their descriptors are scaled to length 1 and concatenated."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ..errors import NetworkError
from .base import Backbone, NetworkSpec, Preprocessing, describe
from .names import JOIN


class JoinedBackbone:
    """Describes images by several networks of the same stride; images have the input size of the first."""

    def __init__(self, parts: Sequence[Backbone]) -> None:
        self._parts = list(parts)
        self.spec = joined_spec([part.spec for part in parts])

    def __call__(self, images: npt.NDArray[np.uint8]) -> npt.NDArray[np.float32]:
        """Describe ``(n, h, w, 3)`` RGB images."""
        return np.concatenate([unit(describe(part, images)[0]) for part in self._parts], axis=-1)

    def with_whole(self, images: npt.NDArray[np.uint8]) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:
        """Describe images; also return the descriptors of whole images: class tokens, or means of a network's cells."""
        maps, wholes = [], []
        for part in self._parts:
            cells, whole = describe(part, images)
            maps.append(unit(cells))
            wholes.append(unit(whole) if whole is not None else mean_of_cells(maps[-1]))
        return np.concatenate(maps, axis=-1), np.concatenate(wholes, axis=-1)


def joined_spec(parts: Sequence[NetworkSpec]) -> NetworkSpec:
    """Return the specification of several joined networks, or refuse networks that look at different places."""
    first = parts[0]
    if len(parts) == 1:
        return first
    for part in parts[1:]:
        if (part.stride, part.fixed_size) != (first.stride, first.fixed_size):
            raise NetworkError(
                f"{first.name} (stride {first.stride}, fixed size {first.fixed_size}) and {part.name} (stride "
                f"{part.stride}, fixed size {part.fixed_size}) do not look at the same places, so their descriptors "
                "cannot be joined."
            )
    fingerprints = JOIN.join(part.fingerprint for part in parts)
    return NetworkSpec(
        name=JOIN.join(part.name for part in parts),
        dim=sum(part.dim for part in parts),
        size=first.size,
        stride=first.stride,
        preprocessing=Preprocessing(),  # not used: each part has its own
        activation=first.activation,
        weights=hashlib.sha256(fingerprints.encode()).hexdigest(),
        output=JOIN.join(part.output for part in parts),
        fixed_size=first.fixed_size,
        whole="class" if any(part.whole == "class" for part in parts) else "mean",
    )


def mean_of_cells(outputs: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """Return one descriptor per image: the mean over the cells of its feature map, or the vector itself."""
    return outputs if outputs.ndim == 2 else outputs.mean(axis=(1, 2), dtype=np.float64).astype(np.float32)


def unit(values: npt.NDArray[np.floating[Any]]) -> npt.NDArray[np.float32]:
    """Scale descriptors to length 1; a descriptor of zeros stays."""
    length = np.linalg.norm(values, axis=-1, keepdims=True)
    return np.asarray(values / np.where(length > 0, length, 1), np.float32)
