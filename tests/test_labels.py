from __future__ import annotations

import numpy as np
import pytest
from PIL import Image

from helpers.command import network_in
from patchvote import Bags, Dense, ImageClassifier, MomentRidge, PatchvoteError, Photo, Recipe
from patchvote.photos.labels import label_texts


@pytest.fixture(scope="module")
def classifier(tmp_path_factory):
    """A classifier whose network takes no time, and six photos to learn from."""
    recipe = Recipe(str(network_in(tmp_path_factory.mktemp("network"))), Dense(sides=(64,)))
    return ImageClassifier(recipe, cache=False)


@pytest.fixture(scope="module")
def photos():
    rng = np.random.default_rng(0)
    return [Image.fromarray(rng.integers(0, 255, (64, 64, 3), dtype=np.uint8)) for _ in range(6)]


LABELS = ["cat", "cat", "cat", "dog", "dog", "dog"]


@pytest.mark.parametrize("missing", [None, float("nan"), np.nan, "", "  "])
@pytest.mark.parametrize("call", ["fit", "add", "evaluate"])
def test_a_missing_label_is_refused_and_never_becomes_a_class(call, missing, classifier, photos):
    if call != "fit":
        classifier.fit(photos, LABELS)
    with pytest.raises(PatchvoteError, match=r"photo 5 \(image 5\) has no label"):
        getattr(classifier, call)(photos, [*LABELS[:5], missing])


def test_labels_of_mixed_types_are_refused():
    with pytest.raises(PatchvoteError, match=r"label of photo 1 \(b\) is text, '0', but that of photo 0 \(a\) is a wh"):
        label_texts(["a", "b"], [0, "0"])
    with pytest.raises(PatchvoteError, match="must be text or a number, got"):
        label_texts(["a"], [(1, 2)])
    with pytest.raises(PatchvoteError, match="labels must be a list with one class per photo, got 'cat'"):
        label_texts(["a", "b", "c"], "cat")


def test_labels_that_are_all_none_are_called_missing():
    with pytest.raises(ValueError, match="labels are None for every image"):
        MomentRidge().fit(np.ones((6, 3)), [None] * 6)


@pytest.mark.parametrize(
    ("weight", "says"),
    [
        (np.full(6, 1e-300), "must be 0 or from 1e-12 to 1e"),
        (np.array([1, 1, 1, 1, 1, 1e300]), "must be 0 or from 1e-12 to 1e"),
        (["heavy"] * 6, "sample_weight must hold one number per image"),
        ([1, 1, 1, 0, 0, 0], "at least two classes"),
    ],
)
def test_weights_that_no_solver_can_use_are_refused(weight, says):
    with pytest.raises(ValueError, match=says):
        MomentRidge().fit(np.arange(18.0).reshape(6, 3), ["a", "a", "a", "b", "b", "b"], weight)


def test_boxes_in_pixels_are_refused():
    bags = Bags(np.ones((4, 3)), np.array([0, 2, 4]), np.array([[0, 0, 70, 70]] * 4, np.float32))
    with pytest.raises(ValueError, match="Are they in pixels"):
        MomentRidge().fit(bags, ["a", "b"])


def test_labels_of_one_type_come_back_as_text():
    assert label_texts(["a", "b"], iter([np.str_("cat"), "dog"])) == ["cat", "dog"]
    assert label_texts(["a", "b"], np.array([0, 1])) == ["0", "1"]
    assert label_texts(["a", "b"], [True, False]) == ["True", "False"]


def test_a_photo_whose_label_is_empty_has_no_class(classifier, tmp_path):
    photos = [Photo("a", np.zeros((64, 64, 3), np.uint8), "cat"), Photo("b", np.zeros((64, 64, 3), np.uint8), "")]
    with pytest.raises(PatchvoteError, match="no class, the first is b"):
        classifier.fit(photos)


def test_photos_and_labels_may_come_from_generators(classifier, photos):
    assert classifier.fit((photo for photo in photos), iter(LABELS)).classes == ("cat", "dog")
