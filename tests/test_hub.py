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
from huggingface_hub import file_download
from huggingface_hub.utils import _http

from helpers.hub_networks import DINO, TIMM, Only, convnet, exported, repository, vit, vit_file
from patchvote import Dense, Extractor, NetworkError, Recipe
from patchvote.networks import load, load_pinned
from patchvote.networks.hub import described, read_settings
from patchvote.networks.names import CachedName

IMAGES = np.random.default_rng(0).integers(0, 256, (3, 64, 96, 3), dtype=np.uint8)
SQUARE = IMAGES[:, :, :64]
BOTH = "last_hidden_state", "logits"


@pytest.fixture
def tiny(hub) -> str:
    """A network of the hub: a tiny transformer."""
    hub.push("tiny/vit", repository(vit_file(), DINO))
    return "hf:tiny/vit"


# --- descriptors ------------------------------------------------------------------------------------------------------


def reference(net, images: np.ndarray, registers: int = 0) -> np.ndarray:
    """What the module of torch computes: the map of a convolutional network, or the tokens of patches as a map."""
    mean, deviation = (0.5, 0.5) if hasattr(net, "features") else (DINO["image_mean"], DINO["image_std"])
    x = (torch.from_numpy(images).float() / 255 - torch.tensor(mean)) / torch.tensor(deviation)
    with torch.no_grad():
        if hasattr(net, "features"):
            return net.features(x.permute(0, 3, 1, 2)).movedim(1, -1).numpy()
        tokens = net.tokens(x.permute(0, 3, 1, 2))[:, 1 + registers :]
    return tokens.unflatten(1, [side // 16 for side in images.shape[1:3]]).numpy()


@pytest.mark.parametrize(
    ("net", "outputs", "images", "registers"),
    [
        (vit(), BOTH, IMAGES, 0),
        (vit(registers=4), BOTH, IMAGES, 4),
        (vit(free=False), BOTH, SQUARE, 0),  # for one size only
        (vit(registers=1), ("logits",), IMAGES, 1),  # the tokens from which a classifier takes the class token
        (convnet(), ("logits",), IMAGES, 0),  # the map that a classifier pools
        (vit(token=False), ("last_hidden_state",), IMAGES, -1),  # tokens of patches alone
    ],
)
def test_descriptors_are_those_that_the_network_computes_of_its_patches(hub, net, outputs, images, registers):
    module = Only(net, BOTH.index(outputs[0])) if len(outputs) == 1 and hasattr(net, "tokens") else net
    settings = TIMM if hasattr(net, "features") else DINO
    hub.push("tiny/net", repository(exported(module, *outputs), settings))
    backbone, expected = load("hf:tiny/net"), reference(net, images, registers)
    assert (backbone.spec.dim, backbone.spec.stride, backbone.spec.size) == (expected.shape[-1], 16, 64)
    np.testing.assert_allclose(backbone(images), expected, atol=1e-4)


def test_a_float16_file_gives_nearly_the_same_descriptors(hub):
    net = vit()
    hub.push("tiny/vit", repository(exported(net, *BOTH, half=True), DINO))
    found = load("hf:tiny/vit")(SQUARE)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, reference(net, SQUARE), atol=1e-2)


def test_an_int8_file_describes_an_image_alike_whatever_else_is_in_its_batch(hub, tmp_path):
    from onnxruntime.quantization import QuantType, quantize_dynamic

    (tmp_path / "a.onnx").write_bytes(vit_file())
    quantize_dynamic(tmp_path / "a.onnx", tmp_path / "b.onnx", weight_type=QuantType.QUInt8)
    hub.push("tiny/vit", repository((tmp_path / "b.onnx").read_bytes(), DINO, "onnx/model_int8.onnx"))
    backbone = load("hf:tiny/vit")
    together = backbone(SQUARE)
    for index in range(3):
        np.testing.assert_array_equal(together[index], backbone(SQUARE[index : index + 1])[0])
    assert np.corrcoef(together.ravel(), reference(vit(), SQUARE).ravel())[0, 1] > 0.98


def test_a_network_that_allows_other_sizes_looks_at_two_scales_and_another_at_one(hub, tiny):
    hub.push("tiny/fixed", repository(vit_file(free=False), DINO))
    assert Extractor(tiny).recipe.sampling == Dense()
    one = Extractor("hf:tiny/fixed")
    assert (one.recipe.sampling, len(one(IMAGES[0]).values)) == (Dense(sides=(64,)), 1 + 16)
    with pytest.raises(NetworkError, match="one scale only"):
        Extractor(Recipe("hf:tiny/fixed"))


def test_among_several_outputs_the_user_says_which(hub):
    class Two(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.net = convnet()

        def forward(self, x):
            return torch.relu(self.net.stem(x)), self.net.features(x)

    hub.push("tiny/two", repository(exported(Two(), "early", "late"), TIMM))
    assert (load("hf:tiny/two?output=early").spec.stride, load("hf:tiny/two?output=late").spec.stride) == (4, 16)
    for name, says in (("hf:tiny/two", r"\(early, late\)"), ("hf:tiny/two?output=none", "no tensor 'none'")):
        with pytest.raises(NetworkError, match=says):
            load(name)


# --- downloading ------------------------------------------------------------------------------------------------------


def test_the_name_is_pinned_to_a_commit_and_a_digest_and_needs_no_connection_afterwards(hub, tiny, monkeypatch):
    name = load_pinned(tiny)[1]
    assert len(hub.downloads()) == 2  # the graph and its settings
    digest = hashlib.sha256(vit_file()).hexdigest()
    assert name == f"{tiny}@{hub.heads['tiny/vit']['main']}/onnx/model.onnx?sha256={digest}"
    load(tiny)
    assert len(hub.downloads()) == 2
    hub.asked.clear()
    assert load_pinned(name)[1] == name
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    assert load_pinned(tiny)[1] == name
    with pytest.raises(NetworkError, match="tiny/other is not in the cache"):
        load("hf:tiny/other")
    assert hub.asked == []
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
    hub.push("tiny/vit", repository(vit_file(registers=1), DINO))  # the branch moves on
    old, new = load(name), load(f"{tiny}@main")
    assert old.spec.fingerprint != new.spec.fingerprint
    assert old.spec.name != new.spec.name


def test_a_file_that_was_changed_in_the_cache_or_is_another_one_is_noticed(tiny, tmp_path):
    name = load_pinned(tiny)[1]
    path = next(tmp_path.rglob("snapshots/*/onnx/model.onnx"))
    path.resolve().write_bytes(vit_file(registers=1))
    with pytest.raises(NetworkError, match="has the SHA-256 .*, expected"):
        load(name)
    path.resolve().unlink()
    path.unlink()
    assert load_pinned(name)[1] == name
    with pytest.raises(NetworkError, match="expected 0000"):
        load(f"{name.partition('?')[0]}?sha256={'0' * 64}")


def test_weights_in_a_file_of_their_own_are_downloaded_with_the_graph(hub, tmp_path):
    settings = {"save_as_external_data": True, "location": "model.onnx_data", "size_threshold": 0}
    onnx.save_model(onnx.load_from_string(vit_file()), tmp_path / "model.onnx", **settings)
    files = {f"onnx/{name}": (tmp_path / name).read_bytes() for name in ("model.onnx", "model.onnx_data")}
    hub.push("tiny/vit", repository(files["onnx/model.onnx"], DINO) | files)
    backbone, name = load_pinned("hf:tiny/vit")
    np.testing.assert_allclose(backbone(SQUARE), reference(vit(), SQUARE), atol=1e-4)
    hub.asked.clear()
    np.testing.assert_array_equal(load(CachedName(name))(SQUARE), backbone(SQUARE))
    next(tmp_path.rglob("snapshots/*/onnx/model.onnx_data")).unlink()
    with pytest.raises(NetworkError, match="onnx/model.onnx_data of tiny/vit is not in the cache"):
        load(CachedName(name))
    assert hub.asked == []
    assert load(name).spec.fingerprint == backbone.spec.fingerprint


@pytest.mark.parametrize("location", ["../../../../secret", "/etc/passwd", "../config.json"])
def test_weights_outside_of_the_snapshot_are_refused_and_nothing_is_asked_for(hub, location):
    model = onnx.load_from_string(vit_file())
    tensor = model.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = onnx.TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value=location)
    hub.push("tiny/vit", repository(model.SerializeToString(), DINO))
    with pytest.raises(NetworkError, match="which is not a file in its folder"):
        load("hf:tiny/vit")
    assert not [line for line in hub.asked if "secret" in line or "passwd" in line]


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("hf:tiny/none", "no repository tiny/none"),
        ("hf:tiny/gated", "tiny/gated, or it is private or gated"),
        ("hf:tiny/vit@v9", "tiny/vit has no revision 'v9'"),
        ("hf:tiny/vit/onnx/model_q4.onnx", "tiny/vit has no file onnx/model_q4.onnx"),
        ("hf:tiny/text", "tiny/text has no ONNX file"),
        ("hf:tiny/many", "Its ONNX files are: a.onnx, b.onnx"),
        ("hf:tiny/bare", "not known how pixels become the input of tiny/bare"),
        ("hf:tiny/../vit", "does not name a network of the hub"),
        ("hf:tiny/vit/model.bin", "does not name a network of the hub"),
        ("hf:tiny/vit?size=big", "whole number of pixels"),
        ("hf:tiny/vit?sha256=12", "64 hexadecimal digits"),
        ("hf:tiny/vit?colour=red", "is no option"),
        ("hf:tiny/vit?pixels=red", "pixels must be one of imagenet"),
    ],
)
def test_what_is_not_there_or_mistyped_is_refused_in_one_line(hub, tiny, name, says):
    graph = vit_file()
    hub.push("tiny/gated", repository(graph, DINO))
    hub.gated.add("tiny/gated")
    hub.push("tiny/text", {"README.md": b""})
    hub.push("tiny/many", {"a.onnx": graph, "b.onnx": graph})
    hub.push("tiny/bare", {"model.onnx": graph})
    with pytest.raises(NetworkError, match=says) as caught:
        load(name)
    assert len(str(caught.value).splitlines()) == 1


def test_of_two_graphs_the_tower_of_images_is_read_and_without_settings_the_user_says_how(hub):
    hub.push(
        "tiny/clip", {"onnx/vision_model.onnx": vit_file(), "onnx/text_model.onnx": b"", "model.onnx": b"no graph"}
    )
    spec = load("hf:tiny/clip?pixels=imagenet&size=64").spec
    assert "/onnx/vision_model.onnx?" in spec.name
    assert spec.preprocessing.mean == pytest.approx((123.675, 116.28, 103.53))


def test_without_a_connection_the_cache_is_used_and_else_the_reason_is_given(tiny, monkeypatch):
    for module in (file_download, _http):  # no pauses between attempts of the library
        monkeypatch.setattr(module.time, "sleep", lambda _: None)
    name = load_pinned(tiny)[1]
    url = "http://127.0.0.1:9/{repo_id}/{revision}/{filename}"  # nobody listens there
    monkeypatch.setattr(huggingface_hub.constants, "HUGGINGFACE_CO_URL_TEMPLATE", url)
    assert load_pinned(tiny)[1] == name
    with pytest.raises(NetworkError, match="tiny/other .* cannot be read from the hub: .* Is there a connection"):
        load("hf:tiny/other/model.onnx")


def test_without_the_library_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(NetworkError, match=r"pip install 'patchvote\[hub\]'"):
        load("hf:tiny/other")


# --- how pixels become the input --------------------------------------------------------------------------------------

IMAGENET = {"image_mean": [0.485, 0.456, 0.406], "image_std": [0.229, 0.224, 0.225]}
HALF = {"image_mean": [0.5] * 3, "image_std": [0.5] * 3}
CLIP = {"crop_size": 224, "do_center_crop": True, "size": 240, **IMAGENET}
DINOV2 = {
    "crop_size": {"height": 224, "width": 224},
    "do_center_crop": True,
    "do_rescale": True,
    "rescale_factor": 0.00392156862745098,
    "size": {"shortest_edge": 256},
    **IMAGENET,
}
MOBILEVIT = {
    "do_center_crop": True,
    "crop_size": {"height": 256, "width": 256},
    "do_flip_channel_order": True,
    "do_normalize": False,
}
RAW = {"do_rescale": False, "image_mean": 127.5, "image_std": 127.5, "size": 64}
VIT = {"do_normalize": True, "size": {"height": 256, "width": 256}, **HALF}
OFFSET = {**VIT, "rescale_factor": 1 / 127.5, "rescale_offset": True, "image_mean": 0.0, "image_std": 1.0}


def imagenet(x):
    return (x / 255 - IMAGENET["image_mean"]) / IMAGENET["image_std"]


def half(x):
    return x / 127.5 - 1


@pytest.mark.parametrize(
    ("preprocessor", "config", "size", "reference"),
    [
        (CLIP, {}, 224, imagenet),
        (DINOV2, {}, 224, imagenet),
        (VIT, {}, 256, half),
        (MOBILEVIT, {}, 256, lambda x: x[..., ::-1] / 255),
        (RAW, {}, 64, half),
        (OFFSET, {}, 256, half),
        ({}, TIMM, 64, half),
        (CLIP, TIMM, 64, half),
    ],
)
def test_the_forms_of_the_hub_give_the_input_that_their_library_computes(preprocessor, config, size, reference):
    settings = described(preprocessor, config, "net")
    assert settings.size == size
    expected = reference(SQUARE.astype(np.float64)).transpose(0, 3, 1, 2)
    np.testing.assert_allclose(settings.preprocessing("NCHW")(SQUARE), expected, atol=1e-5)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"image_mean": None}, "not known how pixels become"),
        ({"image_mean": "x" * 10_000}, "image_mean must be"),
        ({"image_std": [10**400] * 3}, "image_std must be"),
        ({"image_std": 0}, "scale must not be 0"),
        ({"rescale_factor": 0}, "rescale_factor must be a number above 0"),
        ({"size": {"height": 100, "width": 200}}, "must be square"),
        ({"size": 10**9}, "size must be a whole number"),
    ],
)
def test_settings_that_cannot_be_right_are_refused(change, says, tmp_path):
    with pytest.raises(NetworkError, match=says) as caught:
        described({**VIT, **change}, {}, "net").preprocessing("NCHW")
    assert len(str(caught.value)) < 500
    for content in ("[1]", "[" * 100_000):
        (tmp_path / "preprocessor_config.json").write_text(content)
        with pytest.raises(NetworkError, match="is not a table in JSON"):
            read_settings(tmp_path / "preprocessor_config.json")
