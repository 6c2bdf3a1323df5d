"""What kept results say: means, tests, tables, findings and the page that is made of them."""

from __future__ import annotations

from pathlib import Path

import pytest
from scipy.stats import binomtest

from experiments.datasets import read_dataset
from experiments.page.speed import speed
from experiments.page.tables import domains, few, gains, scenes, summarise
from experiments.protocol import PROTOCOLS, Protocol
from experiments.results import Draw, Results, Run, read_draws
from experiments.runner import Runner, Selection, plan
from experiments.splits import Split
from experiments.stores import Stores

ROOT = Path(__file__).parent.parent


def write_run(folder: Path, voter: str, hits: list[str], protocol: str = "scene15", recipe: str = "dense") -> Run:
    run = Run(protocol, "random", voter, recipe, "efficientnet-lite0")
    for split, row in enumerate(hits, start=1):
        cell = {"pair": None, "split": split, "hits": row, "accuracy": 100 * row.count("1") / len(row)}
        cell |= {"train_seconds": 30.0 if voter == "nbnl" else 2.0, "test_seconds": 1.0, "duplicates": 0}
        Results(folder).add(run, {"settings": {}}, cell)
    return run


def test_nbnl_and_snbnl_are_compared_on_the_splits_that_both_have(tmp_path):
    write_run(tmp_path, "nbnl", ["1111100000", "1111111111"])
    write_run(tmp_path, "snbnl", ["1110011111", "1111111110", "0000000000"])
    results = Results(tmp_path)
    table = speed([Protocol.load("scene15")], results)
    assert "| Scene-15, ours, dense | 75.00 | 85.00 | 30.0 | 2.0 | 1.0 | 1.0 | 15.0 times | 1.0 times |" in table
    # Without the names of their photos, splits have no photo in common: 3 photos against 5.
    assert "NBNL has 3 and sNBNL 5; sign test p = 0.727: at p < 0.05 no difference is shown" in table
    assert binomtest(3, 8).pvalue == pytest.approx(0.727, abs=1e-3)
    photos = [f"photo {number}" for number in range(10)]
    results.keep_draws("scene15", {Draw("random", None, split): Split(["x"], photos) for split in (1, 2, 3)})
    # With them, each photo counts once: the last is equal, since each voter had it right in one split.
    table = speed([Protocol.load("scene15")], results)
    assert "NBNL has 2 and sNBNL 4; sign test" in table
    assert "sNBNL minus NBNL is +10.00 ± 20.00 points (standard error over 2 splits)." in table


def test_the_summary_has_the_means_beside_the_papers(tmp_path):
    write_run(tmp_path, "snbnl", ["1110", "1100"])
    (row,) = summarise(Protocol.load("scene15"), Results(tmp_path))
    assert row == {
        "protocol": "scene15",
        "setting": "random",
        "pair": None,
        "voter": "snbnl",
        "recipe": "dense",
        "network": "efficientnet-lite0",
        "splits": 2,
        "mean": 62.5,
        "deviation": 17.68,
        "paper": 92.88,
    }


def test_the_table_of_gains_compares_every_finished_row_with_the_first(tmp_path):
    write_run(tmp_path, "snbnl(curvature=1,average=False)", ["1100", "1110"])
    write_run(tmp_path, "snbnl", ["1110", "1111"])
    table = gains(Protocol.load("scene15"), Results(tmp_path)).splitlines()
    assert len(table) == 4  # the others are not there yet
    assert table[2].endswith("| 62.50 ± 17.68 (2 splits) | +0.00 | 3.0 | 1.0 times |")
    assert table[3].startswith("| both: the default | 87.50 ± 17.68 (2 splits) | +25.00 |")
    other = {"pair": None, "split": 3, "hits": "1", "accuracy": 50.0, "train_seconds": 1, "test_seconds": 1}
    Results(tmp_path).add(Run("scene15", "random", "whole-svm", "dense", "efficientnet-lite0"), {}, other)
    assert "no split in common" in gains(Protocol.load("scene15"), Results(tmp_path))
    write_run(tmp_path, "bag-svm", ["1100"])  # one split alone is compared with the same split
    assert "| 50.00 (1 split) | +0.00 |" in gains(Protocol.load("scene15"), Results(tmp_path))


def test_quoted_rows_stand_in_the_papers_columns_and_say_so(tmp_path):
    write_run(tmp_path, "snbnl", ["1110", "1100"])
    lines = scenes([Protocol.load("scene15"), Protocol.load("mit67")], Results(tmp_path)).splitlines()
    assert lines[0] == "| voter | Scene-15: paper | Scene-15: ours, dense (2 splits) | MIT Indoor-67 (random): paper |"
    assert "| Hybrid-CNN (Zhou et al. 2014), quoted by the paper | 91.59 |  | 70.80 |" in lines
    office = Protocol.load("office-caltech")
    lines = domains(office, office.settings[0], Results(tmp_path)).splitlines()
    quoted = [line for line in lines if "quoted by the paper" in line]
    assert "| 35.00 | 41.00 | 42.00 | 33.00 | 55.00 | 36.00 | 40.33 |" in quoted[1]
    assert quoted[2].endswith("| 40.40 |  |  |")  # no average where the paper has a dash


def test_a_voter_with_fewer_splits_than_its_column_says_so(tmp_path):
    write_run(tmp_path, "snbnl", ["1110", "1100"])
    write_run(tmp_path, "whole-svm", ["1100"])
    lines = scenes([Protocol.load("scene15")], Results(tmp_path)).splitlines()
    assert "ours, dense (2 splits)" in lines[0]
    (row,) = (line for line in lines if line.startswith("| whole image + SVM"))
    assert row.endswith("| 50.00 (1 split) |")


def test_the_table_of_few_images_has_standard_errors(tmp_path):
    for voter, hits in (("default", ["1110", "1111"]), ("whole-svm", ["1100", "1100"])):
        for split, row in enumerate(hits, start=1):
            cell = {"pair": None, "split": split, "hits": row, "accuracy": 25.0 * row.count("1"), "duplicates": 0}
            Results(tmp_path).add(Run("scene15-few", "5", voter, "dense", "efficientnet-lite0"), {"settings": {}}, cell)
    table = few(Protocol.load("scene15-few"), Results(tmp_path)).splitlines()
    assert table[0] == "| images per class | 1 | 2 | 5 | 10 | 20 |"
    assert table[2:] == [
        "| the default voter |  |  | 87.50 ± 12.50 |  |  |",
        "| whole image + SVM |  |  | 50.00 ± 0.00 |  |  |",
    ]


def test_a_page_is_made_of_results_of_other_networks_and_recipes_alone(tmp_path):
    pytest.importorskip("matplotlib")
    from experiments.page.page import write_results

    for protocol, voter, setting in (("scene15", "nbnn", "random"), ("scene15-few", "default", "5")):
        for network in ("efficientnet-lite1", "efficientnet-lite2"):
            cell = {"pair": None, "split": 1, "hits": "10", "accuracy": 50.0, "duplicates": 0}
            Results(tmp_path / "results").add(Run(protocol, setting, voter, "dense-224", network), {}, cell)
    cell = {"pair": None, "split": 1, "hits": "10", "accuracy": 50.0, "duplicates": 0}
    changed = Run("scene15", "random", "snbnl(q=1)", "dense", "efficientnet-lite0")
    Results(tmp_path / "results").add(changed, {}, cell)
    run_of_another = Run("scene15-patches", "random", "snbnl", "patch-16x1", "efficientnet-lite0")
    Results(tmp_path / "results").add(run_of_another, {}, cell)
    assert "Patches" in write_results(Results(tmp_path / "results"), tmp_path / "docs").read_text(encoding="utf-8")


@pytest.mark.data
def test_a_fresh_run_reproduces_the_committed_numbers(data, tmp_path):
    protocol, committed = Protocol.load("office-caltech"), Results(ROOT / "results")
    dataset = read_dataset(protocol.layout, data / "office_caltech")
    stores = Stores(tmp_path / "bags", {photo.name: photo for photo in dataset.photos})
    at_work = Runner(protocol, dataset, stores, Results(tmp_path / "results"))
    selection = Selection(
        settings=("unsupervised",),
        pairs=("webcam-dslr",),
        splits=1,
        recipes=("dense",),
        voters=("nbnn", "snbnl", "whole-svm"),
    )
    groups, _ = plan(protocol, selection, at_work.results)
    fresh = {voter: cell["accuracy"] for _, voter, cell in at_work.compute(groups)}
    for voter, accuracy in fresh.items():
        kept = committed.read(groups[0].run(protocol, voter))
        (old,) = (c["accuracy"] for c in kept["cells"] if (c["pair"], c["split"]) == ("webcam-dslr", 1))
        assert accuracy == pytest.approx(old, abs=0.2), voter
    assert len(fresh) == 3
    draw = Draw("unsupervised", "webcam-dslr", 1)
    kept, fresh_draw = (read_draws(root / "office-caltech")[draw] for root in (ROOT / "results", tmp_path / "results"))
    assert kept == fresh_draw


def test_the_page_of_results_is_made_from_the_committed_results(tmp_path):
    pytest.importorskip("matplotlib")
    from experiments.page.page import write_results

    page = write_results(Results(ROOT / "results"), tmp_path)
    assert page.read_text(encoding="utf-8") == (ROOT / "docs" / "results.md").read_text(encoding="utf-8")
    for path in sorted((tmp_path / "results").iterdir()):
        assert (ROOT / "docs" / "results" / path.name).exists()


def test_committed_results_belong_to_the_splits_of_today():
    results = Results(ROOT / "results")
    for protocol in map(Protocol.load, PROTOCOLS):
        plan(protocol, Selection(), results)  # compares how splits are drawn
    _, finished = plan(Protocol.load("office-caltech"), Selection(recipes=("dense",)), results)
    assert finished == 9 * 10 * (16 + 12)  # voters, splits, and pairs of both settings
