"""Protocols run, resume, keep what they measured, and give the same numbers again."""

from __future__ import annotations

import dataclasses
import gzip
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import binomtest

from experiments.__main__ import main
from experiments.baselines.adapted import AdaptedVoter
from experiments.datasets import read_dataset
from experiments.page.fair import compare, table
from experiments.protocol import PROTOCOLS, Protocol
from experiments.recipes import parse_recipe
from experiments.results import Draw, Results, Run, read_draws
from experiments.runner import Runner, Selection, plan
from experiments.splits import Split
from experiments.stores import Stores
from experiments.voters import VOTERS, make_voter
from patchvote import MomentRidge, Store
from patchvote.errors import PatchvoteError
from patchvote.networks.bases import basis_for

ROOT = Path(__file__).parent.parent
OWN = """
title = "Textures"
source = "us"
layout = "folders"
voters = ["snbnl(max_iter=1)", "whole-svm"]
recipes = ["dense-64"]

[[settings]]
name = "random"
draw = "random"
splits = 2
train = 5
test = 4

[paper.random]
whole-svm.all = [50.0, 1.0]
"""


@pytest.fixture
def own(tmp_path) -> Path:
    path = tmp_path / "textures.toml"
    path.write_text(OWN)
    return path


@pytest.fixture(scope="module")
def bags(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("bags")


def runner(protocol: Path, photos: Path, bags: Path, results: Path) -> Runner:
    read = Protocol.load(protocol)
    dataset = read_dataset(read.layout, photos)
    return Runner(read, dataset, Stores(bags, {photo.name: photo for photo in dataset.photos}), Results(results))


def run(own: Path, photos: Path, bags: Path, results: Path, **selection) -> list:
    at_work = runner(own, photos, bags, results)
    groups, _ = plan(at_work.protocol, Selection(**selection), at_work.results)
    return list(at_work.compute(groups))


@pytest.mark.parametrize("name", PROTOCOLS)
def test_every_protocol_names_voters_recipes_and_pairs_that_exist(name):
    protocol = Protocol.load(name)
    for voter in (*protocol.voters, *(voter for part in protocol.also for voter in part.voters)):
        make_voter(voter)
    for recipe in (*protocol.recipes, *(recipe for part in protocol.also for recipe in part.recipes)):
        parse_recipe(recipe, "efficientnet-lite0")
    for setting in protocol.settings:
        assert set(setting.main) <= set(setting.pairs)
        for voter, figures in protocol.paper.get(setting.name, {}).items():
            assert voter in VOTERS
            assert set(figures) <= {"all", *setting.pairs}


def test_protocols_are_those_of_the_paper():
    scene, sports, mit = (Protocol.load(name).settings[0] for name in ("scene15", "sports8", "mit67"))
    assert [(s.train, s.test, s.splits) for s in (scene, sports, mit)] == [(100, 100, 5), (70, 60, 5), (80, 20, 5)]
    assert Protocol.load("sun397").setting("official").splits == 10
    office = Protocol.load("office-caltech")
    for setting, labelled, pairs in zip(office.settings, (0, 3), (16, 12), strict=True):
        assert (setting.train, setting.fewer, setting.splits) == (20, {"webcam": 15, "dslr": 15}, 10)
        assert (setting.labelled, len(setting.pairs)) == (labelled, pairs)
    average = [
        np.mean([office.figure(setting.name, voter, pair)[0] for pair in setting.main])
        for setting in office.settings
        for voter in ("nbnn", "snbnl-paper")
    ]
    np.testing.assert_allclose(average, [67.65, 66.49, 81.94, 81.12], atol=0.01)


@pytest.mark.parametrize(
    ("selection", "message"),
    [
        ({"voters": ("snbml",)}, "no voter 'snbml'. Did you mean 'snbnl'"),
        ({"voters": ("snbnl(prototype=1)",)}, "no setting 'prototype'. Did you mean 'n_prototypes'"),
        ({"pairs": ("a-b",)}, "'a-b' is not a pair"),
        ({"recipes": ("dens",)}, "'dens' does not name a recipe"),
    ],
)
def test_unknown_names_are_answered_with_known_ones(selection, message, own, tmp_path):
    with pytest.raises(PatchvoteError, match=message):
        plan(Protocol.load(own), Selection(**selection), Results(tmp_path))


def test_a_cell_keeps_what_is_needed_to_make_it_again_and_is_never_computed_again(own, photo_folder, bags, tmp_path):
    assert len(run(own, photo_folder, bags, tmp_path / "r", splits=1)) == 2
    assert [group.split for group, _, _ in run(own, photo_folder, bags, tmp_path / "r")] == [2, 2]
    assert run(own, photo_folder, bags, tmp_path / "r") == []
    folder = tmp_path / "r" / "textures"
    texts = {path.name: path.read_bytes() for path in folder.iterdir()}
    lines = {
        name: list(map(json.loads, gzip.decompress(text).splitlines())) for name, text in texts.items() if "gz" in name
    }
    records = json.loads(texts["made_with.json"])["records"]
    assert len(records) == 2  # once for all cells that were made so
    for cell in lines["cells.jsonl.gz"]:
        assert len(cell["hits"]) == cell["test_photos"] == 16
        assert cell["accuracy"] == 100 * cell["hits"].count("1") / 16
        assert cell["peak_memory"] > 1e7
        assert {"train_seconds", "test_seconds", "date", "duplicates"} <= cell.keys()
        made_with = records[cell["made_with"]]
        assert made_with["estimator"] == {"whole-svm": "WholeImageSvm"}.get(cell["voter"], "SNBNL")
        assert made_with["sampling"]["sides"] == [64]
        assert {"drawn", "settings", "fingerprints", "versions", "machine"} <= made_with.keys()
    assert [(draw["split"], len(draw["train"])) for draw in lines["splits.jsonl.gz"]] == [(1, 20), (2, 20)]
    assert str(photo_folder) not in texts["made_with.json"].decode() + str(lines)


def test_an_interrupted_or_a_fresh_run_gives_the_same_numbers(own, photo_folder, bags, tmp_path):
    voters = ("nbnn", "nbnn-pca", "local-nbnn", "nbnl(max_iter=2)", "snbnl", "whole-svm", "mean-svm", "mop")
    cells = run(own, photo_folder, bags, tmp_path / "whole", voters=voters, splits=1)
    whole = {voter: cell for _, voter, cell in cells}
    assert all(cell["accuracy"] > 60 for cell in whole.values())
    assert 0.3 < whole["nbnn-pca"]["recall"] <= 1 == whole["nbnn"]["recall"]
    at_work = runner(own, photo_folder, bags, tmp_path / "parts")
    groups, _ = plan(at_work.protocol, Selection(voters=voters, splits=1), at_work.results)
    next(at_work.compute(groups))  # as Ctrl-C after the first cell
    parts = run(own, photo_folder, bags, tmp_path / "parts", voters=voters, splits=1)
    assert [voter for _, voter, _ in parts] == list(voters[1:])
    assert all(whole[voter]["hits"] == cell["hits"] for _, voter, cell in parts)


def test_results_of_other_settings_or_splits_are_not_mixed(own, photo_folder, bags, tmp_path):
    def again():
        return run(own, photo_folder, bags, tmp_path, voters=("snbnl(max_iter=1)",), splits=1)

    again()
    record = tmp_path / "textures" / "made_with.json"
    kept = record.read_text()
    record.write_text(kept.replace('"alpha": 0.0001', '"alpha": 0.5'))
    with pytest.raises(PatchvoteError, match=r"other settings: it was .*'alpha': 0.5"):
        run(own, photo_folder, bags, tmp_path, voters=("snbnl(max_iter=1)",))
    record.write_text(kept[:-20])
    with pytest.raises(PatchvoteError, match="is not a result of a protocol"):
        again()
    record.write_text(kept)
    own.write_text(OWN.replace("train = 5", "train = 4"))
    with pytest.raises(PatchvoteError, match=r"splits drawn otherwise: it was .*'train': 5"):
        again()
    (tmp_path / "textures" / "cells.jsonl.gz").unlink()
    with pytest.raises(PatchvoteError, match="has other photos than are drawn now"):
        again()


def test_a_voter_that_adapts_sees_the_target_without_its_labels_and_learns_with_the_basis(
    photo_folder, tmp_path, monkeypatch
):
    for domain in ("one", "two"):  # cameras, which show the same photos
        shutil.copytree(photo_folder, tmp_path / "photos" / domain)
    text = OWN.replace('"folders"', '"domains"').replace('draw = "random"', 'draw = "domains"')
    text = text.replace('"snbnl(max_iter=1)", "whole-svm"', '"adapted", "default"').replace("splits = 2", "splits = 1")
    pairs = 'train = 4\nlabelled = 2\npairs = ["one-one", "one-two", "two-one"]'
    (tmp_path / "cameras.toml").write_text(text.replace("train = 5\ntest = 4", pairs))
    at_work = runner(tmp_path / "cameras.toml", tmp_path / "photos", tmp_path / "bags", tmp_path / "r")
    seen, bases, adapt, fit = [], [], AdaptedVoter.fit, MomentRidge.fit

    def spy(self, source, y, target, target_y):
        seen.append((len(source), tuple(len(part) for part in target), sum(label is not None for label in target_y)))
        return adapt(self, source, y, target, target_y)

    monkeypatch.setattr(AdaptedVoter, "fit", spy)
    monkeypatch.setattr(MomentRidge, "fit", lambda self, *args: bases.append(fit(self, *args).directions_) or self)
    groups, _ = plan(at_work.protocol, Selection(pairs=("one-two", "one-one")), at_work.results)
    cells = {(group.pair, voter): cell for group, voter, cell in at_work.compute(groups)}
    assert set(seen) == {(16, (8, 32), 8), (24, (16,), 0)}  # within a domain there is nothing to adapt to
    assert cells["one-two", "adapted"]["accuracy"] > 80 < cells["one-two", "default"]["accuracy"]
    store = Store.open(at_work.stores.path("dense-64", "efficientnet-lite0"))
    expected = basis_for(store.recipe.network, store.fingerprint, store.dim).directions
    assert any(np.array_equal(found, expected) for found in bases)  # as for users


def test_several_processes_add_cells_to_one_file(tmp_path):
    """Each reads what the others have written before it writes."""
    run, folders, made_with = Run("p", "s", "nbnn", "dense", "n"), [Results(tmp_path), Results(tmp_path)], {"drawn": 1}
    for split in range(6):
        folders[split % 2].add(run, made_with, {"pair": None, "split": split, "accuracy": 50.0})
        folders[1 - split % 2].add(run, made_with, {"pair": None, "split": split, "accuracy": 40.0})  # it is finished
    cells = Results(tmp_path).read(run)["cells"]
    assert [(cell["split"], cell["accuracy"]) for cell in cells] == [(split, 50.0) for split in range(6)]


def test_the_command_plans_runs_and_sums_up(own, photo_folder, bags, tmp_path, capsys):
    results = ["--results", str(tmp_path / "r")]
    where = [str(own), "--data", str(photo_folder), "--bags", str(bags), *results]
    assert main(["run", *where, "--dry-run"]) == 0
    assert "4 cells to compute in about" in capsys.readouterr().out
    assert not (tmp_path / "r").exists()
    assert main(["run", *where, "--splits", "1", "--voters", "whole-svm,snbnl(max_iter=1,q=1)"]) == 0
    assert main(["summary", str(own), "--json", *results]) == 0
    rows = json.loads(capsys.readouterr().out.partition("\n[")[2].join(["[", ""]))
    assert [(row["voter"], row["paper"]) for row in rows] == [("snbnl(max_iter=1,q=1)", None), ("whole-svm", 50.0)]


def add(results: Results, protocol: str, setting: str, voter: str, by_pair: dict, **more) -> Run:
    """Store cells of a voter: for each pair, the hits of its splits."""
    run = Run(protocol, setting, voter, "dense", "efficientnet-lite0")
    for pair, splits in by_pair.items():
        for split, hits in enumerate(splits, start=1):
            cell = {"pair": pair, "split": split, "hits": hits, "accuracy": 100 * hits.count("1") / len(hits)}
            results.add(run, {"drawn": "x"}, cell | more)
    return run


@pytest.fixture
def results(tmp_path):
    return Results(tmp_path)


def test_a_photo_of_two_splits_counts_once_for_the_voter_that_had_it_right_more_often(results):
    photos = {1: ["a", "b", "c", "d"], 2: ["b", "c", "d", "e"]}
    results.keep_draws("scene15", {Draw("random", None, k): Split(["x"], test) for k, test in photos.items()})
    voters = {"snbnl": ["1111", "1110"], "pooled-svm(scales=each)": ["1010", "0110"], "whole-svm": ["1000", "0000"]}
    voters |= {"covariance-svm": ["1111", "1111"]}
    snbnl, pooled, *_ = (add(results, "scene15", "random", one, {None: hits}) for one, hits in voters.items())
    found = compare(results, snbnl, pooled)
    # a, c and e: equal. b: right in both splits against none. d: right in both against one.
    assert (found.first, found.second, found.p) == (2, 0, binomtest(2, 2).pvalue)
    differences = [100 - 50, 75 - 50]
    assert found.difference == pytest.approx(np.mean(differences))
    assert found.error == pytest.approx(np.std(differences, ddof=1) / np.sqrt(2))
    protocol = Protocol.load("scene15")
    lines = table(protocol, protocol.settings[0], results).splitlines()[2:]
    assert lines == [
        "|CNN-sNBNL, lambda 1e-4|+37.50±12.50 (2); 2:0; p=0.5|-12.50±12.50 (2); 0:1; p=1|",
        "|the best mean-pooled image|pooled image (scales=each)||",
    ]


PAIRS = ("amazon-webcam", "caltech-webcam", "webcam-amazon")
DOMAINS = {  # by voter; for each pair, the hits of two splits
    "pooled-svm(scales=each)": ("1110 1110", "1100 1100", "1100 1100"),
    "snbnl": ("1000 1000", "1111 1111", "1100 1101"),
}


def test_pairs_of_a_split_are_averaged_and_a_photo_of_the_target_counts_once_whatever_the_source(results):
    for pair in PAIRS:
        photos = [f"{pair.partition('-')[2]}/{number}" for number in range(4)]
        results.keep_draws("office-caltech", {Draw("unsupervised", pair, k): Split(["x"], photos) for k in (1, 2)})
    runs = []
    for voter, by_pair in DOMAINS.items():
        hits = {pair: splits.split() for pair, splits in zip(PAIRS, by_pair, strict=True)}
        runs.append(add(results, "office-caltech", "unsupervised", voter, hits))
    second, first = runs
    found = compare(results, first, second)
    by_split = np.mean([(-50, -50), (50, 50), (0, 25)], axis=0)  # differences of each pair, in two splits
    assert found.difference == pytest.approx(np.mean(by_split))
    assert found.error == pytest.approx(np.std(by_split, ddof=1) / np.sqrt(2))
    # Webcam, four cells each: photo 0 is right in 4 and 4 of them, 1 in 2 and 4, 2 in 2 and 2, 3 in 2 and 0.
    # Amazon, two cells: photos 0, 1 and 2 are equal, 3 is right in 1 and 0.
    assert (found.first, found.second, found.p) == (2, 1, binomtest(2, 3).pvalue)
    assert compare(results, first, second, PAIRS[:1]).difference == -50
    assert compare(results, first, dataclasses.replace(first, voter="nbnn")) is None


def test_the_page_of_results_is_made_from_the_records(tmp_path):
    pytest.importorskip("matplotlib")
    from experiments.page.page import write_results

    page = ROOT / "docs" / "results.md"
    shutil.copy(page, tmp_path)
    write_results(Results(ROOT / "results"), tmp_path)
    assert (tmp_path / "results.md").read_text(encoding="utf-8") == page.read_text(encoding="utf-8")
    assert {path.name for path in (tmp_path / "results").iterdir()} <= {
        path.name for path in (ROOT / "docs" / "results").iterdir()
    }


def test_the_records_belong_to_the_splits_of_today():
    results = Results(ROOT / "results")
    for protocol in map(Protocol.load, PROTOCOLS):
        plan(protocol, Selection(), results)  # compares how splits are drawn
    selected = Selection(recipes=("dense",), voters=("bag-svm", "adapted"))
    assert plan(Protocol.load("office-caltech"), selected, results) == ([], 2 * 10 * (16 + 12))


@pytest.mark.data
@pytest.mark.slow
def test_a_fresh_run_reproduces_the_records(data, tmp_path):
    protocol, committed = Protocol.load("office-caltech"), Results(ROOT / "results")
    dataset = read_dataset(protocol.layout, data / "office_caltech")
    stores = Stores(tmp_path / "bags", {photo.name: photo for photo in dataset.photos})
    at_work = Runner(protocol, dataset, stores, Results(tmp_path / "results"))
    voters = ("snbnl", "whole-svm")
    selection = Selection(("unsupervised",), ("webcam-dslr",), voters, ("dense",), splits=1)
    groups, _ = plan(protocol, selection, at_work.results)
    fresh = {voter: cell["accuracy"] for _, voter, cell in at_work.compute(groups)}
    for voter in voters:
        kept = committed.read(groups[0].run(protocol, voter))
        (old,) = (c["accuracy"] for c in kept["cells"] if (c["pair"], c["split"]) == ("webcam-dslr", 1))
        assert fresh[voter] == pytest.approx(old, abs=0.2), voter
    draw = Draw("unsupervised", "webcam-dslr", 1)
    kept, now = (read_draws(root / "office-caltech")[draw] for root in (ROOT / "results", tmp_path / "results"))
    assert kept == now
