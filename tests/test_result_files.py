"""Files of results: few, whole at every moment, shared by several processes, and readable for years."""

from __future__ import annotations

import importlib.metadata
import json
import multiprocessing
import shutil
from collections import Counter
from pathlib import Path

import pytest
from patchvote.protocols import Protocol, cells, draws
from patchvote.protocols.draws import Draw, read_draws
from patchvote.protocols.made_with import commit, here
from patchvote.protocols.page.summary import summarise
from patchvote.protocols.results import Results, Run
from patchvote.protocols.splits import Split

from helpers.result_cells import MADE_WITH, RUN, add_and_fold, cell
from patchvote.errors import PatchvoteError
from patchvote.utils.files import write_file

ROOT = Path(__file__).parent.parent
BEFORE = Path(__file__).parent / "before" / "results"  # as the version before wrote them, byte for byte


def everything(results: Results, protocol: str = "p") -> list:
    return list(results.all(protocol))


@pytest.fixture
def before(tmp_path) -> Path:
    return shutil.copytree(BEFORE, tmp_path / "before")


# --- few files --------------------------------------------------------------------------------------------------------


def test_folding_leaves_three_files_per_protocol_and_the_same_cells(tmp_path):
    results = Results(tmp_path)
    results.keep_draws("p", {Draw("random", None, split): Split(["a"], ["b"]) for split in (1, 2, 3)})
    for split in (3, 1, 2):
        results.add(RUN, MADE_WITH, cell(split))
    assert len(list((tmp_path / "p" / "running").iterdir())) == 3
    kept = everything(results)
    assert results.fold("p") == 3
    assert sorted(path.name for path in (tmp_path / "p").iterdir()) == ["cells.jsonl", "made_with.json", "splits.jsonl"]
    assert everything(results) == everything(Results(tmp_path)) == kept
    assert results.fold("p") == 0
    results.add(RUN, MADE_WITH, cell(4))
    assert results.fold("p") == 1
    assert results.done(RUN) == {(None, split) for split in (1, 2, 3, 4)}


def test_what_cells_were_made_with_is_written_once(tmp_path):
    results = Results(tmp_path)
    for split in range(1, 5):
        results.add(RUN, MADE_WITH, cell(split, commit="abc1234" if split < 4 else "def5678"))
    results.fold("p")
    records = json.loads((tmp_path / "p" / "made_with.json").read_text())["records"]
    assert sorted(record["commit"] for record in records.values()) == ["abc1234", "def5678"]
    assert all(record["settings"] == {"q": 2.0} and record["versions"] == {"numpy": "2"} for record in records.values())
    lines = [json.loads(line) for line in (tmp_path / "p" / "cells.jsonl").read_text().splitlines()]
    assert [line["split"] for line in lines] == [1, 2, 3, 4]
    assert {line["made_with"] for line in lines} == records.keys()
    assert not any("versions" in line or "settings" in line for line in lines)


def test_the_results_of_this_repository_are_few_files():
    if not (ROOT / "results").is_dir():
        pytest.skip("the results are not here")
    files = [path for path in (ROOT / "results").glob("*/*") if path.parent.name not in ("bench", "published")]
    per_folder = Counter(path.parent.name for path in files)
    assert max(per_folder.values()) <= 6  # however many cells an experiment has
    assert not any(path.is_dir() for path in files)  # no cells that are not folded in
    assert sum(len(kept["cells"]) for _, kept in Results(ROOT / "results").all("office-caltech")) >= 4456


def test_a_cell_of_this_code_tells_its_commit(tmp_path):
    if not (ROOT / ".git").exists():
        pytest.skip("this is no repository")
    assert 7 <= len(str(commit()).removesuffix("+")) <= 12
    strange = tmp_path / "src" / "patchvote"
    strange.mkdir(parents=True)
    assert commit(strange) is None  # installed, or in a folder that is no repository


# --- several processes, and kills -------------------------------------------------------------------------------------


def test_processes_that_add_and_fold_at_once_lose_nothing(tmp_path):
    context = multiprocessing.get_context("spawn")
    workers = [context.Process(target=add_and_fold, args=(tmp_path, number)) for number in range(4)]
    for worker in workers:
        worker.start()
    results, most = Results(tmp_path), 0
    while any(worker.is_alive() for worker in workers):
        found = len(results.done(RUN))  # somebody who reads meanwhile never sees a cell vanish
        assert found >= most
        most = found
    for worker in workers:
        worker.join()
        assert worker.exitcode == 0
    results.fold("p")
    assert len(results.done(RUN)) == 4 * 15
    assert len((tmp_path / "p" / "cells.jsonl").read_text().splitlines()) == 4 * 15
    assert len(read_draws(tmp_path / "p")) == 4


class Killed(BaseException):
    """As a kill: nothing after it is done."""


@pytest.mark.parametrize("step", range(5))
def test_a_fold_that_is_killed_loses_nothing(step, before, monkeypatch):
    results = Results(before)
    results.add(Run("scene15-patches", "random", "snbnl", "dense", "n"), MADE_WITH, cell(1))
    kept = everything(results, "scene15-patches")
    steps = iter(range(5))

    def write(path, parts):
        if next(steps) == step:
            raise Killed
        write_file(path, parts)

    def remove(files, folder):
        if next(steps) < step:
            files[0].unlink()
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(cells, "write_file", write)
        patch.setattr(draws, "write_file", write)
        patch.setattr("patchvote.protocols.results._remove", remove)
        with pytest.raises(Killed):
            results.fold("scene15-patches")
    assert everything(Results(before), "scene15-patches") == kept
    again = Results(before)
    again.fold("scene15-patches")
    assert everything(again, "scene15-patches") == kept
    assert sorted(path.name for path in (before / "scene15-patches").iterdir()) == [
        "cells.jsonl",
        "made_with.json",
        "splits.jsonl",
    ]


def test_a_cell_that_two_processes_computed_counts_once(tmp_path):
    one, other = Results(tmp_path), Results(tmp_path)
    one.add(RUN, MADE_WITH, cell(1, accuracy=50.0))
    other.add(RUN, MADE_WITH, cell(1, accuracy=51.0))
    one.fold("p")
    other.add(RUN, MADE_WITH, cell(1, accuracy=52.0))
    other.fold("p")
    ((_, kept),) = everything(one)
    assert [found["accuracy"] for found in kept["cells"]] == [50.0]


def test_damaged_files_are_named_with_the_line(tmp_path):
    results = Results(tmp_path)
    for split in (1, 2):
        results.add(RUN, MADE_WITH, cell(split))
    results.fold("p")
    path = tmp_path / "p" / "cells.jsonl"
    whole = path.read_text()
    for text, message in [
        (whole[:-9], "cells.jsonl, line 2, is not a result of a protocol"),
        (whole.replace('"split": 2', '"split": "2"'), "cells.jsonl is not a result of a protocol"),
        (whole.replace('"voter"', '"vater"'), "cells.jsonl is not a result of a protocol"),
    ]:
        path.write_text(text)
        with pytest.raises(PatchvoteError, match=message):
            everything(Results(tmp_path))
        with pytest.raises(PatchvoteError, match=message):
            Results(tmp_path).fold("p")
        assert path.read_text() == text
    path.write_text(whole)
    (tmp_path / "p" / "made_with.json").write_text('{"format": 2}')
    with pytest.raises(PatchvoteError, match="made_with.json is not a result of a protocol"):
        everything(Results(tmp_path))
    draw = {"setting": "random", "pair": ["a", "b"], "split": 1, "train": [], "test": []}
    (tmp_path / "p" / "splits.jsonl").write_text(json.dumps(draw))
    with pytest.raises(PatchvoteError, match="splits.jsonl, line 1, is not a split of a protocol"):
        read_draws(tmp_path / "p")
    (tmp_path / "p" / "made_with.json").unlink()
    with pytest.raises(PatchvoteError, match="made_with.json is missing"):
        everything(Results(tmp_path))


# --- what the version before wrote ------------------------------------------------------------------------------------


def test_results_of_the_version_before_are_read_as_before(before):
    results = Results(before)
    rows = summarise(Protocol.load("scene15-settings"), results)
    assert [(row["voter"], row["splits"], row["mean"], row["deviation"]) for row in rows] == [
        ("snbnl", 3, 92.37, 0.64),
        ("snbnl(prototypes=1)", 3, 91.93, 1.1),
    ]
    run = Run("scene15-settings", "random", "snbnl(prototypes=1)", "dense", "efficientnet-lite0")
    written = json.loads((BEFORE / run.file).read_text())
    kept = results.read(run)
    assert kept is not None
    assert kept["cells"] == written["cells"]
    assert {key: kept[key] for key in ("settings", "sampling", "fingerprints", "drawn", "estimator")} == {
        key: written[key] for key in ("settings", "sampling", "fingerprints", "drawn", "estimator")
    }


def test_results_of_the_version_before_are_gone_on_with(before):
    results = Results(before)
    run = Run("scene15-settings", "random", "snbnl", "dense", "efficientnet-lite0")
    kept = results.read(run)
    made_with = {key: kept[key] for key in ("settings", "fingerprints", "drawn")}
    results.add(run, made_with, cell(4))
    assert results.done(run) == {(None, split) for split in (1, 2, 3, 4)}
    with pytest.raises(PatchvoteError, match="made with splits drawn otherwise: seed was 0, is 1"):
        results.check(run, {"drawn": kept["drawn"] | {"seed": 1}})


def test_results_of_the_version_before_are_folded_to_the_last_digit(before):
    names = "scene15-patches", "scene15-settings"
    kept = [everything(Results(before), name) for name in names]
    lists = [
        (BEFORE / "scene15-patches" / "splits" / f"random-01-{part}.txt").read_text().split()
        for part in ("train", "test")
    ]
    for name in names:
        Results(before).fold(name)
    assert [everything(Results(before), name) for name in names] == kept
    assert read_draws(before / "scene15-patches") == {Draw("random", None, 1): Split(*lists)}
    found = sorted(path.relative_to(before).as_posix() for path in before.rglob("*") if path.is_file())
    assert found == [
        *[f"scene15-patches/{name}" for name in ("cells.jsonl", "made_with.json", "splits.jsonl")],
        *[f"scene15-settings/{name}" for name in ("cells.jsonl", "made_with.json")],
    ]


def test_lists_of_the_version_before_are_compared_with_what_is_drawn(before):
    draw = Draw("random", None, 1)
    lists = [
        (before / "scene15-patches" / "splits" / f"random-01-{part}.txt").read_text().split()
        for part in ("train", "test")
    ]
    results = Results(before)
    results.keep_draws("scene15-patches", {draw: Split(*lists)})
    with pytest.raises(PatchvoteError, match="the split random-01 kept in .* lists other photos than are drawn now"):
        results.keep_draws("scene15-patches", {draw: Split(lists[0][1:], lists[1])})


def test_other_builds_of_a_package_are_recorded_in_its_place(monkeypatch):
    def version(name: str) -> str:
        if name in ("onnxruntime", "pillow"):
            raise importlib.metadata.PackageNotFoundError(name)
        return "1.2.3"

    monkeypatch.setattr(importlib.metadata, "version", version)
    versions = here()["versions"]
    assert versions["onnxruntime-gpu"] == versions["numpy"] == "1.2.3"
    assert "onnxruntime" not in versions
    assert "pillow" not in versions
