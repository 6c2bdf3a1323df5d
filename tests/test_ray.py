from __future__ import annotations

import contextlib
import dataclasses
import os
import shutil

import numpy as np
import pytest
from PIL import Image

from helpers.command import network_in
from helpers.local_engine import LocalEngine
from helpers.quick_network import QUICK
from helpers.shards import assert_same_bags
from helpers.workers import DeadlyNetwork, Doubling, Ending, Fainting, FaintingNetwork, Refusing, TracedNetwork
from patchvote import Extractor, ImageClassifier, PatchvoteError, Photo, Store, StoreError, fill

RayEngine = pytest.importorskip("patchvote.engines.ray").RayEngine


# --- engines ----------------------------------------------------------------------------------------------------------


def test_engines_do_every_item_once_and_raise_the_error_of_a_job(engine):
    for one in (engine, LocalEngine()):
        assert sorted(one.run(Doubling(), range(10))) == [(number, 2 * number) for number in range(10)]
        assert list(one.run(Doubling(), [])) == []
        with pytest.raises(StoreError, match="closed today"):
            list(one.run(Refusing(), range(4)))


def test_a_member_of_a_team_that_ends_is_replaced_and_there_is_a_core_for_each(cluster, tmp_path):
    with contextlib.closing(RayEngine(workers=5).team(Fainting(tmp_path))) as team:
        assert team.size == 2
        assert team.ask(10, [1, 2]) == [11, 12]
    assert (tmp_path / "fainted").exists()


def test_workers_that_end_whatever_they_are_given_end_the_run(cluster, monkeypatch):
    monkeypatch.setattr("patchvote.engines.ray._DEATHS_IN_A_ROW", 1)
    with pytest.raises(PatchvoteError, match="workers of 'double' have ended one after the other"):
        list(RayEngine(workers=1).run(Ending(), range(4)))


# --- extract ----------------------------------------------------------------------------------------------------------


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
    filled = fill(tmp_path / "store", photo_folder, extractor, engine=RayEngine(workers=1))
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


def test_images_in_memory_are_not_sent_to_workers(engine, tmp_path, trace):
    photos = [Photo("a", np.zeros((64, 64, 3), np.uint8))]
    with pytest.raises(StoreError, match="a is an image in memory: workers of an engine read photos from files"):
        fill(tmp_path / "store", photos, Extractor(QUICK, backbone=TracedNetwork(trace)), engine=engine)


# --- answers and cells ------------------------------------------------------------------------------------------------


def test_workers_answer_and_measure_as_one_process_does(cluster, place, command):
    (place / "photos" / "rose" / "broken.jpg").write_bytes(b"no photo")
    for words in (["predict", "n.patchvote", "photos"], ["evaluate", "m.patchvote", "photos", "--json", "--no-report"]):
        one, many = command(*words), command(*words, "--engine", "ray", "--workers", 2)
        assert (many.code, many.out) == (one.code, one.out)
        assert "skipped " in many.err
    done = command("extract", "photos", "store", "--workers", 2)
    assert (done.code, "can be set only with --engine ray" in done.err) == (2, True)


def test_a_model_that_is_in_no_file_is_not_sent_to_workers(engine, flowers):
    classifier = ImageClassifier.load(flowers / "m.patchvote", cache=False)
    classifier.model = dataclasses.replace(classifier.model, threshold=0.5)
    with pytest.raises(PatchvoteError, match="workers of an engine read the model from a file: save it"):
        next(classifier.answers(flowers / "photos", engine=engine))
