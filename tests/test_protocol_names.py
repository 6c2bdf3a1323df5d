"""Names of networks and voters: each means one thing, and what an earlier version wrote stays readable."""

from __future__ import annotations

import pytest
from patchvote.protocols.names import network_name
from patchvote.protocols.results import Results, Run
from patchvote.protocols.stores import Stores, default_bags_folder
from patchvote.protocols.voters import VOTERS, VoterKind, make_voter, parse_voter
from sklearn.base import BaseEstimator

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
        "caffe:/home/me/d.prototxt,/home/me/n.caffemodel@fc7?mean=/home/me/m.binaryproto",
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
    assert [network for network, _ in Stores(tmp_path, {}).missing("dense", "one+two.onnx", [])] == ["one+two.onnx"]


def test_bags_are_kept_in_the_cache_that_the_user_named(tmp_path, monkeypatch):
    monkeypatch.setenv("PATCHVOTE_CACHE", str(tmp_path))
    assert default_bags_folder("scene15") == tmp_path / "protocols" / "scene15"


# --- settings that had other names ------------------------------------------------------------------------------------


class Renamed(BaseEstimator):
    """A voter whose settings have today's names."""

    def __init__(self, n_prototypes=10, alpha=1e-4, q=2.0):
        self.n_prototypes, self.alpha, self.q = n_prototypes, alpha, q


class Unrenamed(BaseEstimator):
    """A voter whose settings have the names of before."""

    def __init__(self, prototypes=10, lam=1e-4, q=2.0):
        self.prototypes, self.lam, self.q = prototypes, lam, q


@pytest.fixture
def renamed(monkeypatch) -> None:
    monkeypatch.setitem(VOTERS, "snbnl", VoterKind("sNBNL", Renamed, {}, lambda *_: 0.0))


def test_settings_are_understood_by_the_names_they_had(renamed):
    assert parse_voter("snbnl(prototypes=1,lam=0,q=3)") == ("snbnl", {"n_prototypes": 1, "alpha": 0, "q": 3})
    assert make_voter("snbnl(prototypes=1)", {"snbnl": {"lam": 0.5}}).get_params() == {
        "n_prototypes": 1,
        "alpha": 0.5,
        "q": 2.0,
    }
    with pytest.raises(PatchvoteError, match="snbnl has no setting 'prototipes'. Did you mean 'n_prototypes'"):
        parse_voter("snbnl(prototipes=1)")


def test_a_voter_that_still_has_the_old_name_gets_it(monkeypatch):
    monkeypatch.setitem(VOTERS, "snbnl", VoterKind("sNBNL", Unrenamed, {}, lambda *_: 0.0))
    assert parse_voter("snbnl(prototypes=1)") == ("snbnl", {"prototypes": 1})


def test_results_under_an_old_name_are_found_under_the_new_one_and_gone_on_with(renamed, tmp_path):
    old, new = (Run("p", "s", voter, "dense", "n") for voter in ("snbnl(prototypes=1)", "snbnl(n_prototypes=1)"))
    results = Results(tmp_path)
    results.add(old, {"settings": {"prototypes": 1, "lam": 1e-4, "q": 2.0}}, {"pair": None, "split": 1})
    now = {"settings": {"n_prototypes": 1, "alpha": 1e-4, "q": 2.0, "fresh": None}}
    assert results.done(new) == {(None, 1)}
    results.add(new, now, {"pair": None, "split": 2})
    ((run, kept),) = results.all("p")
    assert run == old  # a run keeps the name that it began with
    assert [cell["split"] for cell in kept["cells"]] == [1, 2]
    with pytest.raises(PatchvoteError, match=r"made with other settings: alpha was 0.0001, is 0.5"):
        results.check(new, {"settings": now["settings"] | {"alpha": 0.5}})


def test_a_bracket_that_is_not_closed_is_named():
    with pytest.raises(PatchvoteError, match="no closing bracket"):
        parse_voter("moment-svm(pairs=0")
