"""Arguments of the Python interface that nobody can mean: the error names the argument and what it got."""

from __future__ import annotations

import numpy as np
import pytest

from patchvote import ImageClassifier, PatchvoteError, fill
from patchvote.errors import ModelError


@pytest.mark.parametrize("photos", [None, 5])
@pytest.mark.parametrize("call", ["fit", "add", "adapt"])
def test_photos_that_are_no_photos_are_named(call, photos):
    with pytest.raises(PatchvoteError, match=f"photos must be a folder, .* got {photos}"):
        getattr(ImageClassifier(), call)(photos)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"budget": float("nan")}, "budget must be a number of seconds"),
        ({"seed": 2**32}, "seed must be a whole number from 0"),
        ({"jobs": "a"}, "jobs must be a whole number, at least 1, got 'a'"),
        ({"recipe": 5}, "recipe must be a Recipe or the name of a network, got 5"),
    ],
)
def test_wrong_settings_of_a_classifier_are_named_at_once(settings, says):
    with pytest.raises(PatchvoteError, match=says):
        ImageClassifier(**settings)


@pytest.mark.parametrize("held_out", [1, -0.1, float("nan"), "a.jpg"])
def test_a_share_of_photos_to_hold_out_is_below_one(held_out):
    with pytest.raises(PatchvoteError, match="held_out must be a share of the photos, from 0 to less than 1, or a"):
        ImageClassifier().fit([np.zeros((8, 8, 3), np.uint8)] * 2, ["a", "b"], held_out=held_out)


@pytest.mark.parametrize("path", [None, "", 5])
def test_models_have_names_of_files_and_stores_extractors(path, tmp_path):
    with pytest.raises(ModelError, match="path of a model must be the name of a file, got"):
        ImageClassifier.load(path)
    with pytest.raises(PatchvoteError, match="extractor of fill must be an Extractor, got"):
        fill(tmp_path / "store", np.zeros((8, 8, 3), np.uint8), path)
    assert not (tmp_path / "store").exists()
