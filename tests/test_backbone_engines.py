"""Networks of other packages come in through entry points."""

from __future__ import annotations

import importlib.metadata
import sys
from pathlib import Path

import numpy as np
import pytest

from helpers.packages import install
from patchvote import Dense, Extractor, ImageClassifier, ModelError, NetworkError, PhotoError, Recipe
from patchvote.networks import EMBEDDED, graph_of, load
from patchvote.networks.names import network_files

COLOURS = '''
"""Describes every cell of 32 px by the mean of its colours, and by a constant."""

import hashlib

import numpy as np

from patchvote.networks import NetworkName, NetworkSpec, Preprocessing


class Colours:
    def __init__(self, name, power):
        weights = hashlib.sha256(str(power).encode()).hexdigest()
        self.spec = NetworkSpec(name, 4, 64, 32, Preprocessing(), "after", weights, "colours")
        self.power = power

    def __call__(self, images):
        n, height, width, _ = images.shape
        cells = images.reshape(n, height // 32, 32, width // 32, 32, 3).astype(np.float32) / 255
        mean = cells.mean(axis=(2, 4)) ** self.power
        return np.concatenate([mean, np.ones_like(mean[..., :1])], axis=-1)


def load(name, **settings):
    asked = NetworkName.parse(name, ("power",))
    return Colours(name, float(asked.options.get("power", 2 if asked.what == "square" else 1)))


WRONG = {
    "nchw": lambda outputs: outputs.transpose(0, 3, 1, 2),
    "fewer-features": lambda outputs: outputs[..., :3],
    "one-cell": lambda outputs: outputs[:, :1, :1],
    "many-cells": lambda outputs: np.repeat(np.repeat(outputs, 4, axis=1), 4, axis=2),
    "vectors": lambda outputs: outputs.mean(axis=(1, 2)),
    "one-image": lambda outputs: outputs[:1].repeat(3, axis=0),
    "list": lambda outputs: outputs.tolist(),
    "whole-numbers": lambda outputs: outputs.astype(np.int64),
    "nothing": lambda outputs: None,
    "error": lambda outputs: 1 / 0,
    "nan": lambda outputs: outputs * np.nan,
}


class Wrong(Colours):
    def __init__(self, name, what):
        super().__init__(name, 1.0)
        self.change = WRONG[what]

    def __call__(self, images):
        return self.change(super().__call__(images))


def wrong(name, **settings):
    return Wrong(name, NetworkName.parse(name).what)


def broken(name, **settings):
    raise ValueError("no colours today\\nand more lines")


def nothing(name, **settings):
    return "a network"
'''

ENTRY_POINTS = """
[patchvote.networks]
colours = colour_networks:load
broken = colour_networks:broken
nothing = colour_networks:nothing
wrong = colour_networks:wrong
gone = colour_networks:gone
efficientnet-lite0 = colour_networks:broken
torch = colour_networks:broken
"""

IMAGES = np.random.default_rng(0).integers(0, 256, (2, 64, 96, 3), dtype=np.uint8)


@pytest.fixture
def package(tmp_path, monkeypatch) -> Path:
    """A folder on Python's path in which another package is installed."""
    folder = install(tmp_path / "site", "colour_networks", COLOURS, ENTRY_POINTS)
    monkeypatch.syspath_prepend(folder)
    monkeypatch.setenv("PATCHVOTE_CACHE", str(tmp_path / "cache"))
    yield folder
    sys.modules.pop("colour_networks", None)


def test_a_network_of_another_package_is_loaded_by_its_name_and_options(package):
    plain, power = load("colours"), load("colours?power=3")
    np.testing.assert_allclose(power(IMAGES)[..., :3], plain(IMAGES)[..., :3] ** 3, rtol=1e-5)
    np.testing.assert_allclose(load("colours:square")(IMAGES)[..., :3], plain(IMAGES)[..., :3] ** 2, rtol=1e-5)
    assert plain.spec.fingerprint != power.spec.fingerprint
    assert load(f"{EMBEDDED[0]}+colours").spec.dim == 1280 + 4


def test_a_model_file_that_names_it_does_not_load_it_until_the_user_repeats_the_name(package, photo_folder, tmp_path):
    classifier = ImageClassifier(Recipe("colours", Dense((64,))), cache=False).fit(photo_folder)
    classifier.save(tmp_path / "m.patchvote")
    del sys.modules["colour_networks"]
    with pytest.raises(ModelError, match="names the network 'colours'.* it is not taken from a file"):
        ImageClassifier.load(tmp_path / "m.patchvote")
    with pytest.raises(NetworkError, match="it is not taken from a file"):
        Extractor(Recipe.from_json(classifier.model.recipe.to_json()))
    assert "colour_networks" not in sys.modules
    assert ImageClassifier.load(tmp_path / "m.patchvote", network="colours").model.recipe.network == "colours"


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("broken", r"the engine 'broken' .* cannot load 'broken': no colours today$"),
        ("gone:x", "the engine 'gone' .*gone"),
        ("nothing", "returned 'str' for 'nothing', which is no backbone"),
        ("colours?size=3", "'size=3' is no option"),
        ("colours?power", "'power' is no option"),
        ("coulours:square", "Did you mean 'colours'?"),
    ],
)
def test_what_goes_wrong_in_another_package_is_one_network_error(name, says, package):
    with pytest.raises(NetworkError, match=says):
        load(name)


def test_a_network_that_cannot_do_what_is_asked_says_so(package):
    with pytest.raises(NetworkError, match="colours can only be read 'after'"):
        load("colours", activation="before")
    with pytest.raises(NetworkError, match="colours has no graph in ONNX"):
        graph_of("colours")


def test_our_names_stay_ours_and_other_packages_are_not_looked_for_by_them(package, tmp_path, monkeypatch):
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda **_: pytest.fail("other packages were looked for"))
    assert load("efficientnet-lite0").spec.dim == 1280
    for name in ("torch:nothing", str(tmp_path / "what?is=this.onnx")):
        with pytest.raises(NetworkError):
            load(name)


def test_the_files_that_a_name_leads_to_are_found_by_its_parts(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = ["a.prototxt", "b.caffemodel", "m.binaryproto", "w.safetensors", "x+y.onnx", "odd?name.onnx"]
    for name in names:
        Path(name).touch()
    for network, files in (
        ("caffe:a.prototxt,b.caffemodel@fc7?mean=m.binaryproto&scale=2", names[:3]),
        ("torchvision:vgg16@fc7?weights=w.safetensors+caffe:a.prototxt,none@fc7", ["w.safetensors", "a.prototxt"]),
        ("x+y.onnx", ["x+y.onnx", "x+y.toml"]),
        ("odd?name.onnx", ["odd?name.onnx", "odd?name.toml"]),
        ("torch:os:abort", []),
    ):
        assert list(map(str, network_files(network))) == files


@pytest.mark.parametrize(
    "what",
    ["nchw", "fewer-features", "one-cell", "many-cells", "vectors", "one-image", "list", "whole-numbers", "nothing"],
)
def test_a_network_that_returns_something_else_than_its_specification_says_is_refused(package, what):
    with pytest.raises(NetworkError, match=rf"'wrong:{what}' returned .*, expected .* \(1, 8, 8, 4\)"):
        Extractor(Recipe(f"wrong:{what}", Dense((256,))))(IMAGES[0, :, :64])


def test_a_network_that_fails_ends_the_run_and_one_that_returns_nan_skips_the_photo(package, photo_folder):
    with pytest.raises(NetworkError, match="the network 'wrong:error' failed .*: ZeroDivisionError"):
        ImageClassifier(Recipe("wrong:error", Dense((64,))), cache=False).fit(photo_folder)
    with pytest.raises(PhotoError, match="'wrong:nan' describes it by NaN or infinity"):
        Extractor(Recipe("wrong:nan", Dense((64,))))(IMAGES[0])
