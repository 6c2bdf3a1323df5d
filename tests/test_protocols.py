"""Protocols run, resume, keep what they measured, and give the same numbers again."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from experiments.__main__ import main
from experiments.baselines.adapted import AdaptedVoter
from experiments.datasets import Dataset, read_dataset
from experiments.protocol import PROTOCOLS, Protocol
from experiments.recipes import parse_recipe
from experiments.results import Results, Run
from experiments.runner import Runner, Selection, _SameTraining, plan
from experiments.splits import make_split
from experiments.stores import Stores
from experiments.voters import VOTERS, make_voter, parse_voter, title
from patchvote.errors import PatchvoteError
from patchvote.photos.find import Photo
from patchvote.voters import registry

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


def runner(own: Path, photos: Path, bags: Path, results: Path) -> Runner:
    dataset = read_dataset("folders", photos)
    stores = Stores(bags, {photo.name: photo for photo in dataset.photos})
    return Runner(Protocol.load(own), dataset, stores, Results(results))


def run(own: Path, photos: Path, bags: Path, results: Path, **selection) -> list:
    at_work = runner(own, photos, bags, results)
    groups, _ = plan(at_work.protocol, Selection(**selection), at_work.results)
    return list(at_work.compute(groups))


# --- protocols as data ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", PROTOCOLS)
def test_every_protocol_names_voters_recipes_and_pairs_that_exist(name):
    protocol = Protocol.load(name)
    for voter in (
        *protocol.voters,
        *(one.voter for one in protocol.gains),
        *(v for p in protocol.also for v in p.voters),
    ):
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
    for setting in office.settings:
        assert (setting.train, setting.fewer, setting.splits) == (20, {"webcam": 15, "dslr": 15}, 10)
        assert sum(pair.split("-")[0] != pair.split("-")[1] for pair in setting.pairs) == 12
    assert [setting.labelled for setting in office.settings] == [0, 3]
    assert len(office.settings[0].pairs) == 16
    average = [
        np.mean([office.figure(setting.name, voter, pair)[0] for pair in setting.main])
        for setting in office.settings
        for voter in ("nbnn", "snbnl")
    ]
    np.testing.assert_allclose(average, [67.65, 66.49, 81.94, 81.12], atol=0.01)


def test_the_papers_literal_setting_is_a_row_of_the_gains():
    (row,) = (one for one in Protocol.load("scene15").gains if one.recipe == "patch-before")
    assert row.words.startswith("the paper's literal setting")
    voter = make_voter(row.voter)
    assert (voter.alpha, voter.curvature, voter.start_scale, voter.batch_size) == (1, 1, 1, 2500)
    assert (voter.average, voter.standardise, voter.position_weight, voter.start) == (False, True, 1.0, "random")
    assert parse_recipe(row.recipe, "efficientnet-lite0").activation == "before"


def test_protocols_of_parts_have_the_splits_of_the_papers_protocols():
    """So that their cells can be compared with those of the main tables."""
    for parts, whole in (("scene15-parts", "scene15"), ("scene15-time", "scene15"), ("office-parts", "office-caltech")):
        for setting in Protocol.load(parts).settings:
            main = Protocol.load(whole).setting(setting.name)
            assert setting.drawn == main.drawn
            assert setting.main == main.main
    assert Protocol.load("office-parts").calibrated
    assert Protocol.load("scene15-parts").calibrated
    assert not Protocol.load("scene15-time").calibrated  # its seconds are those of training alone


def test_scales_are_chosen_on_training_photos_of_the_papers_splits():
    names = [f"{label}/{k}.jpg" for label in "ab" for k in range(210)]
    dataset = Dataset([Photo(name, Path(name), name[0]) for name in names])
    chosen, main = (Protocol.load(name).setting("random") for name in ("scene15-scales", "scene15"))
    for index in range(chosen.splits):
        split = make_split(dataset, chosen, None, index)
        assert sorted(split.train + split.test) == sorted(make_split(dataset, main, None, index).train)


def test_rows_that_the_paper_quotes_are_those_of_its_tables():
    office = Protocol.load("office-caltech")
    rows = {(row.name.partition(" (")[0], row.setting): row for row in office.quoted}
    assert len(rows) == 8 + 6
    assert [rows["DA-NBNN", "semi-supervised"].figure(pair)[0] for pair in office.settings[0].main] == [
        *[62, 46, 58, 42, 65, 61],
    ]
    assert rows["DAN", "unsupervised"].figure("amazon-webcam") is None  # a dash in the paper
    assert rows["DAN", "unsupervised"].figure("amazon-caltech") == (86.0, 0.0)
    assert {row.name: row.figure(None) for row in Protocol.load("sun397").quoted} == {
        "linear SVM on Hybrid-CNN (Zhou et al. 2014)": (53.86, 0.21),
        "linear SVM on Places-205 CNN (Zhou et al. 2014)": (54.32, 0.14),
    }
    assert [len(Protocol.load(name).quoted) for name in ("scene15", "sports8", "mit67")] == [7, 7, 6]
    for protocol in map(Protocol.load, PROTOCOLS):
        for row in protocol.quoted:
            assert set(row.figures) <= {"all", *protocol.setting(row.setting).main}


def test_unknown_names_are_answered_with_known_ones(own, tmp_path):
    protocol = Protocol.load(own)
    for selection, message in [
        ({"voters": ("snbml",)}, "no voter 'snbml'. Did you mean 'snbnl'"),
        ({"voters": ("snbnl(prototype=1)",)}, "snbnl has no setting 'prototype'. Did you mean 'n_prototypes'"),
        ({"settings": ("rando",)}, "no setting 'rando'. Did you mean 'random'"),
        ({"pairs": ("a-b",)}, "'a-b' is not a pair"),
    ]:
        with pytest.raises(PatchvoteError, match=message):
            plan(protocol, Selection(**selection), Results(tmp_path))
    with pytest.raises(PatchvoteError, match="'dens' does not name a recipe. Such names are dense, "):
        parse_recipe("dens", "efficientnet-lite0")
    with pytest.raises(PatchvoteError, match="no protocol 'scene-15'. Did you mean 'scene15'"):
        Protocol.load("scene-15")


def test_further_combinations_of_a_protocol_are_planned_and_selected_from(tmp_path):
    path = tmp_path / "own.toml"
    path.write_text(OWN + '\n[[also]]\nvoters = ["snbnl"]\nrecipes = ["dense-224", "dense-448"]\n')
    protocol = Protocol.load(path)

    def planned(**selection) -> set[tuple[str, str]]:
        groups, _ = plan(protocol, Selection(**selection), Results(tmp_path))
        return {(group.recipe, voter) for group in groups for voter in group.voters}

    main = {(recipe, voter) for recipe in protocol.recipes for voter in protocol.voters}
    assert planned() == main | {("dense-224", "snbnl"), ("dense-448", "snbnl")}
    assert planned(voters=("nbnn",)) == {(recipe, "nbnn") for recipe in protocol.recipes}
    assert planned(recipes=("dense-224",), voters=("snbnl",)) == {("dense-224", "snbnl")}


def test_a_pair_that_only_one_setting_has_is_planned_in_that_setting(tmp_path):
    groups, _ = plan(Protocol.load("office-caltech"), Selection(pairs=("amazon-amazon",), splits=1), Results(tmp_path))
    assert {(group.setting, group.pair) for group in groups} == {("unsupervised", "amazon-amazon")}


def test_results_of_splits_that_were_drawn_otherwise_are_not_mixed(own, photo_folder, bags, tmp_path):
    run(own, photo_folder, bags, tmp_path, splits=1, voters=("whole-svm",))
    own.write_text(OWN.replace("train = 5", "train = 4"))
    with pytest.raises(PatchvoteError, match=r"made with splits drawn otherwise: it was .*'train': 5"):
        run(own, photo_folder, bags, tmp_path, splits=1, voters=("whole-svm",))
    (tmp_path / "textures" / "cells.jsonl").unlink()
    with pytest.raises(PatchvoteError, match=r"split=1\) in .*textures has other photos than are drawn now"):
        run(own, photo_folder, bags, tmp_path, splits=1, voters=("whole-svm",))


def test_settings_in_a_voters_name_reach_its_estimator():
    assert parse_voter("nbnn(position_weight=0.5, search=exact)") == (
        "nbnn",
        {"position_weight": 0.5, "search": "exact"},
    )
    assert make_voter("snbnl(q=inf)").q == np.inf


# --- running ----------------------------------------------------------------------------------------------------------


def test_a_voter_of_another_package_runs_in_a_protocol(own, photo_folder, bags, tmp_path, monkeypatch, request):
    monkeypatch.syspath_prepend(Path(__file__).with_name("third_party"))
    registry._others.cache_clear()
    request.addfinalizer(registry._others.cache_clear)
    selection = {"voters": ("nearest-mean(sharpness=2)", "nearest-mean"), "splits": 1}
    cells = run(own, photo_folder, bags, tmp_path / "results", **selection)
    assert [voter for _, voter, _ in cells] == ["nearest-mean(sharpness=2)", "nearest-mean"]
    assert all(cell["accuracy"] > 25 for *_, cell in cells)
    assert title("nearest-mean(sharpness=2)") == "nearest-mean (sharpness=2)"
    assert make_voter("nearest-mean").kind == "nearest-mean"
    with pytest.raises(PatchvoteError, match="nearest-mean has no setting 'sharpnes'. Did you mean 'sharpness'"):
        make_voter("nearest-mean(sharpnes=2)")


def test_an_unknown_voter_gets_the_list_of_all_once():
    with pytest.raises(PatchvoteError) as error:
        make_voter("xyzzy")
    assert str(error.value).count("whole-svm") == str(error.value).count("local-nbnn") == 1


def test_the_voters_of_the_registry_are_made_by_it():
    for kind in registry.OWN.keys() - VOTERS.keys() | {"nbnn", "local-nbnn", "nbnl", "snbnl"}:
        assert type(make_voter(kind)) is registry.voter_class(kind)


def test_a_cell_keeps_what_is_needed_to_make_it_again(own, photo_folder, bags, tmp_path):
    assert len(run(own, photo_folder, bags, tmp_path / "results")) == 4
    folder = tmp_path / "results" / "textures"
    assert sorted(path.name for path in folder.iterdir()) == ["cells.jsonl", "made_with.json", "splits.jsonl"]
    cells = [json.loads(line) for line in (folder / "cells.jsonl").read_text().splitlines()]
    assert [(cell["voter"], cell["split"]) for cell in cells] == [
        *[("snbnl(max_iter=1)", 1), ("snbnl(max_iter=1)", 2)],
        *[("whole-svm", 1), ("whole-svm", 2)],
    ]
    records = json.loads((folder / "made_with.json").read_text())["records"]
    for cell in cells:
        assert len(cell["hits"]) == cell["test_photos"] == 16
        assert cell["accuracy"] == 100 * cell["hits"].count("1") / 16
        assert cell["train_photos"] == 20
        assert cell["peak_memory"] > 1e7
        assert {"train_seconds", "test_seconds", "date", "duplicates"} <= cell.keys()
        made_with = records[cell["made_with"]]
        assert made_with["estimator"] == {"whole-svm": "WholeImageSvm"}.get(cell["voter"], "SNBNL")
        assert made_with["sampling"]["sides"] == [64]
        assert {"drawn", "settings", "fingerprints", "versions", "machine"} <= made_with.keys()
    assert len(records) == 2  # once for all cells that were made so
    draws = [json.loads(line) for line in (folder / "splits.jsonl").read_text().splitlines()]
    assert [(draw["setting"], draw["pair"], draw["split"]) for draw in draws] == [
        ("random", None, 1),
        ("random", None, 2),
    ]
    assert [(len(draw["train"]), len(draw["test"])) for draw in draws] == [(20, 16)] * 2
    for path in folder.iterdir():
        assert str(photo_folder) not in path.read_text()  # results are for others: no path of this machine


def test_a_finished_cell_is_never_computed_again(own, photo_folder, bags, tmp_path, monkeypatch):
    run(own, photo_folder, bags, tmp_path, splits=1)
    assert [cell[0].split for cell in run(own, photo_folder, bags, tmp_path)] == [2, 2]
    monkeypatch.setattr(_SameTraining, "_train", None)
    assert run(own, photo_folder, bags, tmp_path) == []


def test_an_interrupted_run_goes_on_where_it_was(own, photo_folder, bags, tmp_path):
    whole = {(cell[1], cell[0].split): cell[2]["hits"] for cell in run(own, photo_folder, bags, tmp_path / "whole")}
    at_work = runner(own, photo_folder, bags, tmp_path / "parts")
    groups, _ = plan(at_work.protocol, Selection(), at_work.results)
    for _ in at_work.compute(groups):
        break  # as Ctrl-C after the first cell
    parts = run(own, photo_folder, bags, tmp_path / "parts")
    assert len(parts) == 3
    assert all(whole[voter, group.split] == cell["hits"] for group, voter, cell in parts)


def test_a_fresh_run_reproduces_the_numbers(own, photo_folder, bags, tmp_path):
    everybody = ("nbnn", "local-nbnn", "nbnl(max_iter=2)", "snbnl", "whole-svm", "mean-svm", "mop")
    first = run(own, photo_folder, bags, tmp_path / "a", voters=everybody, splits=1)
    second = run(own, photo_folder, bags, tmp_path / "b", voters=everybody, splits=1)
    assert [cell[1] for cell in first] == list(everybody)
    assert [cell[2]["hits"] for cell in first] == [cell[2]["hits"] for cell in second]
    assert all(cell[2]["accuracy"] > 60 for cell in first)
    assert 0.3 < first[0][2]["recall"] <= 1


def test_results_of_other_settings_are_not_mixed(own, photo_folder, bags, tmp_path):
    run(own, photo_folder, bags, tmp_path, splits=1, voters=("snbnl(max_iter=1)",))
    path = tmp_path / "textures" / "made_with.json"
    path.write_text(path.read_text().replace('"alpha": 0.0001', '"alpha": 0.5'))
    with pytest.raises(PatchvoteError, match=r"other settings: it was .*'alpha': 0.5.* Move it away, or name another"):
        run(own, photo_folder, bags, tmp_path, voters=("snbnl(max_iter=1)",))
    path.write_text(path.read_text()[:-20])
    with pytest.raises(PatchvoteError, match="is not a result of a protocol"):
        run(own, photo_folder, bags, tmp_path, voters=("snbnl(max_iter=1)",))


def test_two_networks_side_by_side_look_at_the_same_patches(own, photo_folder, bags, tiny_network, tmp_path):
    shutil.copy(tiny_network, tmp_path / "tiny.onnx")
    (tmp_path / "tiny.toml").write_text('output = "features"\nscale = 255.0\n')
    both = f"efficientnet-lite0+{tmp_path / 'tiny.onnx'}"
    selection = {"splits": 1, "voters": ("nbnn",), "networks": (both,)}
    cells = run(own, photo_folder, bags, tmp_path / "r", recipes=("patch-32x1-n10-64px",), **selection)
    assert cells[0][2]["accuracy"] > 60
    ((kept_run, kept),) = Results(tmp_path / "r").all("textures")
    assert kept_run.network == "efficientnet-lite0+tiny"
    assert len(kept["fingerprints"]) == 1


def test_a_photo_that_cannot_be_read_is_named_and_left_out(own, photo_folder, tmp_path):
    photos = shutil.copytree(photo_folder, tmp_path / "photos")
    spoiled = sorted((photos / "brick").iterdir())
    for path in spoiled[:8]:
        path.write_bytes(b"not a photo")
    own.write_text(OWN.replace("train = 5", "train = 3"))
    cells = run(own, photos, tmp_path / "bags", tmp_path / "r", splits=1, voters=("whole-svm",))
    assert cells[0][2]["skipped"]
    assert all(name.startswith("brick/") for name in cells[0][2]["skipped"])
    assert cells[0][2]["test_photos"] + cells[0][2]["train_photos"] + len(cells[0][2]["skipped"]) == 28


DOMAINS = """
title = "Cameras"
source = "us"
layout = "domains"
voters = ["whole-svm", "mean-svm"]
recipes = ["dense-64"]

[[settings]]
name = "unsupervised"
draw = "domains"
splits = 1
train = 4
pairs = ["one-one", "one-two", "two-one"]
"""


def test_pairs_with_the_same_training_photos_share_a_training(photo_folder, bags, tmp_path, monkeypatch):
    for domain in ("one", "two"):
        shutil.copytree(photo_folder, tmp_path / "photos" / domain)
    (tmp_path / "cameras.toml").write_text(DOMAINS)
    dataset = read_dataset("domains", tmp_path / "photos")
    stores = Stores(tmp_path / "bags", {photo.name: photo for photo in dataset.photos})
    at_work = Runner(Protocol.load(tmp_path / "cameras.toml"), dataset, stores, Results(tmp_path / "r"))
    groups, _ = plan(at_work.protocol, Selection(), at_work.results)
    trained = []
    train = _SameTraining._train
    monkeypatch.setattr(_SameTraining, "_train", lambda self, voter: trained.append(voter) or train(self, voter))
    cells = list(at_work.compute(groups))
    assert len(cells) == 6
    assert trained == ["whole-svm", "mean-svm"] * 2
    by_pair = {(group.pair, voter): cell for group, voter, cell in cells}
    assert by_pair["one-two", "whole-svm"]["test_photos"] == 40
    assert by_pair["one-one", "whole-svm"]["test_photos"] == 24
    assert by_pair["one-two", "whole-svm"]["duplicates"] == 16  # the cameras are copies of one another
    assert by_pair["one-one", "whole-svm"]["duplicates"] == 0


def test_a_voter_that_adapts_sees_the_target_without_its_labels(photo_folder, tmp_path, monkeypatch):
    for domain in ("one", "two"):
        shutil.copytree(photo_folder, tmp_path / "photos" / domain)
    semi = DOMAINS.replace('name = "unsupervised"', 'name = "semi-supervised"\nlabelled = 2')
    (tmp_path / "cameras.toml").write_text(
        semi.replace('["whole-svm", "mean-svm"]', '["adapted", "adapted(rounds=0)"]')
    )
    dataset = read_dataset("domains", tmp_path / "photos")
    stores = Stores(tmp_path / "bags", {photo.name: photo for photo in dataset.photos})
    at_work = Runner(Protocol.load(tmp_path / "cameras.toml"), dataset, stores, Results(tmp_path / "r"))
    seen = []
    fit = AdaptedVoter.fit

    def spy(self, source, y, target, target_y):
        seen.append((len(source), tuple(len(part) for part in target), sum(label is not None for label in target_y)))
        return fit(self, source, y, target, target_y)

    monkeypatch.setattr(AdaptedVoter, "fit", spy)
    groups, _ = plan(at_work.protocol, Selection(pairs=("one-two", "one-one")), at_work.results)
    cells = {(group.pair, voter): cell for group, voter, cell in at_work.compute(groups)}
    assert len(cells) == 4
    assert set(seen) == {(16, (8, 32), 8), (24, (16,), 0)}  # within a domain there is nothing to adapt to
    assert cells["one-two", "adapted"]["accuracy"] > 80


@pytest.mark.parametrize("labelled", [0, 2])
def test_da_nbnn_is_a_voter_of_protocols(photo_folder, tmp_path, labelled):
    for domain in ("one", "two"):
        shutil.copytree(photo_folder, tmp_path / "photos" / domain)
    text = DOMAINS.replace('["whole-svm", "mean-svm"]', '["da-nbnn(rounds=1)"]')
    (tmp_path / "cameras.toml").write_text(text.replace("train = 4", f"train = 4\nlabelled = {labelled}"))
    dataset = read_dataset("domains", tmp_path / "photos")
    stores = Stores(tmp_path / "bags", {photo.name: photo for photo in dataset.photos})
    at_work = Runner(Protocol.load(tmp_path / "cameras.toml"), dataset, stores, Results(tmp_path / "r"))
    groups, _ = plan(at_work.protocol, Selection(pairs=("one-two",)), at_work.results)
    ((_, _, cell),) = at_work.compute(groups)
    assert cell["accuracy"] > 80
    assert "refused" not in cell


def test_several_processes_add_cells_to_one_file(tmp_path):
    """Each reads what the others have written before it writes."""
    run, folders = Run("p", "s", "nbnn", "dense", "n"), [Results(tmp_path), Results(tmp_path)]
    for split in range(6):
        made_with = {"settings": {"q": 2.0}}
        folders[split % 2].add(run, made_with, {"pair": None, "split": split, "accuracy": 50.0})
        folders[1 - split % 2].add(run, made_with, {"pair": None, "split": split, "accuracy": 40.0})  # it is finished
    cells = Results(tmp_path).read(run)["cells"]
    assert [(cell["split"], cell["accuracy"]) for cell in cells] == [(split, 50.0) for split in range(6)]
    with pytest.raises(PatchvoteError, match="other settings"):
        folders[0].add(run, {"settings": {"q": 3.0}}, {"pair": None, "split": 7})


def test_photos_beyond_the_memory_give_the_same_cells_from_their_store(own, photo_folder, bags, tmp_path):
    answers = []
    for name, memory in (("whole", 1 << 30), ("parts", 1 << 18)):
        at_work = runner(own, photo_folder, bags, tmp_path / name)
        at_work.memory = memory
        groups, _ = plan(at_work.protocol, Selection(splits=1), at_work.results)
        answers.append([cell["hits"] for _, _, cell in at_work.compute(groups)])
    assert answers[0][1] == answers[1][1]  # whole-svm


# --- the command ------------------------------------------------------------------------------------------------------


def test_the_command_plans_runs_and_sums_up(own, photo_folder, bags, tmp_path, capsys):
    results = ["--results", str(tmp_path / "r")]
    where = [str(own), "--data", str(photo_folder), "--bags", str(bags), *results]
    assert main(["run", *where, "--dry-run"]) == 0
    assert "4 cells to compute, 0 finished already" in capsys.readouterr().out
    assert not (tmp_path / "r").exists()
    assert main(["run", *where, "--splits", "1", "--voters", "whole-svm,snbnl(max_iter=1,q=1)"]) == 0
    assert "random split 1, dense-64, whole-svm:" in capsys.readouterr().out
    assert main(["summary", str(own), "--json", *results]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [(row["voter"], row["splits"], row["paper"]) for row in rows] == [
        ("snbnl(max_iter=1,q=1)", 1, None),
        ("whole-svm", 1, 50.0),
    ]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["report", "--results", "nowhere"], "there are no results in nowhere. Run a protocol first."),
        (["summary", "scene15", "--results", "nowhere"], "there are no results of scene15 in nowhere yet"),
        (["run", "scene51", "--data", "."], "there is no protocol 'scene51'. Did you mean 'scene15'"),
        (
            ["run", "scene15", "--data", "nowhere"],
            "does not have the layout 'scene15': there is no such folder.",
        ),
    ],
)
def test_the_command_says_what_is_missing(words, message, capsys):
    assert main(words) == 1
    assert message in capsys.readouterr().err


def test_the_page_of_results_is_written_beside_them(tmp_path, capsys):
    pytest.importorskip("matplotlib")
    shutil.copytree(Path(__file__).parent.parent / "results" / "scene15-time", tmp_path / "results" / "scene15-time")
    assert main(["report", "--results", str(tmp_path / "results")]) == 0
    assert "Scene-15" in (tmp_path / "docs" / "results.md").read_text(encoding="utf-8")
