"""Networks of the Hugging Face hub: what is downloaded, what is read, and what is refused."""

from __future__ import annotations

import hashlib
import sys

import numpy as np
import onnx
import pytest

pytest.importorskip("torch")

import huggingface_hub
import torch

from helpers.hub_networks import DINO, TIMM, Only, convnet, exported, repository, vit, vit_file
from patchvote import Dense, Extractor, NetworkError, Recipe
from patchvote.networks import graph_of, load, load_pinned
from patchvote.networks.hub import HubName
from patchvote.networks.names import CachedName, network_files

IMAGES = np.random.default_rng(0).integers(0, 256, (3, 64, 96, 3), dtype=np.uint8)
SQUARE = IMAGES[:, :, :64]
MEAN, DEVIATION = torch.tensor([0.485, 0.456, 0.406]), torch.tensor([0.229, 0.224, 0.225])


def pixels(images: np.ndarray, mean=MEAN, deviation=DEVIATION) -> torch.Tensor:
    return ((torch.from_numpy(images).float() / 255 - mean) / deviation).permute(0, 3, 1, 2)


def cells(tokens: torch.Tensor, others: int, rows: int, columns: int) -> np.ndarray:
    return tokens[:, others:].reshape(len(tokens), rows, columns, -1).numpy()


@pytest.fixture
def quick(monkeypatch):
    """No pauses between attempts of the library."""
    from huggingface_hub import file_download
    from huggingface_hub.utils import _http

    for module in (file_download, _http):
        monkeypatch.setattr(module.time, "sleep", lambda _: None)


# --- descriptors ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("registers", [0, 4])
def test_tokens_of_patches_are_the_map_and_class_and_register_tokens_are_not_in_it(hub, registers):
    net = vit(registers=registers)
    hub.push("tiny/vit", repository(exported(net, "last_hidden_state", "logits"), DINO))
    backbone = load("hf:tiny/vit")
    assert (backbone.spec.dim, backbone.spec.stride, backbone.spec.size, backbone.spec.fixed_size) == (24, 16, 64, None)
    with torch.no_grad():
        expected = cells(net.tokens(pixels(IMAGES)), 1 + registers, 4, 6)
    np.testing.assert_allclose(backbone(IMAGES), expected, atol=1e-4)


def test_a_network_that_allows_other_sizes_looks_at_two_scales_and_another_at_one(hub):
    for name, free in (("free", True), ("fixed", False)):
        hub.push(f"tiny/{name}", repository(vit_file(free=free), DINO))
    assert load("hf:tiny/fixed").spec.fixed_size == (64, 64)
    assert Extractor("hf:tiny/free").recipe.sampling == Dense()
    one = Extractor("hf:tiny/fixed")
    assert one.recipe.sampling == Dense(sides=(64,))
    assert len(one(IMAGES[0]).values) == 1 + 16
    with pytest.raises(NetworkError, match="one scale only"):
        Extractor(Recipe("hf:tiny/fixed"))
    net = vit(free=False)
    with torch.no_grad():
        expected = cells(net.tokens(pixels(SQUARE)), 1, 4, 4)
    np.testing.assert_allclose(load("hf:tiny/fixed")(SQUARE), expected, atol=1e-4)


def test_the_class_token_can_describe_the_whole_image(hub):
    net = vit(registers=2)
    hub.push("tiny/vit", repository(exported(net, "last_hidden_state", "logits"), DINO))
    with torch.no_grad():
        tokens = net.tokens(pixels(SQUARE[:1]))[0].numpy()
    sampling = Dense(sides=(64, 128))
    first = Extractor(Recipe("hf:tiny/vit?whole=class", sampling))(SQUARE[0])
    mean = Extractor(Recipe("hf:tiny/vit", sampling))(SQUARE[0])
    np.testing.assert_allclose(first.values[0], tokens[0], atol=1e-4)
    np.testing.assert_allclose(mean.values[0], tokens[3:].mean(axis=0), atol=1e-4)
    np.testing.assert_array_equal(first.values[1:], mean.values[1:])
    names = "hf:tiny/vit", "hf:tiny/vit?whole=class"
    assert len({load(name).spec.fingerprint for name in names}) == 2


def test_a_patch_is_described_by_its_class_token_and_joined_networks_have_one_each(hub):
    from patchvote import Patch

    hub.push("tiny/vit", repository(vit_file(), DINO))
    single = load("hf:tiny/vit?whole=class")
    bag = Extractor(Recipe("hf:tiny/vit?whole=class", Patch(count=10, levels=1)))(SQUARE[0])
    assert bag.values.shape[1] == 24
    both = load("hf:tiny/vit?whole=class+hf:tiny/vit")
    maps, whole = both.with_whole(SQUARE)
    _, token = single.with_whole(SQUARE)
    np.testing.assert_allclose(whole[:, :24], token / np.linalg.norm(token, axis=1, keepdims=True), rtol=1e-5)
    np.testing.assert_allclose(whole[:, 24:], maps[..., 24:].mean(axis=(1, 2)), rtol=1e-4, atol=1e-6)


def test_a_network_without_a_class_token_says_so(hub):
    hub.push("tiny/siglip", repository(exported(Only(vit(token=False), 0), "last_hidden_state"), DINO))
    assert load("hf:tiny/siglip")(SQUARE).shape == (3, 4, 4, 24)
    with pytest.raises(NetworkError, match="has no class token"):
        load("hf:tiny/siglip?whole=class")


def test_the_map_of_a_classifier_is_found_before_its_pooling(hub):
    net = convnet()
    hub.push("tiny/conv", repository(exported(net, "logits"), TIMM))
    backbone = load("hf:tiny/conv")
    with torch.no_grad():
        expected = net.features(pixels(IMAGES, 0.5, 0.5)).permute(0, 2, 3, 1).numpy()
    assert (backbone.spec.stride, backbone.spec.dim) == (16, 20)
    np.testing.assert_allclose(backbone(IMAGES), expected, atol=1e-4)


def test_the_tokens_of_a_classifier_are_found_before_its_class_token_is_taken(hub):
    net = vit(registers=1)
    hub.push("tiny/vit", repository(exported(Only(net, 1), "logits"), DINO))
    with torch.no_grad():
        expected = cells(net.tokens(pixels(IMAGES)), 2, 4, 6)
    np.testing.assert_allclose(load("hf:tiny/vit")(IMAGES), expected, atol=1e-4)


@pytest.mark.parametrize("free", [True, False])
def test_a_float16_file_gives_nearly_the_same_descriptors(hub, free):
    net = vit(free=free)
    hub.push("tiny/vit", repository(exported(net, "last_hidden_state", "logits", half=True), DINO))
    backbone = load("hf:tiny/vit")
    with torch.no_grad():
        expected = cells(net.tokens(pixels(SQUARE)), 1, 4, 4)
    assert backbone(SQUARE).dtype == np.float32
    np.testing.assert_allclose(backbone(SQUARE), expected, atol=1e-2)


def test_an_int8_file_describes_an_image_alike_whatever_else_is_in_its_batch(hub, tmp_path):
    from onnxruntime.quantization import QuantType, quantize_dynamic

    net = vit()
    (tmp_path / "a.onnx").write_bytes(exported(net, "last_hidden_state", "logits"))
    quantize_dynamic(tmp_path / "a.onnx", tmp_path / "b.onnx", weight_type=QuantType.QUInt8)
    files = repository((tmp_path / "b.onnx").read_bytes(), DINO, "onnx/model_int8.onnx")
    hub.push("tiny/vit", files)
    backbone = load("hf:tiny/vit")
    together = backbone(SQUARE)
    for index in range(3):
        np.testing.assert_array_equal(together[index], backbone(SQUARE[index : index + 1])[0])
    with torch.no_grad():
        expected = cells(net.tokens(pixels(SQUARE)), 1, 4, 4)
    assert np.corrcoef(together.ravel(), expected.ravel())[0, 1] > 0.98


def test_among_several_outputs_the_user_says_which(hub):
    class Two(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.net = convnet()

        def forward(self, x):
            stem = torch.relu(self.net.stem(x))
            return stem, self.net.features(x)

    hub.push("tiny/two", repository(exported(Two(), "early", "late"), TIMM))
    with pytest.raises(NetworkError, match=r"several outputs .* \(early, late\)"):
        load("hf:tiny/two")
    assert (load("hf:tiny/two?output=early").spec.stride, load("hf:tiny/two?output=late").spec.stride) == (4, 16)
    with pytest.raises(NetworkError, match="no tensor 'none'. Its outputs are: early, late"):
        load("hf:tiny/two?output=none")


def test_weights_in_a_file_of_their_own_are_downloaded_with_the_graph(hub, tmp_path):
    net = vit()
    model = onnx.load_from_string(exported(net, "last_hidden_state", "logits"))
    settings = {"save_as_external_data": True, "location": "model.onnx_data", "size_threshold": 0}
    onnx.save_model(model, tmp_path / "model.onnx", **settings)
    files = {f"onnx/{name}": (tmp_path / name).read_bytes() for name in ("model.onnx", "model.onnx_data")}
    hub.push("tiny/vit", repository(files["onnx/model.onnx"], DINO) | files)
    backbone, name = load_pinned("hf:tiny/vit")
    with torch.no_grad():
        expected = cells(net.tokens(pixels(SQUARE)), 1, 4, 4)
    np.testing.assert_allclose(backbone(SQUARE), expected, atol=1e-4)
    hub.asked.clear()
    np.testing.assert_array_equal(load(CachedName(name))(SQUARE), backbone(SQUARE))
    assert hub.asked == []
    next(tmp_path.rglob("snapshots/*/onnx/model.onnx_data")).unlink()
    with pytest.raises(NetworkError, match="onnx/model.onnx_data of tiny/vit is not in the cache"):
        load(CachedName(name))
    assert hub.asked == []
    assert load(name).spec.fingerprint == backbone.spec.fingerprint


@pytest.mark.parametrize("location", ["../../../../secret", "/etc/passwd", "..%2Fsecret", "../config.json"])
def test_weights_outside_of_the_snapshot_are_refused_and_nothing_is_asked_for(hub, tmp_path, location):
    model = onnx.load_from_string(vit_file())
    tensor = model.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = onnx.TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value=location)
    hub.push("tiny/vit", repository(model.SerializeToString(), DINO))
    with pytest.raises(NetworkError, match="which is not a file in its folder"):
        load("hf:tiny/vit")
    assert not [line for line in hub.asked if "secret" in line or "passwd" in line]


def test_a_hostile_graph_of_the_hub_is_refused_as_any_other(hub):
    from onnx import TensorProto, helper

    image = helper.make_tensor_value_info("image", TensorProto.FLOAT, ["n", 3, "h", "w"])
    out = helper.make_tensor_value_info("out", TensorProto.INT64, None)
    graph = helper.make_graph([helper.make_node("NonZero", ["image"], ["out"])], "graph", [image], [out])
    hub.push("tiny/bad", repository(helper.make_model(graph).SerializeToString(), DINO))
    with pytest.raises(NetworkError, match="operation 'NonZero'"):
        load("hf:tiny/bad")


def test_the_graph_of_a_network_computes_what_the_network_does(hub):
    import onnxruntime

    hub.push("tiny/vit", repository(exported(vit(), "last_hidden_state", "logits", half=True), DINO))
    model, spec = graph_of("hf:tiny/vit")
    session = onnxruntime.InferenceSession(model.SerializeToString())
    (value,) = session.get_inputs()
    found = session.run(None, {value.name: spec.preprocessing(IMAGES)})[0]
    np.testing.assert_allclose(found.transpose(0, 2, 3, 1), load("hf:tiny/vit")(IMAGES), atol=1e-3)


# --- downloading ------------------------------------------------------------------------------------------------------


def test_the_name_is_pinned_to_a_commit_and_a_digest_and_needs_no_connection_afterwards(hub, monkeypatch):
    data = vit_file()
    commit = hub.push("tiny/vit", repository(data, DINO))
    _, name = load_pinned("hf:tiny/vit")
    assert name == f"hf:tiny/vit@{commit}/onnx/model.onnx?sha256={hashlib.sha256(data).hexdigest()}"
    hub.asked.clear()
    assert load_pinned(name)[1] == name
    assert hub.asked == []
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    assert load_pinned("hf:tiny/vit")[1] == name
    assert hub.asked == []
    with pytest.raises(NetworkError, match="tiny/other is not in the cache"):
        load("hf:tiny/other")
    assert hub.asked == []


def test_a_pinned_name_stays_what_it_was_when_the_branch_moves_on(hub):
    first = hub.push("tiny/vit", repository(vit_file(), DINO))
    old, name = load_pinned("hf:tiny/vit")
    second = hub.push("tiny/vit", repository(vit_file(registers=1), DINO))
    new, other = load_pinned("hf:tiny/vit@main")
    assert f"@{first}/" in name
    assert f"@{second}/" in other
    assert load(name).spec.fingerprint == old.spec.fingerprint != new.spec.fingerprint
    assert len(hub.downloads()) == 3  # two graphs; their settings are the same file


def test_files_are_downloaded_once(hub):
    hub.push("tiny/vit", repository(vit_file(), DINO))
    for _ in range(3):
        load("hf:tiny/vit")
    assert len(hub.downloads()) == 2
    assert not [line for line in hub.downloads() if "README" in line]


def test_a_file_that_was_changed_in_the_cache_or_is_another_one_is_noticed(hub, tmp_path):
    hub.push("tiny/vit", repository(vit_file(), DINO))
    _, name = load_pinned("hf:tiny/vit")
    path = next(tmp_path.rglob("snapshots/*/onnx/model.onnx"))
    blob = path.resolve()
    blob.write_bytes(vit_file(registers=1))
    for use in ("hf:tiny/vit", name):
        with pytest.raises(NetworkError, match="has the SHA-256 .*, expected"):
            load(use)
    path.unlink()
    path.write_bytes(blob.read_bytes())  # as on systems without links
    with pytest.raises(NetworkError, match="has the SHA-256 .*, expected"):
        load(name)
    path.unlink()
    blob.unlink()
    assert load_pinned(name)[1] == name
    with pytest.raises(NetworkError, match="expected 0000"):
        load(f"{name.partition('?')[0]}?sha256={'0' * 64}")


def test_a_gated_repository_says_what_to_do(hub):
    hub.push("tiny/gated", repository(vit_file(), DINO))
    hub.gated.add("tiny/gated")
    with pytest.raises(NetworkError, match="tiny/gated is gated"):
        load("hf:tiny/gated")
    hub.gated.clear()
    assert load("hf:tiny/gated").spec.dim == 24


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("hf:tiny/none", "no repository tiny/none"),
        ("hf:tiny/vit@v9", "tiny/vit has no revision 'v9'"),
        ("hf:tiny/vit/onnx/model_q4.onnx", "tiny/vit has no file onnx/model_q4.onnx.* onnx/model.onnx"),
        ("hf:tiny/text", "tiny/text has no ONNX file"),
        ("hf:tiny/many", "Its ONNX files are: a.onnx, b.onnx"),
        ("hf:tiny/bare", "not known how pixels become the input of tiny/bare"),
        ("hf:vit", "does not name a network of the hub"),
        ("hf:tiny/vit@/model.onnx", "does not name a network of the hub"),
        ("hf:tiny/../vit", "does not name a network of the hub"),
        ("hf:tiny/vit/model.bin", "does not name a network of the hub"),
        ("hf:tiny/vit?size=big", "whole number of pixels, got 'big'"),
        ("hf:tiny/vit?whole=no", "whole must be 'mean' or 'class'"),
        ("hf:tiny/vit?sha256=12", "64 hexadecimal digits"),
        ("hf:tiny/vit?colour=red", "'colour=red' is no option"),
        ("hf:tiny/vit?pixels=red", "pixels must be one of imagenet"),
    ],
)
def test_what_is_not_there_or_mistyped_is_said_in_one_sentence(hub, name, says):
    graph = vit_file()
    hub.push("tiny/vit", repository(graph, DINO))
    hub.push("tiny/text", {"README.md": b""})
    hub.push("tiny/many", {"a.onnx": graph, "b.onnx": graph})
    hub.push("tiny/bare", {"model.onnx": graph})
    with pytest.raises(NetworkError, match=says) as caught:
        load(name)
    assert len(str(caught.value).splitlines()) == 1


def test_a_repository_without_settings_is_told_how_pixels_become_its_input(hub):
    hub.push("tiny/bare", {"model.onnx": vit_file()})
    spec = load("hf:tiny/bare?pixels=imagenet&size=64").spec
    assert spec.preprocessing.mean == pytest.approx((123.675, 116.28, 103.53))


def test_the_image_tower_comes_before_a_graph_that_takes_text(hub):
    graph = vit_file()
    files = repository(b"not a graph", DINO) | {"onnx/vision_model.onnx": graph, "onnx/text_model.onnx": b""}
    hub.push("tiny/clip", files)
    assert "/onnx/vision_model.onnx?" in load("hf:tiny/clip").spec.name


def test_a_connection_that_breaks_leaves_nothing_half_behind(hub, quick, tmp_path):
    hub.push("tiny/vit", repository(vit_file(), DINO))
    hub.breaks = True
    with pytest.raises(NetworkError, match="cannot be read from the hub"):
        load("hf:tiny/vit")
    assert not list(tmp_path.rglob("snapshots/**/*.onnx"))
    hub.breaks = False
    assert load("hf:tiny/vit").spec.dim == 24


def test_without_a_connection_the_cache_is_used_and_else_the_reason_is_given(hub, quick, monkeypatch):
    hub.push("tiny/vit", repository(vit_file(), DINO))
    _, name = load_pinned("hf:tiny/vit")
    url = "http://127.0.0.1:9/{repo_id}/{revision}/{filename}"  # nobody listens there
    monkeypatch.setattr(huggingface_hub.constants, "HUGGINGFACE_CO_URL_TEMPLATE", url)
    assert load_pinned("hf:tiny/vit")[1] == name
    with pytest.raises(NetworkError, match="tiny/other .* cannot be read from the hub: .* Is there a connection"):
        load("hf:tiny/other")


def test_without_the_library_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(NetworkError, match=r"pip install 'patchvote\[hub\]'"):
        load("hf:tiny/other")


def test_no_command_overwrites_the_files_of_a_network(hub):
    hub.push("tiny/vit", repository(vit_file(), DINO))
    assert list(network_files("hf:tiny/vit")) == []  # looking for them downloads nothing
    assert hub.asked == []
    _, name = load_pinned("hf:tiny/vit")
    for use in (name, "hf:tiny/vit"):
        found = list(network_files(use))
        assert {path.name for path in found} >= {"model.onnx", "preprocessor_config.json"}
        assert all(path.is_file() for path in found)


def test_a_name_is_written_as_it_is_read():
    for name in ("hf:a/b", "hf:a/b@v1", "hf:a/b/x/y.onnx", "hf:a/b@v1/y.onnx?size=3&whole=class"):
        assert str(HubName.parse(name)) == name
