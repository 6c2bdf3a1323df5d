"""The comparison with peers: its table, what it says of peers that are better, and the page that has both."""

from __future__ import annotations

import importlib
import json
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
from PIL import Image

ROOT = Path(__file__).parent.parent
RECORDS = [ROOT / "results" / "bench" / f"{name}.json" for name in ("peers", "peers-amazon")]


@pytest.fixture(scope="module")
def modules():
    """The modules of the benchmark, which import one another by their names."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(ROOT / "benchmarks")
        yield {name: importlib.import_module(name) for name in ("peers", "peers_draws", "peers_table")}


def records_of(**methods):
    """Records of methods, each given as accuracy, won, lost, p, seconds to learn and per photo, GB, MB and lines."""
    columns = ("accuracy", "won", "lost", "p", "fit seconds", "photo seconds", "gigabytes", "model megabytes", "lines")
    records = [
        {"name": f"{column}, {name.replace('_', ' ')}", "value": value}
        for name, values in methods.items()
        for column, value in zip(columns, values, strict=True)
        if value is not None
    ]
    counts = (("photos to learn, Scenes", 30), ("photos asked, Scenes", 400))
    return [{"name": name, "value": value} for name, value in counts] + records


OURS = (90.0, None, None, None, 12.4, 0.04, 0.5, 2.0, 2)


@pytest.mark.parametrize(("page", "records"), [("README.md", RECORDS[0]), *(("docs/peers.md", one) for one in RECORDS)])
def test_the_page_has_the_table_of_the_records(modules, page, records):
    table = modules["peers_table"]
    page = (ROOT / page).read_text(encoding="utf-8")
    start, end = (f"<!-- {words}{records.stem} -->" for words in ("", "end of "))
    assert page.count(start) == page.count(end) == 1
    shown = page.partition(start)[2].partition(end)[0].strip()
    assert shown == "\n".join(table.lines_of(json.loads(records.read_text(encoding="utf-8"))))


def test_the_page_has_the_table_of_many_draws(modules):
    records = json.loads((ROOT / "results" / "bench" / "peers-draws.json").read_text(encoding="utf-8"))
    table = "\n".join(modules["peers_draws"].lines_of(records))
    assert f"\n\n{table}\n" in (ROOT / "docs" / "peers.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("records", RECORDS, ids=lambda path: path.stem)
def test_single_answers_add_up_to_the_records(modules, records):
    methods = modules["peers_table"].methods_of(json.loads(records.read_text(encoding="utf-8")))
    lines = records.with_suffix(".answers.jsonl").read_text(encoding="utf-8").splitlines()
    names, photos = json.loads(lines[0])["methods"], [json.loads(line) for line in lines[1:]]
    assert set(names) == set(methods)
    for index, name in enumerate(names):
        right = [one["right"][index] for one in photos]
        ours = [one["right"][names.index("patchvote")] for one in photos]
        assert methods[name]["accuracy"] == pytest.approx(100 * right.count("1") / len(photos))
        if name != "patchvote":
            assert methods[name]["won"] == list(zip(right, ours, strict=True)).count(("1", "0"))
            assert methods[name]["lost"] == list(zip(right, ours, strict=True)).count(("0", "1"))


def test_the_table_has_accuracy_with_its_error_and_the_comparison_photo_by_photo(modules):
    slow = (88.0, 4.0, 12.0, 0.077, 120.0, 0.5, 1.25, 100.0, 40)
    lines = modules["peers_table"].lines_of(records_of(patchvote=OURS, slow_network=slow))
    assert lines[0] == "Scenes: 30 photos to learn from, 400 others asked."
    assert "| patchvote | 90.0 ± 1.5 |  | 12 s | 40 ms | 0.50 GB | 2.0 MB | 2 |" in lines
    assert "| slow network | 88.0 ± 1.6 | 4 : 12 (0.077) | 120 s | 500 ms | 1.25 GB | 100.0 MB | 40 |" in lines


def test_a_method_that_did_not_run_has_a_row_with_the_reason(modules):
    failed = {"name": "did not run, colours: No module named 'colours'", "value": 1.0}
    lines = modules["peers_table"].lines_of([*records_of(patchvote=OURS), failed])
    (row,) = [line for line in lines if line.startswith("| colours")]
    assert row.startswith("| colours: No module named 'colours' | did not run |")
    assert row.count("|") == lines[2].count("|")


def test_peers_that_are_better_are_named_column_by_column(modules):
    text = modules["peers_table"].better(
        modules["peers_table"].methods_of(
            records_of(
                patchvote=OURS,
                sharp=(93.0, 14.0, 2.0, 0.004, 50.0, 0.04, 0.5, 2.0, 30),
                lucky=(90.5, 6.0, 4.0, 0.75, 5.0, 0.02, 0.5, 1.0, 30),
                late=(80.0, 0.0, 40.0, 0.0, 12.3, 0.06, 0.9, 9.0, 30),
            )
        )
    )
    assert "- in accuracy: sharp. Ahead by no more than chance explains: lucky (p = 0.75)." in text
    assert "- in time to learn: lucky (5 s)." in text  # 12.3 and 12.4 seconds are both written as 12 s
    assert "- in time per photo: lucky (20 ms)." in text
    assert "- in peak memory: none." in text
    assert "- in the model's size: lucky (1.0 MB)." in text
    assert "late" not in text


def test_where_no_peer_is_more_accurate_it_says_so(modules):
    table = modules["peers_table"]
    text = table.better(table.methods_of(records_of(patchvote=OURS, late=(80.0, 0, 40, 0.0, 99.0, 1.0, 0.9, 9.0, 30))))
    assert "- in accuracy: none beyond chance." in text
    even = (89.0, 6.0, 10.0, 0.45, 99.0, 1.0, 0.9, 9.0, 30)
    text = table.better(table.methods_of(records_of(patchvote=OURS, even=even)))
    assert (
        "- in accuracy: none beyond chance. Level or behind by no more than chance explains: even (p = 0.45)." in text
    )


def test_the_sign_test_counts_photos_that_only_one_of_both_has_right(modules):
    peers, figures = modules["peers"], dict.fromkeys(modules["peers_table"].COLUMNS, 1.0)
    ours = peers.Result(figures, (1.0, 1.0), {"a/1": True, "a/2": True, "b/1": True, "b/2": False, "b/3": True})
    other = peers.Result(figures, (1.0, 1.0), {"a/1": False, "a/2": False, "b/1": False, "b/2": True, "b/3": True})
    found = {one["name"]: one["value"] for one in peers.records_of("other", other, ours)}
    assert found["won, other"] == 1
    assert found["lost, other"] == 3
    assert found["p, other"] == pytest.approx(2 * 5 / 16)
    assert not [one for one in peers.records_of("patchvote", ours, ours) if one["name"].startswith("p,")]


def test_lines_of_other_classifiers_in_a_script_do_not_count(modules):
    peers = modules["peers"]
    logistic, chosen, text = (
        peers.Method("one", ("logistic",), "onnx_sklearn.py").lines(),
        peers.Method("two", ("logistic-cv",), "onnx_sklearn.py").lines(),
        (peers.SCRIPTS / "onnx_sklearn.py").read_text(),
    )
    assert chosen == logistic + 1  # the import of the search for C
    assert logistic < len(text.splitlines()) - 8
    assert peers.Method("patchvote").lines() == 2


def test_every_method_has_its_script_and_a_name_of_its_own(modules):
    peers = modules["peers"]
    assert len({method.name for method in peers.METHODS}) == len(peers.METHODS)
    assert all((peers.SCRIPTS / method.script).exists() for method in peers.METHODS if method.script)
    assert {method.script for method in peers.METHODS} - {None} == {path.name for path in peers.SCRIPTS.glob("*.py")}
    assert set(peers.QUICK) <= {method.name for method in peers.METHODS}


def test_points_at_one_place_share_a_label(modules):
    together = modules["peers_table"].together
    assert together([(0.0, 0.0), (1.0, 1.0), (1.01, 1.0), (0.0, 1.0)]) == [[0], [3], [1, 2]]
    assert together([(0.5, 0.5), (0.5, 0.5)]) == [[0, 1]]


def test_the_plot_is_drawn_where_every_method_is_right(modules, tmp_path):
    pytest.importorskip("matplotlib")
    perfect = (100.0, 1.0, 1.0, 1.0, 3.0, 0.02, 0.5, 2.0, 30)
    modules["peers_table"].draw(records_of(patchvote=(100.0, *OURS[1:]), other=perfect), tmp_path / "plot")
    assert {path.name for path in tmp_path.iterdir()} == {"plot.png", "plot.svg"}


def test_a_folder_that_leaves_no_photo_to_ask_about_is_refused_in_words(modules, tmp_path):
    (tmp_path / "photos" / "cat").mkdir(parents=True)
    for number in range(3):
        Image.new("RGB", (8, 8)).save(tmp_path / "photos" / "cat" / f"{number}.png")
    with pytest.raises(SystemExit, match="no class with more than 3 photos"):
        modules["peers"].divided(tmp_path / "photos", tmp_path / "drawn", 3, 2)
    _, test = modules["peers"].divided(tmp_path / "photos", tmp_path / "other", 2, 2)
    assert len(list(test.glob("*/*"))) == 1


@pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")
def test_make_bench_takes_folders_with_spaces_in_their_names():
    command = ["make", "--dry-run", "--no-print-directory", "bench", "PHOTOS=my photos", "RECORDS=my records"]
    lines = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.replace("\\\n", "")
    runs = [shlex.split(line) for line in lines.splitlines() if "benchmarks/" in line]
    assert len(runs) == 5
    assert all(words[words.index("--json") + 1].startswith("my records/") for words in runs)
    assert [words[words.index("--photos") + 1] for words in runs if "--photos" in words] == ["my photos"] * 4
