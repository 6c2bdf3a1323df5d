"""Networks in ONNX files: how they are described, what is measured, and which tensor is read."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from conftest import tiny_weights, write_tiny_network
from patchvote import Dense, Extractor, NetworkError, Recipe
from patchvote.networks import load
from patchvote.networks.onnx_file import load as open_onnx

PIXELS = np.random.default_rng(3).integers(0, 256, (3, 64, 96, 3), dtype=np.uint8)


def by_hand(pixels: np.ndarray, mean: float = 0, scale: float = 1, relu: bool = True) -> np.ndarray:
    """The tiny network of the tests, written out: blocks of 32 x 32 pixels times the kernel."""
    kernel, _ = tiny_weights()
    n, height, width, _ = pixels.shape
    blocks = ((pixels.astype(np.float64) - mean) / scale).reshape(n, height // 32, 32, width // 32, 32, 3)
    result = np.einsum("nrycxk,dkyx->nrcd", blocks, kernel.astype(np.float64))
    return np.maximum(result, 0) if relu else result


def extended(path: Path, *nodes: onnx.NodeProto, **constants: object) -> Path:
    """Write the tiny network with further nodes and constants."""
    model = onnx.load(write_tiny_network(path))
    model.graph.node.extend(nodes)
    model.graph.initializer.extend(numpy_helper.from_array(np.array(value), name) for name, value in constants.items())
    onnx.save(model, path)
    return path


def test_an_onnx_file_is_described_by_a_few_arguments(tiny_network):
    net = open_onnx(tiny_network, output="features", mean=10, scale=(2, 2, 2))
    assert (net.spec.dim, net.spec.stride, net.spec.size, net.spec.fixed_size) == (6, 32, 224, None)
    np.testing.assert_allclose(net(PIXELS), by_hand(PIXELS, 10, 2), atol=1e-3)
    before = open_onnx(tiny_network, output="features", mean=10, scale=2, activation="before")
    np.testing.assert_allclose(before(PIXELS), by_hand(PIXELS, 10, 2, relu=False), atol=1e-3)
    inside = open_onnx(tiny_network, output="linear")  # any tensor, not only outputs
    np.testing.assert_allclose(inside(PIXELS), by_hand(PIXELS, relu=False), atol=1e-2)
    with pytest.raises(NetworkError, match="cannot take an input"):
        net(np.zeros((1, 8, 8, 3), np.uint8))


def test_or_by_a_toml_file_beside_it(tmp_path):
    path = write_tiny_network(tmp_path / "net.onnx")
    (tmp_path / "net.toml").write_text('output = "vector"\ncolor = "BGR"\nmean = [1, 2, 3]\nscale = 255\nsize = 64\n')
    net = load(str(path))
    assert (net.spec.stride, net.spec.size, net.spec.preprocessing.color) == (None, 64, "BGR")
    expected = by_hand((PIXELS[..., ::-1] - np.array([1.0, 2, 3])) / 255).mean(axis=(1, 2))
    np.testing.assert_allclose(net(PIXELS), expected, atol=1e-4)
    assert open_onnx(path, output="features").spec.stride == 32  # an argument wins over the file


def test_a_graph_for_one_input_shape_says_which_and_takes_any_number_of_images(tmp_path):
    net = open_onnx(write_tiny_network(tmp_path / "a.onnx", shape=(2, 3, 64, 96)), output="features")
    assert net.spec.fixed_size == (64, 96)
    np.testing.assert_allclose(net(PIXELS), by_hand(PIXELS), atol=1e-2)


def test_a_graph_with_free_axes_that_works_with_one_size_only_gets_no_other(tmp_path):
    add = helper.make_node("Add", ["features", "positions"], ["placed"])  # position embeddings for one size
    path = extended(tmp_path / "a.onnx", add, positions=np.ones((1, 6, 2, 2), np.float32))
    net = open_onnx(path, output="placed", size=64)
    assert (net.spec.size, net.spec.stride, net.spec.fixed_size) == (64, 32, (64, 64))
    bag = Extractor(Recipe("a.onnx", Dense(sides=(64,))), backbone=net)(np.zeros((50, 90, 3), np.uint8))
    assert len(bag.values) == 1 + 4


def test_rows_and_columns_are_found_whatever_the_order_of_the_axes(tmp_path):
    model = onnx.load(write_tiny_network(tmp_path / "a.onnx"))  # as converters from TensorFlow write it
    model.graph.node[0].input[0] = "inner"
    model.graph.node.insert(0, helper.make_node("Transpose", ["image"], ["inner"], perm=[0, 3, 1, 2]))
    model.graph.node.append(helper.make_node("Transpose", ["features"], ["last"], perm=[0, 2, 3, 1]))
    model.graph.input[0].type.CopyFrom(helper.make_tensor_type_proto(1, ["n", "h", "w", 3]))
    onnx.save(model, tmp_path / "a.onnx")
    for output in ("features", "last"):
        net = open_onnx(tmp_path / "a.onnx", output=output)
        assert (net.spec.dim, net.spec.stride, net.spec.preprocessing.layout) == (6, 32, "NHWC")
        np.testing.assert_allclose(net(PIXELS), by_hand(PIXELS), atol=1e-2)


def test_tensors_that_only_a_branch_reads_stay_in_the_graph(tmp_path):
    value = helper.make_tensor_value_info("out", TensorProto.FLOAT, None)
    double = helper.make_graph([helper.make_node("Mul", ["features", "two"], ["out"])], "double", [], [value])
    choice = helper.make_node("If", ["always"], ["doubled"], then_branch=double, else_branch=double)
    net = open_onnx(extended(tmp_path / "a.onnx", choice, always=True, two=np.float32(2)), output="doubled")
    np.testing.assert_allclose(net(PIXELS), 2 * by_hand(PIXELS), atol=1e-2)


def test_fingerprints_tell_networks_apart_and_names_do_not(tmp_path, tiny_network):
    copy = tmp_path / "copy.onnx"
    copy.write_bytes(tiny_network.read_bytes())
    prints = [
        open_onnx(tiny_network, output="features").spec.fingerprint,
        open_onnx(copy, output="features").spec.fingerprint,
        open_onnx(copy, output="vector").spec.fingerprint,
        open_onnx(copy, output="features", mean=1).spec.fingerprint,
        open_onnx(write_tiny_network(copy, channels=5), output="features").spec.fingerprint,
    ]
    for value in (0.0, 1.0):  # weights in a file of their own
        model = onnx.load(tiny_network)
        model.graph.initializer[1].CopyFrom(numpy_helper.from_array(np.full(6, value, np.float32), "bias"))
        (tmp_path / "weights").unlink(missing_ok=True)
        onnx.save(model, tmp_path / "a.onnx", save_as_external_data=True, location="weights", size_threshold=0)
        net = open_onnx(tmp_path / "a.onnx", output="features")
        assert net(np.zeros((1, 32, 32, 3), np.uint8)).max() == value
        prints.append(net.spec.fingerprint)
    assert prints[0] == prints[1]
    assert len(set(prints)) == 6


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({}, "has 2 outputs"),
        ({"output": "nothing"}, "no tensor 'nothing'"),
        ({"output": "linear", "activation": "before"}, "no 'before'"),
        ({"output": "features", "color": "CMYK"}, "color must be"),
        ({"output": "features", "scale": 0}, "scale must not be 0"),
        ({"output": "features", "size": "224"}, "size must be a whole number"),
    ],
)
def test_settings_that_do_not_fit_the_file_are_refused(tiny_network, settings, says):
    with pytest.raises(NetworkError, match=says):
        open_onnx(tiny_network, **settings)


def test_files_that_are_no_networks_are_refused(tmp_path):
    (tmp_path / "text.onnx").write_text("hello")
    path = write_tiny_network(tmp_path / "net.onnx")
    for name, toml, says in (
        ("none.onnx", "", "cannot be read"),
        ("text.onnx", "", "is not an ONNX file|not a graph"),
        ("net.onnx", "outptu = 'features'", "Did you mean 'output'"),
        ("net.onnx", "output = ", "is not a TOML file"),
    ):
        path.with_suffix(".toml").write_text(toml)
        with pytest.raises(NetworkError, match=says):
            load(str(tmp_path / name))
