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

from safetensors.torch import save_file  # noqa: E402

from helpers import torch_models  # noqa: E402
from patchvote import Dense, Extractor, NetworkError, Patch, Recipe  # noqa: E402
from patchvote.networks import load  # noqa: E402

IMAGES = np.random.default_rng(0).integers(0, 256, (3, 64, 64, 3), dtype=np.uint8)
WIDE = np.random.default_rng(1).integers(0, 256, (2, 64, 128, 3), dtype=np.uint8)
PLACE = "torch:helpers.torch_models:"


@pytest.fixture(scope="module", autouse=True)
def own_cache(tmp_path_factory):
    """One cache for the whole file: no network is converted twice."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATCHVOTE_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


def fc6(net, x):
    return net.classifier[1](torch.flatten(net.avgpool(net.features(x)), 1))


def fc7(net, x):
    return net.classifier[4](torch.relu(fc6(net, x)))


def last(net, x):
    y = torch.relu(net.stem(x))
    return net.last(torch.relu(y + net.inner(y)))


def layer(net, x):
    return net.layer(net.stem(x))


@pytest.mark.parametrize(
    ("name", "activation", "reference", "images"),
    [
        ("alexnet@fc6", "before", fc6, IMAGES),
        ("alexnet@fc7", "before", fc7, IMAGES),
        ("alexnet@fc7", "after", lambda net, x: torch.relu(fc7(net, x)), IMAGES),
        ("alexnet@classifier.5", "before", fc7, IMAGES),
        # Activations that are functions, and images of another size than the network was converted with.
        ("residual@last?size=64", "before", last, WIDE),
        ("residual@last?size=64", "after", lambda net, x: torch.relu(last(net, x)), WIDE),
        # One activation of several nodes.
        *((f"{kind}@layer?size=64", "before", layer, IMAGES) for kind in ("silu", "gelu", "relu")),
        *(
            (f"{kind}@layer?size=64", "after", lambda net, x: net.activation(layer(net, x).clone()), IMAGES)
            for kind in ("silu", "gelu", "relu")
        ),
        ("in_place@layer?size=64", "after", layer, IMAGES),  # whatever is written into it later
        ("channels_last?size=64", "after", lambda net, x: net(x).permute(0, 3, 1, 2), IMAGES),
        ("without_padding@1?size=64", "before", lambda net, x: net[0](x), IMAGES),  # the layer ends with an activation
        ("vit?size=64", "after", lambda net, x: net(x)[:, 3:].transpose(1, 2).unflatten(2, (4, 4)), IMAGES),
    ],
)
def test_descriptors_are_what_the_module_computes(name, activation, reference, images):
    net = getattr(torch_models, name.partition("@")[0].partition("?")[0])().eval()
    backbone = load(PLACE + name, activation=activation)
    with torch.no_grad():
        expected = reference(net, torch.from_numpy(backbone.spec.preprocessing(images)))
    expected = expected.movedim(1, -1).numpy()
    assert backbone.spec.dim == expected.shape[-1]
    np.testing.assert_allclose(backbone(images), expected, atol=1e-4)


@pytest.mark.parametrize(
    ("name", "size", "stride", "fixed", "cells"),
    [
        ("residual@last?size=64", 64, 8, None, 8 * 8 + 4 * 8),
        ("channels_last?size=64", 64, 16, None, 4 * 4 + 2 * 4),
        ("patches_of_14?size=56", 56, 14, None, 4 * 4 + 2 * 4),  # no power of two
        ("without_padding?size=64", 64, 3, None, 18 * 18 + 8 * 18),
        ("few_tokens?size=64", 64, 32, (64, 64), 2 * 2),  # nine tokens, of which four are places
        ("vit?size=64", 64, 16, (64, 64), 4 * 4),
    ],
)
def test_size_and_stride_are_measured_and_say_where_descriptors_are(name, size, stride, fixed, cells):
    extractor = Extractor(Recipe(PLACE + name, Dense(sides=(size,))))
    spec = extractor.backbone.spec
    assert (spec.size, spec.stride, spec.fixed_size) == (size, stride, fixed)
    bags = [extractor(np.zeros((64, side, 3), np.uint8)) for side in ((64,) if fixed else (64, 128))]
    assert sum(len(bag.values) - 1 for bag in bags) == cells


def test_a_network_for_one_size_takes_no_other_and_one_of_vectors_takes_patches():
    with pytest.raises(NetworkError, match="takes only images of 64 x 64"):
        Extractor(Recipe(f"{PLACE}vit?size=64", Dense(sides=(64, 128))))
    assert Extractor(Recipe(f"{PLACE}alexnet@fc7", Patch(count=8, levels=1)))(IMAGES[0]).dim == 16


def test_it_is_converted_once_and_then_needs_no_torch(monkeypatch):
    first = load(f"{PLACE}alexnet@fc6")
    code = (
        "import sys; sys.modules['torch'] = None\n"
        f"from patchvote.networks import load; print(load({PLACE + 'alexnet@fc6'!r}).spec.fingerprint)"
    )
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(Path(__file__).parent), *filter(None, sys.path)]))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (done.stdout.strip(), done.returncode) == (first.spec.fingerprint, 0), done.stderr


@pytest.mark.parametrize(
    ("declared", "says"), [({"std": (1, 1, 1)}, "std"), ({"mean": "much"}, "mean"), ({"scale": (1, 0, 1)}, "scale")]
)
def test_preprocessing_that_cannot_be_meant_is_refused(declared, says, monkeypatch):
    monkeypatch.setattr(torch_models.SmallAlexNet, "preprocessing", declared)
    with pytest.raises(NetworkError, match=says):
        load(f"{PLACE}alexnet@features.3")


def test_weights_come_from_safetensors_only(tmp_path):
    def with_weights(file: str):
        return load(f"{PLACE}alexnet@fc6?weights={tmp_path / file}", activation="before")

    net = torch_models.alexnet()
    with torch.no_grad():
        net.classifier[1].bias.add_(1)
    save_file(net.state_dict(), tmp_path / "w.safetensors")
    plain = load(f"{PLACE}alexnet@fc6", activation="before")
    np.testing.assert_allclose(with_weights("w.safetensors")(IMAGES), plain(IMAGES) + 1, atol=1e-4)
    torch.save(net.state_dict(), tmp_path / "w.pth")
    save_file({"nothing": torch.zeros(1)}, tmp_path / "other.safetensors")
    (tmp_path / "half.safetensors").write_bytes((tmp_path / "w.safetensors").read_bytes()[:5000])
    for file, says in (
        ("w.pth", "may run any code"),
        ("other.safetensors", "not fit"),
        ("half.safetensors", "not fit"),
    ):
        with pytest.raises(NetworkError, match=says):
            with_weights(file)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("torch:helpers.torch_models", "Names have the form torch:package.module:function@layer"),
        ("torch:no_such_module_here:f", "no module 'no_such_module_here'"),
        (f"{PLACE}NOT_A_FUNCTION", "has no function 'NOT_A_FUNCTION'"),
        (f"{PLACE}alexnet@fc9", "there is no layer 'fc9'"),
        (f"{PLACE}residual@fc6", "no classifier with two linear layers"),
        (f"{PLACE}vit?size=48", "cannot take images of 48 x 48 pixels"),
        (f"{PLACE}alexnet@fc6?color=BGR", "'color=BGR' is no option"),
        (f"{PLACE}broken", "no weights here"),
        ("torch:os:getcwd", "no module of torch"),
    ],
)
def test_names_that_mean_nothing_are_refused(name, words):
    with pytest.raises(NetworkError, match=words):
        load(name)


@pytest.mark.parametrize(
    ("name", "package", "words"),
    [
        ("timm:resnet18?pretrained=yes", "timm", "pip install timm"),
        ("torchvision:vgg16@fc7?pretrained=yes", "torchvision", "pip install torchvision"),
        (f"{PLACE}vit", "torch", "pip install 'patchvote[torch]'"),
        ("torch:needs_more:net", "no_such_package_here", "needs_more cannot be imported"),
    ],
)
def test_a_library_that_is_absent_or_broken_is_named_in_one_line(name, package, words, tmp_path, monkeypatch):
    (tmp_path / "needs_more.py").write_text("import no_such_package_here")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.setitem(sys.modules, f"{package}.models", None)
    with pytest.raises(NetworkError) as caught:
        load(name)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_network_of_a_library_without_weights_is_refused(monkeypatch):
    library = types.ModuleType("timm")
    library.is_model = lambda *_: True
    monkeypatch.setitem(sys.modules, "timm", library)
    with pytest.raises(NetworkError, match="timm:net would have random weights"):
        load("timm:net")
