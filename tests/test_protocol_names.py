"""Names of networks and voters: each means one thing."""

from __future__ import annotations

import pytest

from experiments.stores import Stores, network_name
from experiments.voters import parse_voter
from patchvote.errors import PatchvoteError


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("torch:my.models:net", "torch:my.models:other"),
        ("torch:my.models:net", "torch:my-models:net"),
        ("caffe:deploy.prototxt,net.caffemodel@fc6", "caffe:deploy.prototxt,net.caffemodel@fc7"),
        ("caffe:d.prototxt,n.caffemodel@inception_3a/output", "caffe:d.prototxt,n.caffemodel@inception_4a/output"),
        ("timm:vit_small_patch14.dino", "timm:vit_small_patch14.augreg"),
        ("timm:resnet18", "timm:resnet18@layer3"),
        ("timm:one/resnet18", "timm:two/resnet18"),
        ("torchvision:vgg16?size=224", "torchvision:vgg16?size=448"),
        ("colours:hsv", "colours:lab"),  # of an engine that another package brings
    ],
)
def test_different_networks_have_different_names_and_stores(one, other, tmp_path):
    stores = Stores(tmp_path, {})
    assert stores.path("dense", one) != stores.path("dense", other)
    assert network_name(one) != network_name(other)
    for network in (one, other):
        path = stores.path("dense", network)
        assert path.parent == tmp_path  # a slash in a name makes no folder
        path.mkdir()  # and every system can have such a file
        assert network_name(network) == network  # nothing of a name is lost


def test_stores_of_embedded_networks_and_plain_files_are_where_they_were(tmp_path):
    stores = Stores(tmp_path, {})
    assert stores.path("dense", "efficientnet-lite0") == tmp_path / "dense@efficientnet-lite0.store"
    assert stores.path("patch", "some/folder/places.v2.onnx") == tmp_path / "patch@places.v2.store"


def test_names_in_results_tell_nothing_of_the_folders_of_this_machine():
    for network in (
        "/home/me/places.onnx",
        "caffe:/home/me/d.prototxt,/home/me/n.caffemodel@fc7?mean=1,2,3",
        "timm:resnet18?weights=/home/me/w.safetensors&size=64",
        "colours:/home/me/table",
    ):
        assert "home" not in network_name(f"efficientnet-lite0+{network}")
    assert network_name("timm:resnet18?weights=/home/me/w.safetensors&size=64") == (
        "timm:resnet18?weights=w.safetensors&size=64"
    )


def test_a_file_whose_name_has_a_plus_is_one_network(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "one+two.onnx").touch()
    assert network_name("one+two.onnx") == "one+two"


def test_bags_are_kept_in_the_cache_that_the_user_named(tmp_path, monkeypatch):
    monkeypatch.setenv("PATCHVOTE_CACHE", str(tmp_path))
    assert Stores.default_folder("scene15") == tmp_path / "experiments" / "scene15"


def test_a_bracket_that_is_not_closed_is_named():
    with pytest.raises(PatchvoteError, match="no closing bracket"):
        parse_voter("moment-svm(pairs=0")
