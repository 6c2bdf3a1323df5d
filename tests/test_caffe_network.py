"""Networks in Caffe's files: a small AlexNet that the test writes itself, beside the same in numpy."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("cv2")

from experiments.caffe import load_with_caffe
from patchvote import NetworkError

PROTOTXT = """
name: "SmallAlexNet"
input: "data"
input_dim: 1
input_dim: 3
input_dim: 35
input_dim: 35
layer { name: "conv1" type: "Convolution" bottom: "data" top: "conv1"
        convolution_param { num_output: 6 kernel_size: 5 stride: 2 } }
layer { name: "relu1" type: "ReLU" bottom: "conv1" top: "conv1" }  # in place
layer { name: "pool1" type: "Pooling" bottom: "conv1" top: "pool1"
        pooling_param { pool: MAX kernel_size: 3 stride: 2 } }
layer { name: "norm1" type: "LRN" bottom: "pool1" top: "norm1" lrn_param { local_size: 5 alpha: 0.1 beta: 0.75 } }
layer { name: "conv2" type: "Convolution" bottom: "norm1" top: "conv2"
        convolution_param { num_output: 8 kernel_size: 3 pad: 1 group: 2 } }
layer { name: "relu2" type: "ReLU" bottom: "conv2" top: "conv2" }
layer { name: "fc6" type: "InnerProduct" bottom: "conv2" top: "fc6" inner_product_param { num_output: 10 } }
layer { name: "relu6" type: "ReLU" bottom: "fc6" top: "fc6" }
layer { name: "drop6" type: "Dropout" bottom: "fc6" top: "fc6" dropout_param { dropout_ratio: 0.5 } }
layer { name: "fc7" type: "InnerProduct" bottom: "fc6" top: "fc7" inner_product_param { num_output: 8 } }
layer { name: "relu7" type: "ReLU" bottom: "fc7" top: "fc7" }
layer { name: "fc8" type: "InnerProduct" bottom: "fc7" top: "fc8" inner_product_param { num_output: 4 } }
"""


def number(value: int) -> bytes:
    parts = []
    while value > 127:
        parts.append(value & 127 | 128)
        value >>= 7
    return bytes([*parts, value])


def field(index: int, content: bytes) -> bytes:
    return number(index << 3 | 2) + number(len(content)) + content


def blob(array: np.ndarray) -> bytes:
    shape = field(1, b"".join(number(length) for length in array.shape))
    return field(7, shape) + field(5, array.astype("<f4").tobytes())


MEAN = (104.0, 117.0, 123.0)  # blue, green, red
WEIGHTS = {"conv1": (6, 3, 5, 5), "conv2": (8, 3, 3, 3), "fc6": (10, 8 * 8 * 8), "fc7": (8, 10), "fc8": (4, 8)}


@pytest.fixture(scope="module")
def weights() -> dict[str, tuple[np.ndarray, np.ndarray]]:
    rng = np.random.default_rng(0)
    return {name: (rng.normal(size=shape) / 20, rng.normal(size=shape[0])) for name, shape in WEIGHTS.items()}


@pytest.fixture(scope="module")
def files(weights, tmp_path_factory):
    folder = tmp_path_factory.mktemp("caffe")
    (folder / "deploy.prototxt").write_text(PROTOTXT)
    kinds = {"conv1": b"Convolution", "conv2": b"Convolution"}
    content = field(1, b"SmallAlexNet")
    for name, (kernel, bias) in weights.items():
        layer = field(1, name.encode()) + field(2, kinds.get(name, b"InnerProduct"))
        content += field(100, layer + field(7, blob(kernel)) + field(7, blob(bias)))
    (folder / "net.caffemodel").write_bytes(content)
    return folder, np.array(MEAN, np.float32)[:, None, None]


def by_hand(images: np.ndarray, weights, mean: np.ndarray) -> dict[str, np.ndarray]:
    """Caffe's way, written out: blue first, less the mean; pooling also takes what sticks out; groups see their own."""
    x = images[..., ::-1].transpose(0, 3, 1, 2).astype(np.float64) - mean
    kernel, bias = weights["conv1"]
    conv1 = convolved(x, kernel, stride=2) + bias[:, None, None]
    # 16 cells: 8 windows
    wider = np.pad(np.maximum(conv1, 0), ((0, 0), (0, 0), (0, 1), (0, 1)), constant_values=-np.inf)
    pooled = np.lib.stride_tricks.sliding_window_view(wider, (3, 3), axis=(2, 3))[:, :, ::2, ::2].max(axis=(4, 5))
    normed = np.empty_like(pooled)
    for channel in range(6):
        near = pooled[:, max(0, channel - 2) : channel + 3]
        normed[:, channel] = pooled[:, channel] / (1 + 0.1 / 5 * (near**2).sum(axis=1)) ** 0.75
    kernel, bias = weights["conv2"]
    padded = np.pad(normed, ((0, 0), (0, 0), (1, 1), (1, 1)))
    halves = [convolved(padded[:, 3 * g : 3 * g + 3], kernel[4 * g : 4 * g + 4]) for g in (0, 1)]
    conv2 = np.concatenate(halves, axis=1) + bias[:, None, None]
    fc6 = np.maximum(conv2, 0).reshape(len(x), -1) @ weights["fc6"][0].T + weights["fc6"][1]
    fc7 = np.maximum(fc6, 0) @ weights["fc7"][0].T + weights["fc7"][1]
    return {"conv1": conv1, "conv2": conv2, "fc6": fc6, "fc7": fc7}


def convolved(x: np.ndarray, kernel: np.ndarray, stride: int = 1) -> np.ndarray:
    windows = np.lib.stride_tricks.sliding_window_view(x, kernel.shape[2:], axis=(2, 3))[:, :, ::stride, ::stride]
    return np.einsum("ncyxij,dcij->ndyx", windows, kernel)


IMAGES = np.random.default_rng(2).integers(0, 256, (3, 35, 35, 3), dtype=np.uint8)


def name(folder, layer: str) -> str:
    mean = ",".join(map(str, MEAN))
    return f"caffe:{folder / 'deploy.prototxt'},{folder / 'net.caffemodel'}@{layer}?mean={mean}"


@pytest.mark.parametrize(
    ("layer", "activation", "stride"),
    [
        *((layer, activation, None) for layer in ("fc6", "fc7", "relu6") for activation in ("before", "after")),
        ("conv1", "before", 2),
        ("conv2", "before", 4),
    ],
)
def test_layers_before_and_after_their_activation_are_those_of_the_reference(layer, activation, stride, files, weights):
    folder, mean = files
    expected = np.moveaxis(by_hand(IMAGES, weights, mean)[layer.replace("relu", "fc")], 1, -1)
    net = load_with_caffe(name(folder, layer), activation)
    assert (net.spec.dim, net.spec.stride, net.spec.fixed_size) == (expected.shape[-1], stride, (35, 35))
    np.testing.assert_allclose(net(IMAGES), np.maximum(expected, 0) if activation == "after" else expected, atol=1e-4)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda text: text.replace("@fc7", "@fc9"), "no layer or blob 'fc9'. Its layers are: conv1"),
        (lambda text: text.replace("net.caffemodel", "none.caffemodel"), "there is no file"),
        (lambda text: text.partition("?")[0] + "?mean=1,2", "mean must be three numbers"),
        (lambda text: text.replace("@fc7", "@fc8"), "no activation follows 'fc8'"),
        (lambda text: text.replace("deploy.prototxt", "net.caffemodel"), "are no network of Caffe"),
    ],
)
def test_names_that_mean_nothing_are_refused(change, words, files):
    with pytest.raises(NetworkError, match=words):
        load_with_caffe(change(name(files[0], "fc7")), "before" if "fc8" in words else "after")
