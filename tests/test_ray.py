"""Extraction, answers and training on workers of an engine, some of which are killed meanwhile."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from helpers.command import network_in
from helpers.local_engine import LocalEngine
from helpers.quick_network import QUICK
from helpers.shards import assert_same_bags
from helpers.workers import DeadlyNetwork, Doubling, Ending, Fainting, FaintingNetwork, Refusing, TracedNetwork
from patchvote import SNBNL, Extractor, ImageClassifier, PatchvoteError, Photo, Store, StoreError, fill
from patchvote.models.file import read_model

rays = pytest.importorskip("patchvote.engines.ray")


def test_engines_do_every_item_once_and_raise_the_error_of_a_job(engine):
    for one in (engine, LocalEngine()):
        assert sorted(one.run(Doubling(), range(10))) == [(number, 2 * number) for number in range(10)]
        assert list(one.run(Doubling(), [])) == []
        with pytest.raises(StoreError, match="closed today"):
            list(one.run(Refusing(), range(4)))


def test_a_member_of_a_team_that_ends_is_replaced_and_there_is_a_core_for_each(cluster, tmp_path):
    with contextlib.closing(rays.RayEngine(workers=5).team(Fainting(tmp_path))) as team:
        assert team.size == 2
        assert team.ask(10, [1, 2]) == [11, 12]
    assert (tmp_path / "fainted").exists()


def test_workers_that_end_whatever_they_are_given_end_the_run(cluster, monkeypatch):
    monkeypatch.setattr("patchvote.engines.ray._DEATHS_IN_A_ROW", 1)
    with pytest.raises(PatchvoteError, match="workers of 'double' have ended one after the other"):
        list(rays.RayEngine(workers=1).run(Ending(), range(4)))


def test_bags_of_workers_equal_those_of_one_process_bit_for_bit(cluster, command, photo_folder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # workers understand relative paths
    network_in(tmp_path)
    shutil.copytree(photo_folder, "photos")
    (tmp_path / "photos" / "grass" / "broken.jpg").write_bytes(b"no photo")
    one = command("extract", "photos", "one", "--network", "tiny.onnx", "--jobs", 2)
    many = command("extract", "photos", "many", "--network", "tiny.onnx", "--engine", "ray", "--workers", 2)
    assert (one.code, many.code) == (3, 3)
    assert "skipped grass/broken.jpg: is not an image" in many.err
    assert_same_bags(tmp_path / "many", tmp_path / "one")
    assert all(shard.moments is not None for shard in Store.open("many").shards)
    assert len({path.name.split("-")[1] for path in (tmp_path / "many").iterdir()} - {str(os.getpid())}) == 2
    again = command("extract", "photos", "many", "--network", "tiny.onnx", "--engine", "ray", "--workers", 2)
    assert "0 photos extracted; 40 were there already" in again.out


def test_a_worker_that_is_killed_at_work_is_replaced_and_its_work_done_again(cluster, photo_folder, tmp_path, trace):
    extractor = Extractor(QUICK, backbone=FaintingNetwork(trace), jobs=1)
    filled = fill(tmp_path / "store", photo_folder, extractor, engine=rays.RayEngine(workers=1))
    assert filled.done == 40
    assert filled.skipped == []
    assert len(list(trace.glob("[0-9]*"))) == 2  # the killed one, and one in its place
    fill(tmp_path / "reference", photo_folder, Extractor(QUICK, backbone=TracedNetwork(trace)))
    assert_same_bags(tmp_path / "store", tmp_path / "reference")


def test_a_photo_that_ends_its_worker_twice_is_named_and_left_out(engine, tmp_path, trace, photo_folder):
    photos = tmp_path / "photos"
    shutil.copytree(photo_folder / "brick", photos / "brick")
    Image.new("RGB", (64, 64), (255, 0, 0)).save(photos / "brick" / "deadly.png")
    extractor = Extractor(QUICK, backbone=DeadlyNetwork(trace))
    filled = fill(tmp_path / "store", photos, extractor, engine=engine)
    (error,) = filled.skipped
    assert error.name == "brick/deadly.png"
    assert "ended the process that read it, twice" in error.reason
    assert filled.extracted + filled.kept == 10
    assert 2 <= len(list(trace.glob("* died"))) <= 6
    (photos / "brick" / "deadly.png").unlink()
    fill(tmp_path / "reference", photos, extractor)
    assert_same_bags(tmp_path / "store", tmp_path / "reference")


def test_workers_answer_and_measure_as_one_process_does(cluster, place, command):
    (place / "photos" / "rose" / "broken.jpg").write_bytes(b"no photo")
    for words in (["predict", "n.patchvote", "photos"], ["evaluate", "m.patchvote", "photos", "--json", "--no-report"]):
        one, many = command(*words), command(*words, "--engine", "ray", "--workers", 2)
        assert (many.code, many.out) == (one.code, one.out)
        assert "skipped " in many.err
    done = command("extract", "photos", "store", "--workers", 2)
    assert (done.code, "can be set only with --engine ray" in done.err) == (2, True)


def test_images_in_memory_and_models_in_no_file_are_not_sent_to_workers(engine, flowers, tmp_path, trace):
    photos = [Photo("a", np.zeros((64, 64, 3), np.uint8))]
    with pytest.raises(StoreError, match="a is an image in memory"):
        fill(tmp_path / "store", photos, Extractor(QUICK, backbone=TracedNetwork(trace)), engine=engine)
    classifier = ImageClassifier.load(flowers / "m.patchvote", cache=False)
    classifier.model = dataclasses.replace(classifier.model, threshold=0.5)
    with pytest.raises(PatchvoteError, match="save it"):
        next(classifier.answers(flowers / "photos", engine=engine))


@pytest.mark.parametrize("voter", ["auto", "snbnl"])
def test_fit_on_workers_gives_the_model_of_one_process(voter, cluster, command, photo_folder, tmp_path, monkeypatch):
    monkeypatch.setattr("patchvote.bags.store._MAX_TRAINING_DESCRIPTORS", 480)  # 30 descriptors of each photo
    monkeypatch.chdir(tmp_path)  # workers understand relative paths
    network_in(tmp_path)
    shutil.copytree(photo_folder, "photos", ignore=shutil.ignore_patterns("*no. [4-9].*"))
    (tmp_path / "photos" / "grass" / "broken.jpg").write_bytes(b"no photo")
    words = ["fit", "photos", "--voter", voter, "--network", "tiny.onnx", "--no-report", "--budget", 600]
    one = command(*words, "one.patchvote", "--cache", "one")
    jobs = []
    for method in ("run", "team"):
        original = getattr(rays.RayEngine, method)
        spy = lambda self, job, *more, original=original: jobs.append(job.name) or original(self, job, *more)  # noqa: E731
        monkeypatch.setattr(rays.RayEngine, method, spy)
    many = command(*words, "many.patchvote", "--cache", "many", "--engine", "ray", "--workers", 2)
    assert [job.split()[-1] for job in jobs] == (["extract", "snbnl"] if voter == "snbnl" else ["extract"])
    assert (one.code, many.code) == (3, 3)
    assert "skipped grass/broken.jpg: is not an image" in many.err
    assert len(files_of(tmp_path / "one")) > 15
    assert files_of(tmp_path / "many") == files_of(tmp_path / "one")
    assert_same_models(read_model("many.patchvote"), read_model("one.patchvote"), exact=voter != "snbnl")


def files_of(folder: Path) -> dict[Path, bytes]:
    return {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def assert_same_models(model, expected, *, exact: bool) -> None:
    assert (model.kind, model.classes) == (expected.kind, expected.classes)
    assert (model.temperature, model.threshold) == (expected.temperature, expected.threshold)  # chosen in this process
    assert model.scorer.arrays.keys() == expected.scorer.arrays.keys()
    for name, array in expected.scorer.arrays.items():
        if exact:
            np.testing.assert_array_equal(model.scorer.arrays[name], array)
        else:
            np.testing.assert_allclose(model.scorer.arrays[name], array, atol=1e-3)  # rounding drifts


def test_a_classifier_learns_adapts_and_learns_more_with_any_engine(photo_folder, tmp_path, trace):
    models = []
    for number, engine in enumerate((None, LocalEngine())):
        settings = {"backbone": TracedNetwork(trace), "cache": tmp_path / str(number), "budget": 600.0}
        ridge = ImageClassifier(QUICK, **settings).fit(photo_folder, engine=engine)
        nets = ImageClassifier(QUICK, voter="snbnl", **settings).fit(photo_folder, engine=engine)
        known = ridge.add(photo_folder, engine=engine).known
        models.append((ridge.adapt(photo_folder, insist=True, engine=engine).model, nets.model, known))
    (ridge, nets, known), (here_ridge, here_nets, here_known) = models
    assert_same_models(ridge, here_ridge, exact=True)
    assert_same_models(nets, here_nets, exact=False)
    assert known == here_known == 40


def test_gradients_in_parts_train_the_prototypes_of_one_process_and_continue_from_a_checkpoint(
    photo_folder, trace, tmp_path, monkeypatch
):
    monkeypatch.setattr("patchvote.voters.snbnl.most_in_memory", lambda *_: 200)
    fill(tmp_path / "store", photo_folder, Extractor(QUICK, backbone=TracedNetwork(trace)))
    store, file = Store.open(tmp_path / "store"), tmp_path / "training"
    settings = {"batch_size": 40, "n_prototypes": 3, "power": 0.5, "position_weight": 0.0}
    ended = SNBNL(**settings).set_options(checkpoint=file, callback=lambda record: record["pass"] == 2)
    assert ended.fit_on_workers(store, engine=LocalEngine()).n_iter_ == 2
    many = SNBNL(**settings).set_options(checkpoint=file).fit_on_workers(store, engine=LocalEngine())
    one = SNBNL(**settings).fit(store)
    assert (many.steps_, many.n_iter_) == (one.steps_, one.n_iter_)
    np.testing.assert_allclose(many.weights_, one.weights_, rtol=1e-5, atol=1e-5)


LISTENING = """
import os, sys
from pathlib import Path
from helpers.workers import Doubling
from patchvote.engines.ray import RayEngine

def listening():
    mark, sockets = os.environ["PATCHVOTE_TEST_MARK"].encode(), {}
    for kind in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{kind}").read_text().splitlines()[1:]:
            words = line.split()
            if words[3] == "0A":  # it listens
                sockets[f"socket:[{words[9]}]"] = words[1].partition(":")[0]
    for process in Path("/proc").iterdir():
        try:
            if process.name.isdigit() and mark in (process / "environ").read_bytes():
                for file in (process / "fd").iterdir():
                    if (address := sockets.get(os.readlink(file))) is not None:
                        yield process.name, address
        except OSError:  # it has ended
            pass

with RayEngine(workers=1) as engine:
    assert sorted(engine.run(Doubling(), range(3))) == [(0, 0), (1, 2), (2, 4)]
    for process, address in listening():
        print(process, address)
with RayEngine(workers=1):  # the token of the first cluster is forgotten, else the second would not start
    pass
assert [name for name in os.environ if name.startswith("RAY_AUTH")] == []
"""
LOOPBACK = {"0100007F", "0000000000000000FFFF00000100007F", "00000000000000000000000001000000"}  # as /proc/net has them


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="sockets are looked up in /proc")
def test_a_cluster_that_is_started_listens_on_this_machine_alone_and_leaves_no_token(tmp_path):
    root = Path(__file__).parent.parent
    environment = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    environment |= {"PATCHVOTE_TEST_MARK": f"mark-of-{tmp_path}", "HOME": str(tmp_path)}
    environment |= {"PYTHONPATH": os.pathsep.join([str(root / "src"), str(root / "tests")])}
    words = [sys.executable, "-c", LISTENING]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    found = [line.split() for line in done.stdout.splitlines()]
    assert len({process for process, _ in found}) >= 4  # this process, two of Ray's own at least, and the worker
    assert {address for _, address in found} <= LOOPBACK
    assert not (tmp_path / ".ray").exists()


def test_an_address_at_which_nothing_listens_is_told_at_once():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))  # bound, but it does not listen
        address = f"127.0.0.1:{free.getsockname()[1]}"
        for wrong in (address, f"ray://{address}", "nowhere.invalid:6379", "127.0.0.1:99999999"):
            told = pytest.raises(PatchvoteError, match=f"nothing answers at the address '{wrong}' .*ray start --head")
            with told, rays.connected(wrong):
                pytest.fail("connected")
