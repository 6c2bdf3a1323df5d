"""Networks learn together with the votes."""

from __future__ import annotations

import dataclasses
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import types
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from patchvote import ImageClassifier, PatchvoteError  # noqa: E402
from patchvote.networks import graph_of, load  # noqa: E402
from patchvote.nn import TuningSettings, VoteHead, fine_tune  # noqa: E402
from patchvote.nn.trunk import Seen  # noqa: E402
from patchvote.nn.trunk import pixels as pixels_of  # noqa: E402
from patchvote.photos.decode import load_image  # noqa: E402
from patchvote.photos.find import find_photos  # noqa: E402
from patchvote.utils.files import temporary_folder  # noqa: E402
from patchvote.utils.machine import cores  # noqa: E402
from patchvote.utils.onnx_graph import GraphBuilder  # noqa: E402

pytestmark = pytest.mark.slow

torch.set_num_threads(1)  # everything here is small: waking a second thread takes longer than the work

SMALL = TuningSettings(side=64, variants=2, passes=4, batch=8, prototypes=2, held_out=0.3)
QUICK = dataclasses.replace(SMALL, start="stem", variants=1, passes=3)  # for the small network


@pytest.fixture(scope="module")
def tuned(photo_folder):
    """The default network, tuned once for all tests that look at what comes out."""
    return fine_tune("efficientnet-lite0", photo_folder, settings=SMALL)


@pytest.fixture(scope="module")
def small_network(tmp_path_factory) -> str:
    """A network of two convolutions, for the tests that ask how learning goes on and not how well it does."""
    rng, graph = np.random.default_rng(0), GraphBuilder()
    first, second = (
        graph.constant(rng.normal(size=shape) / np.sqrt(np.prod(shape[1:])), name=name)
        for shape, name in (((8, 3, 16, 16), "first"), ((12, 8, 2, 2), "second"))
    )
    scaled = graph.node("Mul", "image", graph.constant(1 / 64))
    graph.node("Relu", graph.node("Conv", scaled, first, strides=[16, 16]), output="stem")
    graph.node("Relu", graph.node("Conv", "stem", second, strides=[2, 2]), output="features")
    path = tmp_path_factory.mktemp("network") / "small.onnx"
    model = graph.model("small", {"image": ["n", 3, "h", "w"]}, {"features": ["n", 12, "rows", "columns"]})
    path.write_bytes(model.SerializeToString())
    path.with_suffix(".toml").write_text("mean = 127\nsize = 64\n")
    return str(path)


@pytest.fixture(scope="module")
def few_photos(photo_folder, tmp_path_factory):
    """Five photos of each class."""
    root = tmp_path_factory.mktemp("few")
    for photo in find_photos(photo_folder)[::2]:
        (root / str(photo.label)).mkdir(exist_ok=True)
        (root / str(photo.label) / Path(photo.name).name).write_bytes(Path(photo.source).read_bytes())
    return root


class SlowTrunk:
    """The frozen part of a network that takes its time, and counts its calls."""

    def __init__(self):
        self.calls, self.spec = 0, types.SimpleNamespace(stride=32)

    def __call__(self, images):
        self.calls += 1
        time.sleep(0.1)
        return np.zeros((1, 2, 2, 3), np.float32)


def test_ctrl_c_while_photos_are_looked_at_waits_for_no_other_photo(few_photos, tmp_path):
    def interrupted(step, done, total):
        raise KeyboardInterrupt

    trunk, settings = SlowTrunk(), dataclasses.replace(SMALL, variants=8)
    with pytest.raises(KeyboardInterrupt):
        Seen(tmp_path, find_photos(few_photos), set(), trunk, settings, interrupted)
    threads = cores()
    # Each thread has looked at one photo and, at most, begun another: others that wait are not begun.
    assert trunk.calls <= threads * (settings.variants + 2)


def test_a_disk_without_room_for_the_maps_is_told_before_anything_is_written(few_photos, tmp_path, monkeypatch):
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=10))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with pytest.raises(PatchvoteError, match="the temporary folder .* is full"), temporary_folder() as folder:
        Seen(folder, find_photos(few_photos)[:2], set(), SlowTrunk(), dataclasses.replace(SMALL, variants=1))


def test_tail_and_head_learn_and_the_held_out_photos_tell(tuned):
    assert tuned.classes == ("Straße & Café", "brick", "grass", "gravel")
    assert tuned.history[-1]["loss"] < tuned.history[0]["loss"]
    assert max(told["held_out_accuracy"] for told in tuned.history) > 0.8


def test_the_tuned_network_runs_in_onnx_runtime_and_differs_from_the_old_one_in_its_tail(tuned, photo_folder, tmp_path):
    net, old = load(str(tuned.save_network(tmp_path / "tuned.onnx"))), load("efficientnet-lite0")
    assert (net.spec.dim, net.spec.stride, net.spec.size) == (1280, 32, 224)
    assert net.spec.preprocessing == old.spec.preprocessing
    pixels = pixels_of(load_image(find_photos(photo_folder)[0]), (64, 64))[None]
    assert not np.allclose(net(pixels), old(pixels), atol=1e-3)
    before = {t.name: t.SerializeToString() for t in graph_of("efficientnet-lite0")[0].graph.initializer}
    changed = {t.name for t in tuned.graph.graph.initializer if t.SerializeToString() != before[t.name]}
    assert "_blocks.15._project_conv.weight" in changed
    assert {name.split(".")[1] for name in changed if name.startswith("_blocks")} == {"15"}


class Tiring(VoteHead):
    """A head that answers the opposite of what it learned from its fourth pass on."""

    def __init__(self, features, classes):
        super().__init__(features, classes, 2)
        self.register_buffer("passes", torch.zeros(()))

    def train(self, mode=True):
        if hasattr(self, "passes"):
            self.passes += mode
        return super().train(mode)

    def forward(self, *maps):
        votes = super().forward(*maps)
        return votes if self.training or self.passes < 4 else -votes


def test_training_stops_when_held_out_photos_gain_nothing_and_gives_back_the_best(small_network, few_photos):
    long = dataclasses.replace(QUICK, passes=30, patience=2)
    tuned = fine_tune(small_network, few_photos, settings=long, head=Tiring)
    accuracies = [record["held_out_accuracy"] for record in tuned.history]
    best = max(i for i, accuracy in enumerate(accuracies) if accuracy == max(accuracies))
    assert best < 3
    assert len(accuracies) == best + 1 + 2
    assert tuned.head.passes == best + 1
    right = tuned.held_out.probability.argmax(axis=1) == tuned.held_out.expected
    assert right.mean() == pytest.approx(max(accuracies))


def test_with_no_photo_held_out_all_passes_are_made_and_the_last_weights_given_back(small_network, few_photos):
    heads, weights = [], []

    def head(features: int, classes: int) -> VoteHead:
        heads.append(VoteHead(features, classes, 2))
        return heads[0]

    def look(what: str, done: int, total: int) -> None:
        if what == "fine-tune":
            weights.append(heads[0].vote.weight.detach().clone())

    none = dataclasses.replace(QUICK, patience=1, held_out=0.0)
    tuned = fine_tune(small_network, few_photos, settings=none, head=head, progress=look)
    assert len(tuned.history) == len(weights) == 3
    assert tuned.held_out is None
    assert torch.equal(tuned.head.vote.weight, weights[2])
    assert not torch.equal(weights[2], weights[1])


def test_a_training_that_was_killed_goes_on_and_ends_where_it_would_have_ended(small_network, few_photos, tmp_path):
    path = tmp_path / "checkpoint.safetensors"
    code = f"""
import os, signal, torch
from patchvote.nn import TuningSettings, fine_tune
torch.set_num_threads(1)
def kill(what, done, total):
    if what == "fine-tune" and done == 2:
        os.kill(os.getpid(), signal.SIGKILL)
fine_tune({small_network!r}, {str(few_photos)!r}, settings={QUICK!r}, checkpoint={str(path)!r}, progress=kill)
"""
    assert subprocess.run([sys.executable, "-c", code], timeout=300).returncode == -signal.SIGKILL
    passes = []
    again = fine_tune(
        small_network,
        few_photos,
        settings=QUICK,
        checkpoint=path,
        progress=lambda what, done, total: passes.append(done) if what == "fine-tune" else None,
    )
    assert passes == [3]
    whole = fine_tune(small_network, few_photos, settings=QUICK)
    assert again.history == whole.history
    for name, value in whole.head.state_dict().items():
        torch.testing.assert_close(again.head.state_dict()[name], value, rtol=0, atol=0)
    assert again.graph.SerializeToString() == whole.graph.SerializeToString()
    with pytest.raises(PatchvoteError, match="is of another fine-tuning"):
        fine_tune(small_network, few_photos, settings=dataclasses.replace(QUICK, rate=1), checkpoint=path)


def test_a_file_that_is_no_checkpoint_is_refused(small_network, few_photos, tmp_path):
    path = tmp_path / "checkpoint.safetensors"
    path.write_bytes(b"nonsense")
    with pytest.raises(PatchvoteError, match="is not a checkpoint of fine-tuning"):
        fine_tune(small_network, few_photos, settings=QUICK, checkpoint=path)


def test_a_head_that_draws_lots_resumes_exactly_and_another_head_is_refused(small_network, few_photos, tmp_path):
    def dropping(features: int, classes: int) -> torch.nn.Module:
        pool = torch.nn.Sequential(torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), torch.nn.Dropout(0.5))
        return torch.nn.Sequential(pool, torch.nn.Linear(features, classes))

    def stop(what: str, done: int, total: int) -> None:
        if what == "fine-tune":
            raise KeyboardInterrupt

    path = tmp_path / "checkpoint.safetensors"
    whole = fine_tune(small_network, few_photos, settings=QUICK, head=dropping)
    with pytest.raises(KeyboardInterrupt):
        fine_tune(small_network, few_photos, settings=QUICK, head=dropping, checkpoint=path, progress=stop)
    resumed = fine_tune(small_network, few_photos, settings=QUICK, head=dropping, checkpoint=path)
    assert resumed.history == whole.history
    with pytest.raises(PatchvoteError, match="is of another fine-tuning"):
        fine_tune(small_network, few_photos, settings=QUICK, checkpoint=path)


def test_a_device_that_is_not_there_is_named(photo_folder):
    with pytest.raises(PatchvoteError, match="torch cannot use the device 'cuda:99' here"):
        fine_tune("efficientnet-lite0", photo_folder, settings=SMALL, device="cuda:99")


def test_a_class_called_none_of_these_is_refused(small_network, few_photos):
    photos = find_photos(few_photos)
    labels = ["None of these" if photo.label == "brick" else photo.label for photo in photos]
    with pytest.raises(PatchvoteError, match="a class may not be called 'None of these'"):
        fine_tune(small_network, photos, labels, settings=QUICK)


def test_another_head_may_learn_instead_of_the_votes(photo_folder):
    def pooled(features: int, classes: int) -> torch.nn.Module:
        return torch.nn.Sequential(
            torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), torch.nn.Linear(features, classes)
        )

    tuned = fine_tune("efficientnet-lite0", photo_folder, settings=dataclasses.replace(SMALL, passes=2), head=pooled)
    assert not isinstance(tuned.head, VoteHead)
    assert tuned.history[-1]["held_out_accuracy"] > 0.5


def test_photos_that_cannot_be_read_are_named_and_left_out(small_network, few_photos, tmp_path):
    photos = find_photos(few_photos)
    bad = tmp_path / "bad.jpg"
    bad.write_bytes(b"no photo")
    paths = [photo.source for photo in photos] + [bad]
    labels = [str(photo.label) for photo in photos] + ["brick"]
    tuned = fine_tune(small_network, paths, labels, settings=dataclasses.replace(QUICK, passes=1))
    assert [error.name for error in tuned.skipped] == [str(bad)]
    assert str(bad) not in tuned.held_out.names
    assert tuned.images == dict.fromkeys(tuned.classes, 5)


@pytest.mark.parametrize("name", ["birds.onnx", "birds.toml"])
def test_a_model_cannot_have_the_name_of_a_file_of_its_network(name, small_network, few_photos, tmp_path):
    tuned = fine_tune(small_network, few_photos, settings=dataclasses.replace(QUICK, passes=1))
    with pytest.raises(PatchvoteError, match=f"{name} cannot be a model.* such as birds.patchvote"):
        tuned.save(tmp_path / name)
    assert not list(tmp_path.iterdir())


def test_a_network_of_ones_own_must_say_where_its_tail_begins(small_network, few_photos):
    with pytest.raises(PatchvoteError, match="the tensor of .*small.onnx .* is required"):
        fine_tune(small_network, few_photos, settings=SMALL)


def test_the_tuned_model_answers_without_torch_as_it_did_in_torch(tuned, photo_folder, few_photos, tmp_path):
    (tmp_path / "made").mkdir()
    tuned.save(tmp_path / "made" / "tuned.patchvote")
    (tmp_path / "made").rename(tmp_path / "moved")  # the network lies beside the model
    path = tmp_path / "moved" / "tuned.patchvote"
    code = f"""
import sys
sys.modules["torch"] = None
from patchvote import ImageClassifier
classifier = ImageClassifier.load({str(path)!r})
print(",".join(classifier.predict({str(photo_folder)!r})))
"""
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert told.returncode == 0, told.stderr
    labels = told.stdout.strip().split(",")
    assert np.mean([label == photo.label for label, photo in zip(labels, find_photos(photo_folder), strict=True)]) > 0.8
    answers = dict(zip([photo.name for photo in find_photos(photo_folder)], labels, strict=True))
    expected = [tuned.classes[i] for i in tuned.held_out.probability.argmax(axis=1)]
    assert [answers[name] for name in tuned.held_out.names] == expected
    grown = ImageClassifier.load(path, cache=tmp_path / "cache").add(few_photos)
    assert np.mean(grown.predict(few_photos) == [photo.label for photo in find_photos(few_photos)]) > 0.8


def test_copies_of_a_photo_are_held_out_together(small_network, photo_folder, tmp_path):
    for path in sorted(photo_folder.glob("brick/*"))[:4] + sorted(photo_folder.glob("grass/*"))[:4]:
        folder = tmp_path / path.parent.name
        folder.mkdir(exist_ok=True)
        for copy in ("1", "2"):
            (folder / f"{path.stem} {copy}{path.suffix}").write_bytes(path.read_bytes())
    tuned = fine_tune(small_network, tmp_path, settings=dataclasses.replace(QUICK, passes=1, held_out=0.5))
    held_out = {name[: name.rindex(" ")] for name in tuned.held_out.names}
    assert len(tuned.held_out.names) == 2 * len(held_out) == 8
