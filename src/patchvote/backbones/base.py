"""The one protocol that every network speaks: uint8 images in, descriptors out.

What a network is like (its stride, its input, how pixels become numbers) is data in a `NetworkSpec`, so that the code
that cuts images into boxes never asks which network it has.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
from typing import TYPE_CHECKING, Any, Literal, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    import onnx

Activation = Literal["after", "before"]


@dataclasses.dataclass(frozen=True)
class Preprocessing:
    """How 8-bit RGB pixels become the numbers a network was trained on: ``(x - mean) / scale``.

    Parameters
    ----------
    mean, scale : tuple of three floats
        In the network's own channel order.
    color : {"RGB", "BGR"}
        The network's channel order.
    layout : {"NCHW", "NHWC"}
        The order of the network's input axes.

    Examples
    --------
    >>> pixels = np.full((1, 2, 2, 3), 255, dtype=np.uint8)
    >>> Preprocessing(mean=(127.0,) * 3, scale=(128.0,) * 3)(pixels).shape
    (1, 3, 2, 2)
    """

    mean: tuple[float, float, float] = (0.0, 0.0, 0.0)
    scale: tuple[float, float, float] = (1.0, 1.0, 1.0)
    color: Literal["RGB", "BGR"] = "RGB"
    layout: Literal["NCHW", "NHWC"] = "NCHW"

    def __call__(self, images: npt.NDArray[np.uint8]) -> npt.NDArray[np.float32]:
        """Turn ``(n, h, w, 3)`` RGB pixels into a float32 tensor in the network's layout."""
        axes = (0, 3, 1, 2) if self.layout == "NCHW" else (0, 1, 2, 3)
        channels = (3, 1, 1) if self.layout == "NCHW" else (3,)
        ordered = images[..., ::-1] if self.color == "BGR" else images
        # Axes are moved while a number is still one byte: several times faster than moving float32.
        tensor = np.ascontiguousarray(ordered.transpose(axes)).astype(np.float32)
        tensor -= np.array(self.mean, dtype=np.float32).reshape(channels)
        tensor /= np.array(self.scale, dtype=np.float32).reshape(channels)
        return tensor


@dataclasses.dataclass(frozen=True)
class NetworkSpec:
    """What the rest of the project needs to know of a network.

    Parameters
    ----------
    name : str
        How a recipe names it.
    dim : int
        Features of a descriptor.
    size : int
        Side of the square input that the network was trained on.
    stride : int or None
        Input pixels between two cells of the feature map; None where the network gives one vector an image.
    fixed_size : tuple of two ints or None
        Height and width of the only input that the graph takes, where it takes only one.
    preprocessing : Preprocessing
        From pixels to the network's numbers.
    activation : {"after", "before"}
        Whether descriptors are read after or before the last activation.
    weights : str
        SHA-256 of the file that the weights come from.
    output : str
        Name of the tensor that is read.
    output_layout : {"NCHW", "NHWC"}
        The order of its axes, where it is a feature map.
    """

    name: str
    dim: int
    size: int
    stride: int | None
    preprocessing: Preprocessing
    activation: Activation
    weights: str
    output: str
    fixed_size: tuple[int, int] | None = None
    output_layout: Literal["NCHW", "NHWC"] = "NCHW"

    @property
    def fingerprint(self) -> str:
        """A short hash of everything that changes a descriptor; the name does not."""
        told: dict[str, Any] = dataclasses.asdict(self)
        del told["name"]
        return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()[:16]


class Backbone(Protocol):
    """A network that describes images.

    Calling it must be safe from several threads at once, and the answer for an image must not depend on which others
    stand in the same batch.
    """

    @property
    def spec(self) -> NetworkSpec:
        """What the network is like."""
        ...

    def __call__(self, images: npt.NDArray[np.uint8]) -> npt.NDArray[np.float32]:
        """Describe ``(n, h, w, 3)`` RGB images: ``(n, rows, columns, d)``, or ``(n, d)`` where there is no stride."""
        ...


@runtime_checkable
class HasGraph(Protocol):
    """A backbone that is a graph in ONNX, and so can be exported with a model and fine-tuned."""

    def graph(self) -> onnx.ModelProto:
        """Return the graph, from images in the network's own numbers and layout to the descriptors."""
        ...


def stride_of(side: int, cells: int) -> int:
    """Return the pixels between two cells of a feature map: the power of two that is nearest to side / cells.

    Examples
    --------
    >>> stride_of(224, 7), stride_of(35, 16)
    (32, 2)
    """
    return max(1, int(2 ** round(math.log2(side / cells))))
