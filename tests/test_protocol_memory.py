"""A protocol keeps within its memory: what does not fit is read from the store as it is needed."""

from __future__ import annotations

import re
import shutil

import numpy as np
import pytest
from patchvote.protocols import Selection, run_protocol
from patchvote.protocols.baselines import pooled
from patchvote.protocols.joined_store import JoinedStore
from patchvote.protocols.results import Results

from patchvote import Bags, Dense, Extractor, Recipe, Store, fill, find_photos
from patchvote.models import choose
from patchvote.voters import adapted, bag_svm, base, moment_svm

OWN = """
title = "Textures"
source = "us"
layout = "folders"
voters = ["snbnl(block=20,min_steps=20)", "bag-svm", "product", "whole-svm", "mean-svm", "mop(features=4,centres=4)"]
recipes = ["dense-96"]

[[settings]]
name = "random"
draw = "random"
splits = 1
train = 6
test = 4
"""
DOMAINS = (
    OWN.replace('"folders"', '"domains"')
    .replace('draw = "random"', 'draw = "domains"\npairs = ["one-two"]\nlabelled = 1')
    .replace('voters = ["snbnl(block=20,min_steps=20)"', 'voters = ["adapted"')
)
DESCRIPTORS = 20  # in memory at once, at most; the training photos have ten times as many


@pytest.fixture(scope="module")
def network(tiny_network, tmp_path_factory) -> str:
    folder = tmp_path_factory.mktemp("tiny")
    shutil.copy(tiny_network, folder / "tiny.onnx")
    (folder / "tiny.toml").write_text('output = "features"\nscale = 255.0\n')
    return str(folder / "tiny.onnx")


@pytest.fixture
def loaded(monkeypatch) -> list[int]:
    """Descriptors of everything that was read from a store."""
    sizes = []
    load = Store._load

    def spy(self, chosen, dtype):
        bags, labels = load(self, chosen, dtype)
        sizes.append(len(bags.values) if len(bags) > 1 else 0)  # one photo may have more than a block
        return bags, labels

    monkeypatch.setattr(Store, "_load", spy)
    monkeypatch.setattr(pooled, "_BLOCK_DESCRIPTORS", DESCRIPTORS)
    for module in (adapted, bag_svm, base, choose, moment_svm):
        monkeypatch.setattr(module, "_AT_ONCE", DESCRIPTORS)
    return sizes


@pytest.mark.parametrize("protocol", [OWN, DOMAINS])
def test_a_run_in_little_memory_reads_little_at_once_and_gives_the_same_numbers(
    protocol, photo_folder, network, tmp_path, loaded
):
    photos = tmp_path / "photos"
    if protocol is DOMAINS:
        for domain in ("one", "two"):
            shutil.copytree(photo_folder, photos / domain)
    else:
        shutil.copytree(photo_folder, photos)
    (tmp_path / "own.toml").write_text(protocol)
    settings = {"selection": Selection(networks=(network,)), "bags": tmp_path / "bags"}
    run_protocol(tmp_path / "own.toml", photos, tmp_path / "large", **settings)
    assert max(loaded) > 5 * DESCRIPTORS
    loaded.clear()
    memory = 4 * DESCRIPTORS * (6 * 4 + 18)  # of descriptors of 6 features, with their boxes
    run_protocol(tmp_path / "own.toml", photos, tmp_path / "small", memory=memory, **settings)
    assert 0 < max(loaded) <= DESCRIPTORS
    hits = [
        {run.voter: kept["cells"][0]["hits"] for run, kept in Results(tmp_path / folder).all("own")}
        for folder in ("large", "small")
    ]
    changed = {voter for voter in hits[0] if hits[0][voter] != hits[1][voter]}
    assert len(hits[0]) == 6
    assert changed <= {"snbnl(block=20,min_steps=20)"}  # minibatches are of other photos


def test_nbnn_keeps_what_does_not_fit_in_a_file_and_gives_the_same_numbers(
    photo_folder, network, tmp_path, loaded, monkeypatch
):
    voters = '["nbnn(search=exact)", "local-nbnn(search=exact)"]'
    (tmp_path / "own.toml").write_text(re.sub(r"voters = .*", f"voters = {voters}", OWN))
    settings = {"selection": Selection(networks=(network,)), "bags": tmp_path / "bags"}
    run_protocol(tmp_path / "own.toml", photo_folder, tmp_path / "large", **settings)
    loaded.clear()
    monkeypatch.setattr("patchvote.voters.neighbours.base.needed", lambda *_: 1e9)
    monkeypatch.setattr("patchvote.voters.neighbours.in_parts._MOST_ROWS", DESCRIPTORS)
    run_protocol(tmp_path / "own.toml", photo_folder, tmp_path / "small", memory=80 * (6 * 4 + 18), **settings)
    assert 0 < max(loaded) <= DESCRIPTORS
    hits = [
        {run.voter: kept["cells"][0]["hits"] for run, kept in Results(tmp_path / folder).all("own")}
        for folder in ("large", "small")
    ]
    assert hits[0] == hits[1]
    assert len(hits[0]) == 2


def test_joined_stores_read_as_the_joined_network(photo_folder, network, tmp_path):
    photos = find_photos(photo_folder)
    names = ["efficientnet-lite0", network, f"efficientnet-lite0+{network}"]
    for number, name in enumerate(names):
        fill(tmp_path / str(number), photos, Extractor(Recipe(name, Dense((64,)))), dtype="float32")
    one, other, both = (Store.open(tmp_path / str(number)) for number in range(3))
    side_by_side = JoinedStore([one, other])
    assert side_by_side.dim == both.dim == 1286
    chosen = side_by_side.only(both.names[5:9])
    bags, labels = chosen.load([2, 0])
    expected, expected_labels = both.load([7, 5])
    np.testing.assert_allclose(bags.values, expected.values, atol=1e-5)
    assert labels.tolist() == expected_labels.tolist()
    blocks = Bags.join([block for block, _ in side_by_side.blocks(30)])
    np.testing.assert_allclose(blocks.values, both.load()[0].values, atol=1e-5)
