"""A network is tuned for photos, and kept only if it is better on photos that were held out."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import shutil
import subprocess
import sys

import numpy as np
import pytest
from PIL import Image

torch = pytest.importorskip("torch")

from patchvote import Dense, ImageClassifier, Patch, PatchvoteError, Recipe  # noqa: E402
from patchvote.models.file import read_model  # noqa: E402
from patchvote.networks import load  # noqa: E402
from patchvote.nn import TuningSettings, fine_tune, tune_or_keep  # noqa: E402
from patchvote.nn.learner import Learner  # noqa: E402
from patchvote.nn.trunk import variant  # noqa: E402
from patchvote.nn.tune_or_keep import Comparison  # noqa: E402
from patchvote.photos.find import find_photos  # noqa: E402
from patchvote.utils.onnx_graph import GraphBuilder  # noqa: E402

pytestmark = pytest.mark.slow

torch.set_num_threads(1)  # everything here is small: waking a second thread takes longer than the work

WORDS = ("--start", "stem", "--sides", "64,128", "--no-cache", "--no-report", "--quiet")


def write_network(path, channels: int = 12, same: bool = True) -> str:
    """A network; with the same filter in all channels of its last stage, it sees next to nothing when it is frozen."""
    rng, graph = np.random.default_rng(0), GraphBuilder()
    first = graph.constant(rng.normal(size=(16, 3, 16, 16)) / 16, name="first")
    filters = rng.normal(size=(channels, 16, 2, 2)) / 8
    second = graph.constant(np.repeat(filters[:1], channels, axis=0) if same else filters, name="second")
    scaled = graph.node("Mul", "image", graph.constant(1 / 64))
    graph.node("Relu", graph.node("Conv", scaled, first, strides=[16, 16]), output="stem")
    graph.node("Relu", graph.node("Conv", "stem", second, strides=[2, 2]), output="features")
    model = graph.model("same", {"image": ["n", 3, "h", "w"]}, {"features": ["n", channels, "rows", "columns"]})
    path.write_bytes(model.SerializeToString())
    path.with_suffix(".toml").write_text("mean = 127\nsize = 64\n")
    return str(path)


@pytest.fixture(scope="module")
def textures(tmp_path_factory):
    """Photos of coloured noise, of four colours."""
    folder = tmp_path_factory.mktemp("textures")
    rng = np.random.default_rng(0)
    colours = np.array([[1, -1, 0], [-1, 1, 0], [0, -1, 1], [0, 1, -1]])
    for number, colour in enumerate(colours):
        (folder / f"class {number}").mkdir()
        for index in range(24):
            noise = np.repeat(np.repeat(rng.normal(size=(12, 12, 3)), 8, axis=0), 8, axis=1)
            pixels = (127 + 40 * noise + 30 * colour).clip(0, 255).astype(np.uint8)
            Image.fromarray(pixels).save(folder / f"class {number}" / f"{index}.png")
    return folder


@pytest.fixture
def here(tmp_path, monkeypatch):
    write_network(tmp_path / "same.onnx")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_tuned_network_that_is_better_is_kept_and_every_command_can_use_it(here, textures, command):
    done = command("fine-tune", textures, "my.patchvote", "--network", "same.onnx", "--passes", "30", *WORDS[:-1])
    assert done.code == 0, done.err
    assert "% with the frozen one: the tuned network is kept." in done.out
    assert "its network is my.onnx, with my.toml: keep them beside my.patchvote." in done.out
    assert {path.name for path in here.iterdir()} == {"same.onnx", "same.toml", "my.patchvote", "my.onnx", "my.toml"}
    model = read_model("my.patchvote")
    assert model.recipe.network == "my.onnx"
    assert model.recipe.sampling.sides == (64, 128)
    assert "with the tuned same.onnx: on 20 photos that were held out" in model.about.method
    assert load("my.onnx").spec.fingerprint == model.fingerprint != load("same.onnx").spec.fingerprint
    (here / "moved").mkdir()
    for name in ("my.patchvote", "my.onnx", "my.toml"):
        shutil.move(name, f"moved/{name}")
    photo = textures / "class 1" / "3.png"
    for words in (
        ("predict", photo),
        ("explain", photo),
        ("evaluate", textures, "--no-report"),
        ("add", textures, "--no-cache"),
        ("export", "graph.onnx"),
    ):
        done = command(words[0], "moved/my.patchvote", *words[1:])
        assert done.code == 0, (words, done.err)
    (here / "moved" / "my.onnx").unlink()
    done = command("predict", "moved/my.patchvote", photo)
    assert "names the network 'my.onnx', which is neither embedded nor an ONNX file beside it" in done.err


def test_a_tuned_network_that_is_no_better_is_left(place, command):
    network = write_network(place / "same.onnx", same=False)
    done = command("fine-tune", "photos", "new.patchvote", "--network", network, *WORDS[:-1])
    assert done.code == 0, done.err
    assert "the frozen network is kept." in done.out
    assert "wrote new.patchvote\n" in done.out
    assert not (place / "new.onnx").exists()
    assert read_model("new.patchvote").recipe.network == str(place / "same.onnx")
    told = read_model("new.patchvote").about.method
    assert "with the frozen" in told
    assert "% were right with the tuned network" in told


def test_json_has_both_figures(here, textures, command):
    words = ("--network", "same.onnx", "--passes", "1", *WORDS, "--json")
    told = json.loads(command("fine-tune", textures, "my.patchvote", *words).out)
    assert set(told["compared"]) == {"photos", "tuned", "frozen", "better", "tuned_loss", "frozen_loss"}
    assert told["tuned"] == told["compared"]["better"]
    assert (told["network"] is not None) == told["tuned"]


def test_an_interrupted_tuning_continues_after_its_last_pass(here, textures, command, monkeypatch):
    words = ("fine-tune", textures, "my.patchvote", "--network", "same.onnx", "--passes", "5", *WORDS)
    passes, original = [], Learner._one_pass

    def interrupted(self, index):
        if index == 3:
            raise KeyboardInterrupt
        passes.append(index)
        return original(self, index)

    with monkeypatch.context() as patch:
        patch.setattr(Learner, "_one_pass", interrupted)
        done = command(*words)
    assert done.code == 130
    assert "my.patchvote was not written. 3 of 5 passes are kept in my-tuning.safetensors: run the same" in done.err
    assert (here / "my-tuning.safetensors").exists()
    other = command(*words[:5], "--passes", "6", *WORDS)
    assert other.code == 1
    assert "is of another fine-tuning" in other.err
    with monkeypatch.context() as patch:
        patch.setattr(Learner, "_one_pass", lambda self, index: passes.append(index) or original(self, index))
        assert command(*words).code == 0
    assert passes == [0, 1, 2, 3, 4]
    assert not (here / "my-tuning.safetensors").exists()


def test_without_torch_one_sentence_says_so(here, textures):
    code = """
import sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "torch":
            raise ImportError(name)
sys.meta_path.insert(0, Absent())
sys.argv = ["patchvote", "fine-tune", sys.argv[1], "my.patchvote"]
from patchvote.__main__ import main
main()
"""
    done = subprocess.run([sys.executable, "-c", code, str(textures)], capture_output=True, text=True, timeout=120)
    assert done.returncode == 1
    assert done.stderr == "patchvote: fine-tune needs torch. Install it with: pip install 'patchvote[torch]'\n"


def test_what_cannot_be_tuned_is_refused_before_any_photo_is_read(here, textures, command):
    done = command("fine-tune", textures, "my.patchvote", "--network", "same.onnx", "--no-report")
    assert "set start" in done.err
    done = command("fine-tune", textures, "my.patchvote", "--sides", "a")
    assert (done.code, "--sides takes whole numbers" in done.err) == (2, True)
    done = command("fine-tune", textures, "same.onnx", *WORDS)
    assert done.code == 1
    shutil.copy(textures / "class 0" / "0.png", "my.onnx")
    done = command("fine-tune", textures, "my.patchvote", "--network", "same.onnx", *WORDS)
    assert "my.onnx would be replaced by an exported graph, but" in done.err
    patches = ImageClassifier(Recipe("same.onnx", Patch(count=4)))
    with pytest.raises(PatchvoteError, match="only networks that see photos densely"):
        tune_or_keep(patches, textures)


def test_a_network_that_sees_the_same_in_all_photos_can_be_learned_from(here, textures):
    classifier = ImageClassifier(Recipe("same.onnx", Dense((64,))), cache=False).fit(textures)
    assert np.abs(classifier.model.scorer.arrays["linear"]).max() < 1e3


def test_one_photo_per_class_leaves_nothing_to_choose_on(here, textures):
    photos = [textures / f"class {number}" / "0.png" for number in range(4)]
    classifier = ImageClassifier(Recipe("same.onnx", Dense((64,))), cache=False)
    result = tune_or_keep(classifier, photos, list("abcd"), settings=TuningSettings(start="stem", side=64))
    assert result.comparison is None
    assert not result.is_tuned
    assert "too few photos to hold any out" in result.sentence
    assert result.save(here / "my.patchvote") == [here / "my.patchvote"]


def test_the_photos_that_decide_are_neither_tuned_nor_trained_on(here, textures, monkeypatch):
    seen = []
    original = fine_tune

    def spy(network, photos, **more):
        seen.extend(photo.name for photo in photos)
        return original(network, photos, **more)

    monkeypatch.setattr(sys.modules["patchvote.nn.tune_or_keep"], "fine_tune", spy)
    classifier = ImageClassifier(Recipe("same.onnx", Dense((64,))), cache=False)
    settings = TuningSettings(start="stem", side=64, passes=1, variants=1)
    result = tune_or_keep(classifier, textures, settings=settings)
    held_out = set(result.classifier.scores.names)
    assert len(held_out) == 20
    assert held_out.isdisjoint(seen)
    assert len(seen) == 96 - 20


def test_photos_of_open_files_are_read_once(here, textures):
    paths = [textures / f"class {number}" / f"{index}.png" for number in range(2) for index in range(10)]
    classifier = ImageClassifier(Recipe("same.onnx", Dense((64,))), cache=False)
    settings = TuningSettings(start="stem", side=64, passes=1, variants=1)
    with contextlib.ExitStack() as stack:
        files = [stack.enter_context(path.open("rb")) for path in paths]
        result = tune_or_keep(classifier, files, ["a"] * 10 + ["b"] * 10, settings=settings)
    assert result.comparison is not None
    assert result.classifier.skipped == []


# --- scales ---------------------------------------------------------------------------------------------------------


def test_at_two_scales_variants_show_half_as_much(real_photos):
    image = Image.open(real_photos / "coffee.png").convert("RGB")

    class Recorder:
        size = image.size
        boxes: list = []  # noqa: RUF012

        def crop(self, box):
            self.boxes.append(box)
            return image.crop(box)

    for share in (1.0, 0.5):
        variant(Recorder(), 64, np.random.default_rng(0), share)
    (left, _, right, _), (small_left, _, small_right, _) = Recorder.boxes
    assert (small_right - small_left) == pytest.approx((right - left) / 2, abs=1)


def test_a_model_of_votes_tuned_at_two_scales_sees_photos_at_both(here, textures):
    settings = TuningSettings(start="stem", side=64, sides=(64, 128), passes=2, variants=2, prototypes=2)
    tuned = fine_tune("same.onnx", textures, settings=settings)
    tuned.save("tuned.patchvote")
    classifier = ImageClassifier.load("tuned.patchvote")
    assert classifier.recipe.sampling.sides == (64, 128)
    photos = {photo.name: photo for photo in find_photos(textures)}
    for name, expected in list(zip(tuned.held_out.names, tuned.held_out.probability, strict=True))[:4]:
        found = classifier.predict_proba([photos[name].source])[0]
        np.testing.assert_allclose(found, expected, atol=0.02)  # the trunk's outputs were kept in float16


# --- the choice -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tuned", "frozen", "better", "says"),
    [
        (0.963, 0.95, True, "96.3 % were right with the tuned network and 95.0 % with the frozen one: the tuned"),
        (0.747, 0.82, False, "the frozen network is kept. Tuning needs many photos"),
        (0.95, 0.95, False, "no clear gain, so the frozen network is kept"),
    ],
)
def test_both_accuracies_and_the_choice_are_one_sentence(tuned, frozen, better, says):
    assert says in Comparison(300, tuned, frozen, better, 0.1, 0.1).sentence


def test_a_clear_gain_on_the_same_photos_is_better_and_a_gain_by_chance_is_not():
    from patchvote.models.scores import Scores

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
    hit = np.eye(2)[expected] * 0.2 + 0.4  # all right, with little confidence
    missed = np.where(np.arange(100)[:, None] % 10 == 0, 1 - hit, hit)  # every tenth is wrong, as little confident
    timid, worse = (dataclasses.replace(weak, probability=probability) for probability in (hit, missed))
    assert Comparison.of(timid, worse).better  # by accuracy
    certain = dataclasses.replace(weak, probability=np.where(missed > 0.5, 0.99, 0.01))
    assert not Comparison.of(timid, dataclasses.replace(weak, probability=np.eye(2)[expected] * 0.98 + 0.01)).better
    assert Comparison.of(certain, worse).tuned == Comparison.of(certain, worse).frozen == 0.9
    other = dataclasses.replace(strong, names=tuple(map(str, range(50, 150))))
    assert Comparison.of(other, weak).photos == 50
