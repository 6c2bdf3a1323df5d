"""Networks learn together with the votes, and are kept only if they are better on photos that were held out."""

from __future__ import annotations

import dataclasses
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

torch = pytest.importorskip("torch")

from patchvote import Dense, ImageClassifier, Patch, PatchvoteError, Recipe  # noqa: E402
from patchvote.models.file import read_model  # noqa: E402
from patchvote.models.scores import Scores  # noqa: E402
from patchvote.networks import graph_of, load  # noqa: E402
from patchvote.nn import TuningSettings, VoteHead, fine_tune, tune_or_keep  # noqa: E402
from patchvote.nn.fine_tune import Learner  # noqa: E402
from patchvote.nn.tune_or_keep import Comparison  # noqa: E402
from patchvote.photos.find import find_photos  # noqa: E402
from patchvote.utils.onnx_graph import GraphBuilder  # noqa: E402

pytestmark = pytest.mark.slow

torch.set_num_threads(1)  # everything here is small: waking a second thread takes longer than the work

SETTINGS = TuningSettings(start="stem", sides=(64,), variants=1, passes=3, batch=8, prototypes=2, held_out=0.3)
WORDS = ("--start", "stem", "--sides", "64,128", "--no-cache", "--no-report")


def write_network(path: Path, same: bool = True) -> str:
    """A network; with the same filter in all channels of its last stage, it sees next to nothing when it is frozen."""
    rng, graph = np.random.default_rng(0), GraphBuilder()
    first = graph.constant(rng.normal(size=(16, 3, 16, 16)) / 16, name="first")
    filters = rng.normal(size=(12, 16, 2, 2)) / 8
    second = graph.constant(np.repeat(filters[:1], 12, axis=0) if same else filters, name="second")
    scaled = graph.node("Mul", "image", graph.constant(1 / 64))
    graph.node("Relu", graph.node("Conv", scaled, first, strides=[16, 16]), output="stem")
    graph.node("Relu", graph.node("Conv", "stem", second, strides=[2, 2]), output="features")
    model = graph.model("same", {"image": ["n", 3, "h", "w"]}, {"features": ["n", 12, "rows", "columns"]})
    path.write_bytes(model.SerializeToString())
    path.with_suffix(".toml").write_text("mean = 127\nsize = 64\n")
    return str(path)


@pytest.fixture(scope="module")
def textures(tmp_path_factory):
    """Photos of coloured noise, of four colours."""
    folder = tmp_path_factory.mktemp("textures")
    rng = np.random.default_rng(0)
    for number, colour in enumerate(np.array([[1, -1, 0], [-1, 1, 0], [0, -1, 1], [0, 1, -1]])):
        (folder / f"class {number}").mkdir()
        for index in range(24):
            noise = np.repeat(np.repeat(rng.normal(size=(12, 12, 3)), 8, axis=0), 8, axis=1)
            pixels = (127 + 40 * noise + 30 * colour).clip(0, 255).astype(np.uint8)
            Image.fromarray(pixels).save(folder / f"class {number}" / f"{index}.png")
    return folder


@pytest.fixture(scope="module")
def few(textures):
    """Five photos of each class."""
    return [photo for photo in find_photos(textures) if Path(photo.name).stem in list("12345")]


@pytest.fixture
def here(tmp_path, monkeypatch):
    """The current folder, with a network that sees next to nothing."""
    write_network(tmp_path / "same.onnx")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_last_stage_of_the_default_network_learns_and_runs_in_onnx_runtime(photo_folder, tmp_path):
    settings = dataclasses.replace(SETTINGS, start="", variants=2, passes=4)
    tuned = fine_tune("efficientnet-lite0", photo_folder, settings=settings)
    assert tuned.classes == ("Straße & Café", "brick", "grass", "gravel")
    assert tuned.history[-1]["loss"] < tuned.history[0]["loss"]
    assert max(record["held_out_accuracy"] for record in tuned.history) > 0.8
    net, old = load(str(tuned.save_network(tmp_path / "tuned.onnx"))), load("efficientnet-lite0")
    assert (net.spec.dim, net.spec.stride, net.spec.preprocessing) == (1280, 32, old.spec.preprocessing)
    pixels = np.random.default_rng(0).integers(0, 256, (1, 64, 64, 3), np.uint8)
    assert not np.allclose(net(pixels), old(pixels), atol=1e-3)
    before = {t.name: t.SerializeToString() for t in graph_of("efficientnet-lite0")[0].graph.initializer}
    changed = {t.name for t in tuned.graph.graph.initializer if t.SerializeToString() != before[t.name]}
    assert "_blocks.15._project_conv.weight" in changed
    assert {name.split(".")[1] for name in changed if name.startswith("_blocks")} == {"15"}


def test_with_no_photo_held_out_all_passes_are_made_and_the_last_weights_given_back(here, few):
    heads, weights = [], []

    def head(features: int, classes: int) -> VoteHead:
        heads.append(VoteHead(features, classes, 2))
        return heads[0]

    def look(what: str, done: int, total: int) -> None:
        if what == "fine-tune":
            weights.append(heads[0].vote.weight.detach().clone())

    settings = dataclasses.replace(SETTINGS, patience=1, held_out=0.0)
    tuned = fine_tune("same.onnx", few, settings=settings, head=head, progress=look)
    assert len(tuned.history) == len(weights) == 3
    assert torch.equal(tuned.head.vote.weight, weights[2])
    assert not torch.equal(weights[2], weights[1])


def dropping(features: int, classes: int) -> torch.nn.Module:
    pool = torch.nn.Sequential(torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), torch.nn.Dropout(0.5))
    return torch.nn.Sequential(pool, torch.nn.Linear(features, classes))


@pytest.mark.parametrize("head", [None, dropping])
def test_an_interrupted_training_goes_on_and_ends_where_it_would_have_ended(head, here, few):
    passes = []

    def stop(what: str, done: int, total: int) -> None:
        if what == "fine-tune":
            passes.append(done)
            if passes == [1, 2]:
                raise KeyboardInterrupt

    whole = fine_tune("same.onnx", few, settings=SETTINGS, head=head)
    more = {"head": head, "checkpoint": here / "c", "progress": stop}
    with pytest.raises(KeyboardInterrupt):
        fine_tune("same.onnx", few, settings=SETTINGS, **more)
    again = fine_tune("same.onnx", few, settings=SETTINGS, **more)
    assert passes == [1, 2, 3]
    assert again.history == whole.history
    for name, value in whole.head.state_dict().items():
        torch.testing.assert_close(again.head.state_dict()[name], value, rtol=0, atol=0)
    assert again.graph.SerializeToString() == whole.graph.SerializeToString()
    with pytest.raises(PatchvoteError, match="another training"):
        fine_tune("same.onnx", few, **more, settings=dataclasses.replace(SETTINGS, rate=1))


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"device": "cuda:99"}, "torch cannot use the device 'cuda:99'"),
        ({"labels": ["None of these"] * 5 + ["a"] * 15}, "a class may not be called 'None of these'"),
        ({"checkpoint": "same.onnx"}, "is not a checkpoint of a training"),
    ],
)
def test_what_cannot_be_trained_is_refused(changed, message, here, few):
    with pytest.raises(PatchvoteError, match=message):
        fine_tune("same.onnx", few, **{"settings": SETTINGS} | changed)


def test_a_tuned_network_that_is_better_is_kept_and_every_command_can_use_it(here, textures, command):
    done = command("fine-tune", textures, "my.patchvote", "--network", "same.onnx", "--passes", "30", *WORDS)
    assert done.code == 0, done.err
    assert "% with the frozen one: the tuned network is kept." in done.out
    assert {path.name for path in here.iterdir()} == {"same.onnx", "same.toml", "my.patchvote", "my.onnx", "my.toml"}
    model = read_model("my.patchvote")
    assert (model.recipe.network, model.recipe.sampling.sides) == ("my.onnx", (64, 128))
    assert load("my.onnx").spec.fingerprint == model.fingerprint != load("same.onnx").spec.fingerprint
    (here / "moved").mkdir()
    for name in ("my.patchvote", "my.onnx", "my.toml"):
        shutil.move(name, f"moved/{name}")
    photo = textures / "class 1" / "3.png"
    for words in (("predict", photo), ("explain", photo), ("add", textures, "--no-cache"), ("export", "graph.onnx")):
        done = command(words[0], "moved/my.patchvote", *words[1:])
        assert done.code == 0, (words, done.err)
    (here / "moved" / "my.onnx").unlink()
    done = command("predict", "moved/my.patchvote", photo)
    assert "names the network 'my.onnx', which is neither embedded nor an ONNX file beside it" in done.err


def test_a_tuned_network_that_is_no_better_is_left(place, command):
    network = write_network(place / "same.onnx", same=False)
    done = command("fine-tune", "photos", "new.patchvote", "--network", network, *WORDS, "--json")
    assert done.code == 0, done.err
    record = json.loads(done.out)
    assert set(record["compared"]) == {"photos", "tuned", "frozen", "better", "tuned_loss", "frozen_loss"}
    assert (record["tuned"], record["compared"]["better"], record["network"]) == (False, False, None)
    assert not (place / "new.onnx").exists()
    assert read_model("new.patchvote").recipe.network == str(place / "same.onnx")


def test_an_interrupted_tuning_continues_after_its_last_pass(here, textures, command, monkeypatch):
    words = ("fine-tune", textures, "my.patchvote", "--network", "same.onnx", "--passes", "3", *WORDS)
    passes, original = [], Learner._one_pass

    def one_pass(self, index):
        passes.append(index)
        if passes == [0, 1]:
            raise KeyboardInterrupt
        return original(self, index)

    monkeypatch.setattr(Learner, "_one_pass", one_pass)
    for code in (130, 0):
        assert command(*words).code == code
        assert (here / "my-tuning.safetensors").exists() == (code == 130)
    assert passes == [0, 1, 1, 2]


def test_what_cannot_be_tuned_is_refused_before_any_photo_is_read(here, textures, command):
    start = ("fine-tune", textures)
    assert "set start" in command(*start, "my.patchvote", "--network", "same.onnx", "--no-report").err
    assert command(*start, "same.onnx", *WORDS).code == 1
    shutil.copy(textures / "class 0" / "0.png", "my.onnx")
    done = command(*start, "my.patchvote", "--network", "same.onnx", *WORDS)
    assert "my.onnx would be replaced by an exported graph, but" in done.err
    with pytest.raises(PatchvoteError, match="only networks that see photos densely"):
        tune_or_keep(ImageClassifier(Recipe("same.onnx", Patch(count=4))), textures)


def test_one_photo_per_class_leaves_nothing_to_choose_on(here, textures):
    photos = [textures / f"class {number}" / "0.png" for number in range(4)]
    classifier = ImageClassifier(Recipe("same.onnx", Dense((64,))), cache=False)
    result = tune_or_keep(classifier, photos, list("abcd"), settings=SETTINGS)
    assert (result.comparison, result.is_tuned) == (None, False)
    assert "too few photos to hold any out" in result.sentence
    assert result.save(here / "my.patchvote") == [here / "my.patchvote"]


def test_a_clear_gain_on_the_same_photos_is_better_and_a_gain_by_chance_is_not():
    rng = np.random.default_rng(0)
    expected, names = np.repeat([0, 1], 50), tuple(map(str, range(100)))

    def scores(right: float) -> Scores:
        chance = rng.normal(right, 0.1, 100).clip(0.01, 0.99)
        probability = np.where(np.eye(2, dtype=bool)[expected], chance[:, None], 1 - chance[:, None])
        return Scores(("a", "b"), names, expected, probability, 0.0)

    weak, strong = scores(0.55), scores(0.9)
    assert Comparison.of(strong, weak).better
    assert not Comparison.of(weak, strong).better
    assert not Comparison.of(weak, weak).better
    other = dataclasses.replace(strong, names=tuple(map(str, range(50, 150))))
    assert Comparison.of(other, weak).photos == 50
