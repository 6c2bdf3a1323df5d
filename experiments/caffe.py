"""Networks of Caffe, run by OpenCV: the format in which the paper's Hybrid-CNN was published.

A name is ``caffe:deploy.prototxt,weights.caffemodel@blob``; the blob is the name of a layer, such as ``fc7``. Where an
activation follows the layer (in Caffe often in place), descriptors are read after it, or before it with
``activation="before"``. Options follow a question mark and are joined by ``&``: ``mean=104,117,123`` is subtracted
(blue, green, red; of a mean image, that is its mean per channel), ``scale=1`` divides.
"""

from __future__ import annotations

import dataclasses
import hashlib
import re
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt

from patchvote.errors import NetworkError
from patchvote.networks import load
from patchvote.networks.base import Activation, Backbone, JoinedBackbone, NetworkSpec, Preprocessing, stride_of
from patchvote.networks.names import NetworkName, parts_of
from patchvote.utils.files import file_digest

_ACTIVATIONS = {"ReLU", "PReLU", "Sigmoid", "TanH", "ELU", "ReLU6"}


def load_with_caffe(network: str, activation: Activation, device: str = "cpu") -> Backbone:
    """Load networks joined by ``+``, of which some are of Caffe; OpenCV runs these on the CPU."""
    parts: list[Backbone] = [
        CaffeBackbone(part, activation)
        if part.startswith("caffe:")
        else load(part, activation=activation, device=device)
        for part in parts_of(network)
    ]
    return parts[0] if len(parts) == 1 else JoinedBackbone(parts)


class CaffeBackbone:
    """A network of Caffe in OpenCV, named in the form that the module describes."""

    def __init__(self, name: str, activation: Activation = "after") -> None:
        prototxt, weights, blob, options = _parse(name)
        try:
            import cv2
        except ImportError:
            raise NetworkError("networks of Caffe need OpenCV: pip install opencv-python-headless") from None
        text = prototxt.read_text(encoding="utf-8", errors="replace")
        try:
            self._net = cv2.dnn.readNetFromCaffe(str(prototxt), str(weights))
        except cv2.error as error:
            raise NetworkError(f"{prototxt} and {weights} are no network of Caffe: {str(error).strip()}") from None
        self._net.setPreferableBackend(cv2.dnn.DNN_BACKEND_OPENCV)
        self._net.enableFusion(False)  # with fusion, the output of a layer would include its activation
        self._lock = threading.Lock()  # a network holds the values of one call
        self._layer = _layer(text, blob, activation, [str(layer) for layer in self._net.getLayerNames()])
        size = _size(text)
        self._mean = _mean(options.get("mean", ""))
        scale = float(options.get("scale", "1"))
        digests = [file_digest(prototxt), file_digest(weights), hashlib.sha256(self._mean.tobytes()).hexdigest()]
        spec = NetworkSpec(
            name=name,
            dim=1,
            size=size,
            stride=None,
            preprocessing=Preprocessing(scale=(scale,) * 3, color="BGR"),  # `_forward` subtracts the mean
            activation=activation,
            weights=hashlib.sha256("".join(digests).encode()).hexdigest(),
            output=self._layer,
            fixed_size=(size, size),
        )
        self.spec = spec
        output = self._forward(np.zeros((1, size, size, 3), np.uint8))
        stride = stride_of(size, output.shape[2]) if output.ndim == 4 and output.shape[2] > 1 else None
        self.spec = dataclasses.replace(spec, dim=output.shape[1], stride=stride)

    def __call__(self, images: npt.NDArray[np.uint8]) -> npt.NDArray[np.float32]:
        """Describe ``(n, h, w, 3)`` RGB images."""
        output = self._forward(images)
        if self.spec.stride is None:
            return np.ascontiguousarray(output.reshape(len(images), self.spec.dim))
        return np.ascontiguousarray(output.transpose(0, 2, 3, 1))

    def _forward(self, images: npt.NDArray[np.uint8]) -> npt.NDArray[np.float32]:
        preprocessing = self.spec.preprocessing
        tensor = preprocessing(images) - self._mean / np.float32(preprocessing.scale[0])
        with self._lock:
            self._net.setInput(tensor)
            try:
                return np.array(self._net.forward(self._layer), dtype=np.float32)
            except Exception as error:  # OpenCV's own exception, or a lack of memory
                raise NetworkError(f"the network cannot take images of the shape {tensor.shape}: {error}") from None


def _parse(name: str) -> tuple[Path, Path, str, dict[str, str]]:
    parsed = NetworkName.parse(name, ("mean", "scale"))
    prototxt, _, weights = parsed.what.partition(",")
    scale = parsed.options.get("scale", "1")
    if not (prototxt and weights and parsed.layer):
        raise NetworkError(
            f"{name!r} does not name a network. Names have the form caffe:deploy.prototxt,weights.caffemodel@fc7."
        )
    for path in (prototxt, weights):
        if not Path(path).is_file():
            raise NetworkError(f"there is no file {path}.")
    if not re.fullmatch(r"\d+(\.\d+)?", scale) or float(scale) == 0:
        raise NetworkError(f"scale must be a number above 0, got {scale!r}.")
    return Path(prototxt), Path(weights), parsed.layer, parsed.options


def _layer(text: str, blob: str, activation: Activation, names: list[str]) -> str:
    """Return the layer whose output is read: the one that computes the blob, or the activation that follows it.

    In place, a layer, its activation and its dropout all write the same blob; the first of them is the layer.
    """
    layers = list(_layers(text))
    makers = [layer for layer in layers if blob == layer["name"]] or [layer for layer in layers if blob == layer["top"]]
    if not makers:
        raise NetworkError(f"the network has no layer or blob {blob!r}. Its layers are: {', '.join(names)}.")
    maker = makers[0]
    if maker["type"] in _ACTIVATIONS:
        before = [layer["name"] for layer in layers[: layers.index(maker)] if layer["top"] == maker["bottom"]]
        return before[-1] if activation == "before" and before else maker["name"]
    after = [layer for layer in layers[layers.index(maker) + 1 :] if layer["bottom"] == maker["top"]]
    following = [layer["name"] for layer in after if layer["type"] in _ACTIVATIONS]
    if activation == "before" and not following:
        raise NetworkError(f"no activation follows {blob!r}, so there is no 'before'.")
    return following[0] if activation == "after" and following else maker["name"]


def _layers(text: str) -> Iterator[dict[str, str]]:
    """Yield name, type, bottom and top of each layer of a prototxt, in the old or new spelling of the format."""
    text = re.sub(r"#[^\n]*", "", text)
    for opening in re.finditer(r"\blayers?\s*\{", text):
        depth, end = 1, opening.end()
        while depth and end < len(text):
            depth += {"{": 1, "}": -1}.get(text[end], 0)
            end += 1
        body = text[opening.end() : end - 1]
        layer = dict.fromkeys(("name", "type", "bottom", "top"), "")
        for key in layer:
            match = re.search(rf"\b{key}\s*:\s*[\"']?([^\"'\s]+)", body)
            layer[key] = match[1] if match else ""
        kind = layer["type"]
        layer["type"] = {"RELU": "ReLU", "SIGMOID": "Sigmoid", "TANH": "TanH"}.get(kind, kind)
        yield layer


def _size(text: str) -> int:
    """Return the side of the input that a prototxt declares."""
    dims = [int(number) for number in re.findall(r"\binput_dim\s*:\s*(\d+)", text)]
    if len(dims) < 4:
        shape = re.search(r"\b(?:input_shape|shape)\s*:?\s*\{([^}]*)\}", text)
        dims = [int(number) for number in re.findall(r"\bdim\s*:\s*(\d+)", shape[1])] if shape else []
    if len(dims) < 4 or dims[1] != 3 or dims[2] != dims[3]:
        raise NetworkError(
            f"the network must take square images of three channels; its prototxt declares {dims or 'nothing'}."
        )
    return dims[2]


def _mean(option: str) -> npt.NDArray[np.float32]:
    """Return the mean in the order blue, green, red, ``(3, 1, 1)``."""
    try:
        values = [float(number) for number in option.split(",")] if option else [0.0, 0.0, 0.0]
    except ValueError:
        values = []
    if len(values) != 3 or not np.isfinite(values).all():
        raise NetworkError(f"mean must be three numbers (blue, green, red), got {option!r}.")
    return np.array(values, np.float32).reshape(3, 1, 1)
