"""A model as one ONNX graph."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from PIL import Image

from helpers.command import network_in
from patchvote import NBNN, SNBNL, Dense, ImageClassifier, MomentRidge, Patch, PatchvoteError, Recipe
from patchvote.models.export import export_model
from patchvote.photos.decode import load_image
from patchvote.photos.find import find_photos

VOTERS = [
    MomentRidge(),
    SNBNL(3, q=np.inf, position_weight=0, max_iter=2),
    SNBNL(2, q=1, max_iter=2),
    SNBNL(2, q=3, power=0.3, confidence=0.5, max_iter=2),
]
SMALL = Recipe(sampling=Dense(sides=(64, 96)))


def run(path, pixels: np.ndarray) -> dict[str, np.ndarray]:
    session = onnxruntime.InferenceSession(str(path))
    names = [value.name for value in session.get_outputs()]
    return dict(zip(names, session.run(None, {"photo": pixels}), strict=True))


def exact(classifier: ImageClassifier, photo) -> np.ndarray:
    """Return the probabilities from all that the network gives, of which a classifier keeps rounded numbers."""
    return classifier.model.probability(classifier.extractor([photo]))


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module")
def fitted(photo_folder, cache) -> ImageClassifier:
    return ImageClassifier(SMALL, cache=cache).fit(photo_folder)


@pytest.fixture(scope="module")
def exported(fitted, tmp_path_factory) -> Path:
    """The graph of the fitted model; nobody changes it."""
    path = tmp_path_factory.mktemp("exported") / "m.onnx"
    export_model(fitted.model, path)
    return path


@pytest.mark.parametrize("voter", VOTERS, ids=str)
def test_the_graph_answers_as_the_model_does(voter, photo_folder, cache, tmp_path):
    classifier = ImageClassifier(SMALL, voter=voter, cache=cache).fit(photo_folder)
    graph = export_model(classifier.model, tmp_path / "m.onnx")
    assert json.loads({p.key: p.value for p in graph.metadata_props}["classes"]) == list(classifier.classes)
    shape = graph.graph.input[0].type.tensor_type.shape.dim
    assert [dim.dim_param or dim.dim_value for dim in shape] == ["height", "width", 3]
    for photo in find_photos(photo_folder)[::9]:
        told = run(tmp_path / "m.onnx", np.asarray(load_image(photo)))
        votes = classifier.model.scorer.votes(classifier.extractor([photo]))
        np.testing.assert_allclose(told["probability"], exact(classifier, photo), atol=1e-4)
        np.testing.assert_allclose(told["scores"], votes.mean(axis=0), atol=1e-4)
        rows = np.concatenate([told[f"votes_{side}"].reshape(4, -1).T for side in (64, 96)])
        np.testing.assert_allclose(rows, votes[1:], atol=1e-4 * np.abs(votes).max())


@pytest.mark.parametrize("size", [(33, 500), (375, 500), (512, 512), (640, 427), (100, 64), (1, 1)])
def test_photos_of_every_size_are_resized_as_pillow_does(size, fitted, exported, real_photos):
    image = Image.open(real_photos / "coffee.png").convert("RGB").resize(size, Image.Resampling.LANCZOS)
    told = run(exported, np.asarray(image))
    np.testing.assert_allclose(told["probability"], exact(fitted, np.asarray(image)), atol=1e-4)
    assert told["probability"].sum() == pytest.approx(1, abs=1e-5)


@pytest.mark.parametrize(
    "network",
    [
        "efficientnet-lite0+efficientnet-lite1",
        "torch:helpers.torch_models:residual@last",
        "torch:helpers.torch_models:vit",
        "tiny",  # whose nodes have no names
    ],
)
def test_networks_of_every_kind_become_one_graph(network, photo_folder, cache, tmp_path, monkeypatch):
    if network.startswith("torch"):
        pytest.importorskip("torch")
        monkeypatch.setenv("PATCHVOTE_CACHE", str(tmp_path / "cache"))
        network += "?size=64"
    network = str(network_in(tmp_path)) if network == "tiny" else network
    classifier = ImageClassifier(Recipe(network, Dense(sides=(64,))), cache=cache).fit(photo_folder)
    export_model(classifier.model, tmp_path / "m.onnx", network=network)
    for pixels in (np.asarray(load_image(find_photos(photo_folder)[3])), np.zeros((50, 90, 3), np.uint8)):
        told = run(tmp_path / "m.onnx", pixels)
        np.testing.assert_allclose(told["probability"], exact(classifier, pixels), atol=1e-4)


def test_the_lines_of_the_documentation_run_and_need_nothing_but_onnxruntime_and_numpy(
    command, fitted, photo_folder, tmp_path
):
    fitted.save(tmp_path / "m.patchvote")
    done = command("export", tmp_path / "m.patchvote", tmp_path / "my.onnx")
    assert done.code == 0, done.err
    page = (Path(__file__).parent.parent / "docs" / "export.md").read_text(encoding="utf-8")
    lines = page.partition("```python\n")[2].partition("```")[0].replace("votes_448", "votes_96")
    turned = Image.open(find_photos(photo_folder)[3].source).convert("RGB")
    exif = turned.getexif()
    exif[274] = 6  # to be turned by a quarter
    turned.save(tmp_path / "new.jpg", exif=exif)
    code = f"""
import sys
class Refuse:
    def find_spec(self, name, *rest):
        if name.partition(".")[0] in ("patchvote", "torch", "onnx", "sklearn", "scipy"):
            raise ImportError(name)
sys.meta_path.insert(0, Refuse())
{lines}"""
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, cwd=tmp_path)
    assert told.returncode == 0, told.stderr
    probability = fitted.predict_proba([tmp_path / "new.jpg"])[0]
    label, _, value = told.stdout.strip().rpartition(" ")
    assert label == fitted.classes[probability.argmax()]
    assert float(value) == pytest.approx(probability.max(), abs=1e-4)


def test_what_cannot_be_one_graph_is_told_why(fitted, photo_folder, cache, tmp_path):
    bank = ImageClassifier(SMALL, voter=NBNN(), cache=cache).fit(photo_folder)
    recipe = Recipe(sampling=Patch(count=8, levels=1, input=64))
    patches = ImageClassifier(recipe, cache=cache).fit(photo_folder)
    for classifier, network, keyword in (
        (bank, None, "cannot be one graph"),
        (patches, None, "patches"),
        (fitted, "efficientnet-lite1", "another network"),
    ):
        with pytest.raises(PatchvoteError, match=keyword):
            export_model(classifier.model, tmp_path / "m.onnx", network=network)
        assert not (tmp_path / "m.onnx").exists()
