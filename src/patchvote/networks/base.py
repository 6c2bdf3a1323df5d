"""What a network is: a `NetworkSpec`, and a call from uint8 images to descriptors; several networks joined are one.

Networks of other packages are called through `describe`, which checks what they return.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
from collections.abc import Sequence
from typing import Any, Literal, Protocol

import numpy as np
import numpy.typing as npt

from ..errors import BrokenNetworkError, NetworkError, PatchvoteError, first_line
from .names import JOIN

Activation = Literal["after", "before"]


@dataclasses.dataclass(frozen=True)
class Preprocessing:
    """How 8-bit RGB pixels become the input of a network: ``(x - mean) / scale``, in the network's channel order."""

    mean: tuple[float, float, float] = (0.0, 0.0, 0.0)
    scale: tuple[float, float, float] = (1.0, 1.0, 1.0)
    color: Literal["RGB", "BGR"] = "RGB"
    layout: Literal["NCHW", "NHWC"] = "NCHW"

    def __call__(self, images: npt.NDArray[np.uint8]) -> npt.NDArray[np.float32]:
        """Convert ``(n, h, w, 3)`` RGB pixels to a float32 tensor in the network's layout."""
        axes = (0, 3, 1, 2) if self.layout == "NCHW" else (0, 1, 2, 3)
        channels = (3, 1, 1) if self.layout == "NCHW" else (3,)
        ordered = images[..., ::-1] if self.color == "BGR" else images
        # Axes are moved while a value is still one byte: several times faster than moving float32.
        tensor = np.ascontiguousarray(ordered.transpose(axes)).astype(np.float32)
        tensor -= np.array(self.mean, dtype=np.float32).reshape(channels)
        tensor /= np.array(self.scale, dtype=np.float32).reshape(channels)
        return tensor


@dataclasses.dataclass(frozen=True)
class NetworkSpec:
    """Specification of a network: everything that the rest of the project needs to know about it."""

    name: str  # in a recipe
    dim: int  # number of features per descriptor
    size: int  # side of the square input that the network was trained on
    stride: int | None  # input pixels between two cells of the feature map; None for one vector per image
    preprocessing: Preprocessing
    activation: Activation  # whether descriptors are read after or before the last activation
    weights: str  # SHA-256 of the file that the weights come from
    output: str  # name of the tensor that is read
    fixed_size: tuple[int, int] | None = None  # height and width of the input, where only one size is accepted
    output_layout: Literal["NCHW", "NHWC"] = "NCHW"  # order of the output's axes, where it is a feature map

    @property
    def fingerprint(self) -> str:
        """Short hash of everything that affects descriptors, which the name does not."""
        fields: dict[str, Any] = dataclasses.asdict(self)
        del fields["name"]
        return hashlib.sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()[:16]


class Backbone(Protocol):
    """A network that computes descriptors of images.

    It must be safe to call from several threads at once, and the descriptors of an image must not depend on the other
    images of the batch.
    """

    @property
    def spec(self) -> NetworkSpec:
        """Specification of the network."""

    def __call__(self, images: npt.NDArray[np.uint8]) -> npt.NDArray[np.float32]:
        """Describe RGB images ``(n, h, w, 3)`` by ``(n, rows, columns, d)``, or ``(n, d)`` where there is no stride."""


def stride_of(side: int, cells: int) -> int:
    """Return the pixels between two cells of a feature map: the power of two nearest to side / cells."""
    return max(1, int(2 ** round(math.log2(side / cells))))


def describe(backbone: Backbone, images: npt.NDArray[np.uint8]) -> npt.NDArray[np.float32]:
    """Return the descriptors of images, after a check: the network may be that of another package."""
    spec = backbone.spec
    try:
        maps = backbone(images)
    except (PatchvoteError, MemoryError):
        raise
    except Exception as error:  # code of another package may raise anything
        raise BrokenNetworkError(
            f"the network {spec.name!r} failed for images of the shape {images.shape}: {type(error).__name__}: "
            f"{first_line(error)}"
        ) from error
    axes = 2 if spec.stride is None else 4
    shape = maps.shape if isinstance(maps, np.ndarray) and maps.dtype.kind == "f" else ()
    if len(shape) != axes or (shape[0], shape[-1]) != (len(images), spec.dim):
        raise BrokenNetworkError(
            f"the network {spec.name!r} returned {type(maps).__name__!r} of the shape {shape} for images of the shape "
            f"{images.shape}, expected floating-point numbers on {axes} axes, with {spec.dim} on the last."
        )
    return maps


# --- several networks as one ------------------------------------------------------------------------------------------


class JoinedBackbone:
    """Several networks of the same stride: their descriptors are scaled to length 1 and concatenated.

    Images have the input size of the first network.
    """

    def __init__(self, parts: Sequence[Backbone]) -> None:
        self._parts = list(parts)
        self.spec = joined_spec([part.spec for part in parts])

    def __call__(self, images: npt.NDArray[np.uint8]) -> npt.NDArray[np.float32]:
        """Describe ``(n, h, w, 3)`` RGB images."""
        return np.concatenate([unit(describe(part, images)) for part in self._parts], axis=-1)


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
    return dataclasses.replace(
        first,
        name=JOIN.join(part.name for part in parts),
        dim=sum(part.dim for part in parts),
        preprocessing=Preprocessing(),  # not used: each part has its own
        weights=hashlib.sha256(JOIN.join(part.fingerprint for part in parts).encode()).hexdigest(),
        output=JOIN.join(part.output for part in parts),
        output_layout="NCHW",  # as above
    )


def mean_of_cells(outputs: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """Return one descriptor per image: the mean over the cells of its feature map, or the vector itself."""
    return outputs if outputs.ndim == 2 else outputs.mean(axis=(1, 2), dtype=np.float64).astype(np.float32)


def unit(values: npt.NDArray[np.floating[Any]]) -> npt.NDArray[np.float32]:
    """Scale descriptors to length 1; a descriptor of zeros stays."""
    length = np.linalg.norm(values, axis=-1, keepdims=True)
    return np.asarray(values / np.where(length > 0, length, 1), np.float32)
