"""Networks by the name of a function of torch, and of libraries that may be absent."""

from __future__ import annotations

import os
import subprocess
import sys
import types
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from helpers import torch_models  # noqa: E402
from patchvote import Dense, Extractor, NetworkError, Patch, Recipe  # noqa: E402
from patchvote.networks import load  # noqa: E402

IMAGES = np.random.default_rng(0).integers(0, 256, (3, 64, 64, 3), dtype=np.uint8)


@pytest.fixture(scope="module", autouse=True)
def own_cache(tmp_path_factory):
    """One cache for the whole file: no network is converted twice."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATCHVOTE_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


def tensor(images: np.ndarray, mean: tuple = (100.0, 110.0, 120.0), scale: float = 50.0) -> torch.Tensor:
    return torch.from_numpy(((images - np.array(mean)) / scale).astype(np.float32)).permute(0, 3, 1, 2)


def test_fc6_and_fc7_before_and_after_their_activation():
    net = torch_models.alexnet().eval()
    with torch.no_grad():
        flat = torch.flatten(net.avgpool(net.features(tensor(IMAGES))), 1)
        fc6 = net.classifier[1](flat)
        fc7 = net.classifier[4](torch.relu(fc6))
    for layer, activation, expected in (
        ("fc6", "before", fc6),
        ("fc6", "after", torch.relu(fc6)),
        ("fc7", "before", fc7),
        ("fc7", "after", torch.relu(fc7)),
        ("classifier.5", "after", torch.relu(fc7)),
        ("classifier.5", "before", fc7),
    ):
        backbone = load(f"torch:helpers.torch_models:alexnet@{layer}", activation=activation)
        assert backbone.spec.stride is None
        assert (backbone.spec.dim, backbone.spec.size) == (expected.shape[1], 64)
        np.testing.assert_allclose(backbone(IMAGES), expected.numpy(), atol=1e-4)


def test_a_map_takes_images_of_any_size_and_activations_may_be_functions():
    net = torch_models.residual().eval()
    after = load("torch:helpers.torch_models:residual@last?size=64")
    before = load("torch:helpers.torch_models:residual@last?size=64", activation="before")
    assert (after.spec.dim, after.spec.stride, after.spec.fixed_size) == (10, 8, None)
    images = np.random.default_rng(1).integers(0, 256, (2, 64, 128, 3), dtype=np.uint8)
    with torch.no_grad():
        x = after.spec.preprocessing(images)
        y = torch.relu(net.stem(torch.from_numpy(x)))
        expected = net.last(torch.relu(y + net.inner(y))).permute(0, 2, 3, 1).numpy()
    np.testing.assert_allclose(before(images), expected, atol=1e-4)
    np.testing.assert_allclose(after(images), np.maximum(expected, 0), atol=1e-4)
    bag = Extractor(Recipe("torch:helpers.torch_models:residual@last?size=64", Dense(sides=(64,))))(images[0])
    assert len(bag.values) == 1 + 8 * 4


@pytest.mark.parametrize("kind", ["silu", "gelu", "relu"])
def test_an_activation_of_several_nodes_is_one_activation(kind):
    net = getattr(torch_models, kind)().eval()
    for activation in ("before", "after"):
        backbone = load(f"torch:helpers.torch_models:{kind}@layer?size=64", activation=activation)
        with torch.no_grad():
            expected = net.layer(net.stem(torch.from_numpy(backbone.spec.preprocessing(IMAGES))))
            expected = net.activation(expected.clone()) if activation == "after" else expected
        np.testing.assert_allclose(backbone(IMAGES), expected.permute(0, 2, 3, 1).numpy(), atol=1e-4)


def test_a_layer_is_read_as_it_answered_whatever_is_written_into_it_later():
    net = torch_models.in_place().eval()
    backbone = load("torch:helpers.torch_models:in_place@layer?size=64")
    with torch.no_grad():
        expected = net.layer(net.stem(torch.from_numpy(backbone.spec.preprocessing(IMAGES))))
    np.testing.assert_allclose(backbone(IMAGES), expected.permute(0, 2, 3, 1).numpy(), atol=1e-4)


def test_a_map_with_its_features_last_is_read_as_one():
    net = torch_models.channels_last().eval()
    backbone = load("torch:helpers.torch_models:channels_last?size=64")
    assert (backbone.spec.dim, backbone.spec.stride) == (24, 16)
    with torch.no_grad():
        expected = net(torch.from_numpy(backbone.spec.preprocessing(IMAGES)))
    np.testing.assert_allclose(backbone(IMAGES), expected.numpy(), atol=1e-4)


def test_the_stride_is_as_measured_and_no_power_of_two():
    backbone = load("torch:helpers.torch_models:patches_of_14?size=56")
    assert (backbone.spec.stride, backbone.spec.fixed_size) == (14, None)
    bag = Extractor(Recipe("torch:helpers.torch_models:patches_of_14?size=56", Dense(sides=(56, 112))))(
        np.zeros((60, 100, 3), np.uint8)
    )
    assert len(bag.values) == 1 + 4 * 2 + 8 * 5
    assert load("torch:helpers.torch_models:without_padding?size=64").spec.stride == 3


def test_a_layer_that_ends_with_an_activation_is_read_before_it():
    net = torch_models.without_padding().eval()
    backbone = load("torch:helpers.torch_models:without_padding@1?size=64", activation="before")
    with torch.no_grad():
        expected = net[0](torch.from_numpy(backbone.spec.preprocessing(IMAGES))).permute(0, 2, 3, 1).numpy()
    assert expected.min() < 0
    np.testing.assert_allclose(backbone(IMAGES), expected, atol=1e-4)


def test_the_first_convolution_tells_which_tokens_are_patches():
    backbone = load("torch:helpers.torch_models:few_tokens?size=64")  # nine tokens, of which four are places
    assert backbone(IMAGES).shape == (3, 2, 2, 16)
    assert np.abs(backbone(IMAGES)).max(axis=(0, 3)).min() > 0


def test_tokens_become_a_map_without_class_and_registers():
    net = torch_models.vit().eval()
    backbone = load("torch:helpers.torch_models:vit?size=64")
    assert (backbone.spec.dim, backbone.spec.stride, backbone.spec.fixed_size) == (16, 16, (64, 64))
    with torch.no_grad():
        tokens = net(torch.from_numpy(backbone.spec.preprocessing(IMAGES)))
    np.testing.assert_allclose(backbone(IMAGES).reshape(3, 16, 16), tokens[:, 3:].numpy(), atol=1e-4)


def test_a_transformer_looks_densely_at_the_one_size_it_takes():
    extractor = Extractor(Recipe("torch:helpers.torch_models:vit?size=64", Dense(sides=(64,))))
    bag = extractor(np.zeros((50, 90, 3), np.uint8))
    assert len(bag.values) == 1 + 16
    assert bag.boxes[1].tolist() == [0, 0, 0.25, 0.25]
    with pytest.raises(NetworkError, match="takes only images of 64 x 64"):
        Extractor(Recipe("torch:helpers.torch_models:vit?size=64", Dense(sides=(64, 128))))


def test_it_is_converted_once_and_then_needs_no_torch(monkeypatch):
    first = load("torch:helpers.torch_models:alexnet@fc6")
    code = """
import sys
sys.modules["torch"] = None
import numpy as np
from patchvote.networks import load
net = load("torch:helpers.torch_models:alexnet@fc6")
print(net.spec.fingerprint)
"""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(Path(__file__).parent), *filter(None, sys.path)]))
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert told.returncode == 0, told.stderr
    assert told.stdout.strip() == first.spec.fingerprint


@pytest.mark.parametrize(
    ("declared", "says"),
    [
        ({"std": (1, 1, 1)}, "unknown keys .'std'"),
        ({"mean": "much"}, "mean must be"),
        ({"scale": (1, 0, 1)}, "scale must not be 0"),
        ({"size": "x"}, "size must be a whole number"),
        (224, "cannot be made"),
    ],
)
def test_preprocessing_that_cannot_be_meant_is_refused(declared, says, monkeypatch):
    monkeypatch.setattr(torch_models.SmallAlexNet, "preprocessing", declared)
    with pytest.raises(NetworkError, match=says):
        load("torch:helpers.torch_models:alexnet@features.3")


def test_preprocessing_may_be_one_number_or_an_array(monkeypatch):
    declared = {"mean": 127.5, "scale": np.array([50, 60, 70], np.float32)}
    monkeypatch.setattr(torch_models.SmallAlexNet, "preprocessing", declared)
    spec = load("torch:helpers.torch_models:alexnet@features.0?size=64").spec
    assert (spec.preprocessing.mean, spec.preprocessing.scale) == ((127.5, 127.5, 127.5), (50, 60, 70))


def test_weights_come_from_safetensors_only(tmp_path):
    from safetensors.torch import save_file

    net = torch_models.alexnet()
    with torch.no_grad():
        net.classifier[1].bias.add_(1)
    save_file(net.state_dict(), tmp_path / "w.safetensors")
    plain = load("torch:helpers.torch_models:alexnet@fc6", activation="before")
    changed = load(f"torch:helpers.torch_models:alexnet@fc6?weights={tmp_path / 'w.safetensors'}", activation="before")
    np.testing.assert_allclose(changed(IMAGES), plain(IMAGES) + 1, atol=1e-4)
    torch.save(net.state_dict(), tmp_path / "w.pth")
    with pytest.raises(NetworkError, match="may run any code when it is read"):
        load(f"torch:helpers.torch_models:alexnet@fc6?weights={tmp_path / 'w.pth'}")
    save_file({"nothing": torch.zeros(1)}, tmp_path / "other.safetensors")
    with pytest.raises(NetworkError, match="do not fit") as caught:
        load(f"torch:helpers.torch_models:alexnet@fc6?weights={tmp_path / 'other.safetensors'}")
    assert "\n" not in str(caught.value)
    content = (tmp_path / "w.safetensors").read_bytes()
    (tmp_path / "half.safetensors").write_bytes(content[: len(content) // 2])
    with pytest.raises(NetworkError, match="weights do not fit"):
        load(f"torch:helpers.torch_models:alexnet@fc6?weights={tmp_path / 'half.safetensors'}")


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("torch:helpers.torch_models", "Names have the form torch:package.module:function@layer"),
        ("torch:no_such_module_here:f", "no module 'no_such_module_here'"),
        ("torch:helpers.torch_models:NOT_A_FUNCTION", "has no function 'NOT_A_FUNCTION'"),
        ("torch:helpers.torch_models:alexnet@fc9", "there is no layer 'fc9'"),
        ("torch:helpers.torch_models:residual@fc6", "no classifier with two linear layers"),
        ("torch:helpers.torch_models:vit?size=48", "cannot take images of 48 x 48 pixels"),
        ("torch:helpers.torch_models:alexnet@fc6?color=BGR", "'color=BGR' is no option"),
        ("torch:helpers.torch_models:alexnet@fc6?size=big", "size must be a whole number"),
        ("torch:helpers.torch_models:alexnet@fc6?weights=none.safetensors", "there is no file none.safetensors"),
        ("torch:helpers.torch_models:broken", "no weights here"),
        ("torch:os:getcwd", "no module of torch"),
    ],
)
def test_names_that_mean_nothing_are_answered_clearly(name, words):
    with pytest.raises(NetworkError) as caught:
        load(name)
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("name", "package", "words"),
    [
        ("timm:resnet18?pretrained=yes", "timm", "pip install timm"),
        ("torchvision:vgg16@fc7?pretrained=yes", "torchvision", "pip install torchvision"),
        ("torch:helpers.torch_models:vit", "torch", "pip install 'patchvote[torch]'"),
    ],
)
def test_a_library_that_is_absent_or_broken_is_told_in_one_line(name, package, words, monkeypatch):
    monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.setitem(sys.modules, f"{package}.models", None)
    with pytest.raises(NetworkError) as caught:
        load(name)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_package_that_cannot_be_imported_is_named_with_the_reason(tmp_path, monkeypatch):
    (tmp_path / "needs_torch").mkdir()
    (tmp_path / "needs_torch" / "__init__.py").write_text("import torch")
    (tmp_path / "needs_torch" / "models.py").write_text("def net(): ...")
    (tmp_path / "needs_more.py").write_text("import no_such_package_here")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(NetworkError, match="needs_more cannot be imported: No module named 'no_such_package_here'"):
        load("torch:needs_more:net")
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(NetworkError, match=r"pip install 'patchvote\[torch\]'"):
        load("torch:needs_torch.models:net")


@pytest.mark.parametrize("engine", ["timm", "torchvision"])
def test_a_network_of_a_library_without_weights_is_refused(engine, monkeypatch):
    library = types.ModuleType(engine)
    library.is_model = library.list_models = lambda *_: ["net"]
    monkeypatch.setitem(sys.modules, engine, library)
    monkeypatch.setitem(sys.modules, f"{engine}.models", library)
    with pytest.raises(NetworkError, match=f"{engine}:net would have random weights"):
        load(f"{engine}:net")


def test_patches_go_through_a_network_that_gives_vectors():
    recipe = Recipe("torch:helpers.torch_models:alexnet@fc7", Patch(count=8, levels=1))
    bag = Extractor(recipe)(np.random.default_rng(0).integers(0, 255, (100, 120, 3), dtype=np.uint8))
    assert bag.dim == 16
