from __future__ import annotations

import io
import json
import shutil

import numpy as np
import pytest
from PIL import Image

from helpers.command import network_in
from patchvote import NBNN, SNBNL, Bags, Extractor, ImageClassifier, MomentRidge, Store, find_photos
from patchvote.bags import copies
from patchvote.bags.copies import copy_groups, groups_of_layouts
from patchvote.bags.fill import fill
from patchvote.voters.labels import hold_out


@pytest.fixture(scope="module")
def different_photos(real_photos):
    """Sixteen photos that show sixteen things."""
    first = ("astronaut", "brick", "camera", "cell", "chelsea", "clock_motion", "coffee", "coins", "grass", "gravel")
    names = (*first, "horse", "ihc", "moon", "page", "hubble_deep_field", "rocket")
    return [next(real_photos.glob(f"{name}.[jp]*")) for name in names]


@pytest.fixture(scope="module")
def arbitrary(different_photos, tmp_path_factory):
    """A folder whose two classes mean nothing, so that nobody could name a photo never seen before."""
    folder = tmp_path_factory.mktemp("arbitrary")
    for index, path in enumerate(different_photos):
        (folder / "ab"[index % 2]).mkdir(exist_ok=True)
        shutil.copy(path, folder / "ab"[index % 2] / path.name)
    return folder


def unit(vectors):
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def encoded(image: Image.Image) -> Image.Image:
    image.save(file := io.BytesIO(), "JPEG", quality=60)
    return Image.open(file)


CHANGES = {
    "encoded again": encoded,
    "smaller": lambda image: image.resize((image.width * 2 // 3, image.height * 2 // 3)),
    "cropped": lambda image: image.crop((8, 8, image.width - 8, image.height - 8)),
    "mirrored": lambda image: image.transpose(Image.Transpose.FLIP_LEFT_RIGHT),
}


def test_photos_encoded_again_resized_cropped_or_mirrored_are_near_copies_and_others_are_not(different_photos):
    chosen = [path for path in different_photos if path.stem in ("astronaut", "chelsea", "coffee", "rocket")]
    images = [Image.open(path).convert("RGB") for path in different_photos]
    images += [change(Image.open(path).convert("RGB")) for path in chosen for change in CHANGES.values()]
    groups = copy_groups(Bags.join([item.bag for item in Extractor().stream(find_photos(images))]))
    originals = [different_photos.index(path) for path in chosen for _ in CHANGES]
    assert groups.tolist() == [*range(len(different_photos)), *originals]


@pytest.mark.data
def test_a_series_of_one_camera_does_not_become_one_group(data, tmp_path):
    photos = [photo for photo in find_photos(data / "office_caltech" / "webcam") if photo.label in ("mug", "mouse")]
    fill(tmp_path / "store", photos, Extractor())
    groups = copy_groups(Store.open(tmp_path / "store"))
    assert np.bincount(groups).max() <= 5
    assert len(np.unique(groups)) > 0.75 * len(groups)


def test_photos_are_compared_in_blocks_as_if_at_once(monkeypatch):
    values = np.random.default_rng(0).standard_normal((100, 240))
    values[60:] = values[:40] + 0.001
    values = unit(values)
    at_once = groups_of_layouts(values, range(100))
    monkeypatch.setattr(copies, "_ROWS", 7)
    np.testing.assert_array_equal(groups_of_layouts(values, range(100)), at_once)
    monkeypatch.setattr(copies, "_MOST_PAIRS", 3)
    np.testing.assert_array_equal(groups_of_layouts(values, range(100)), at_once)
    assert at_once.tolist() == [*range(60), *range(40)]
    few = unit(np.random.default_rng(0).random((200, 12)))  # too few features to tell copies
    assert (groups_of_layouts(few, range(200)) == np.arange(200)).all()


@pytest.mark.parametrize("count", [30, 900])
def test_copies_stay_on_one_side_of_every_split(count):
    numbers, groups = np.arange(count) % 3, np.arange(count) % (count // 2)  # with classes mixed
    for seed in range(5):
        order = np.random.default_rng(seed).permutation(count)
        _, own = np.unique(groups[order], return_inverse=True)
        keep, out = hold_out(np.arange(count), numbers[order], 0.2, seed, own)
        assert not set(own[keep]) & set(own[out])
        assert set(numbers[order][keep]) == {0, 1, 2}
        assert len(keep) + len(out) == count
        assert len(out)


def test_copied_photos_do_not_flatter_the_accuracy(arbitrary, tmp_path):
    once = ImageClassifier(cache=tmp_path / "cache").fit(arbitrary)
    assert once.scores.accuracy < 0.8
    twice = shutil.copytree(arbitrary, tmp_path / "twice")
    for path in sorted(arbitrary.glob("*/*")):
        shutil.copy(path, twice / path.parent.name / f"copy of {path.name}")
    copied = ImageClassifier(cache=tmp_path / "cache").fit(twice)
    assert len(copied.scores) == 2 * len(once.scores)
    assert copied.scores.accuracy == pytest.approx(once.scores.accuracy, abs=0.15)
    assert copied.model.about.copies["groups"] == 16


@pytest.mark.parametrize("voter", [MomentRidge(), SNBNL(1, max_iter=1), NBNN()])
def test_probabilities_are_not_set_on_copies_of_what_was_learned(voter):
    rng = np.random.default_rng(0)
    bags = [rng.random((6, 80)) for _ in range(60)]
    labels = rng.integers(0, 2, 60).tolist()  # which mean nothing
    voter.fit(bags * 2, labels * 2)
    strange = Bags.of([rng.random((6, 80)) for _ in range(60)])
    assert voter.predict_proba(strange).max(axis=1).mean() < 0.65


def test_copies_are_named_by_fit_in_json_card_and_report(arbitrary, tmp_path, command):
    network = network_in(tmp_path)
    photos = shutil.copytree(arbitrary, tmp_path / "photos")
    shutil.copy(photos / "a" / "astronaut.png", photos / "a" / "again.png")
    shutil.copy(photos / "b" / "brick.png", photos / "a" / "in both.png")
    words = ("fit", photos, tmp_path / "m.patchvote", "--network", network, "--no-cache")
    done = command(*words)
    assert "4 photos look alike (copies, or nearly), in 2 groups; such photos were held out together" in done.out
    assert "a/again.png ~ a/astronaut.png" in done.out
    assert "stand in several classes: a/in both.png (a) ~ b/brick.png (b)" in done.out
    assert "a/again.png ~ a/astronaut.png" in (tmp_path / "m.html").read_text()
    assert "again.png ~ a/astronaut.png" in command("info", tmp_path / "m.patchvote", "--card").out
    told = json.loads(command(*words, "--json", "--force").out)["copies"]
    assert (told["groups"], told["in_several_classes"]) == (2, 1)
