"""ImageClassifier and Extractor as estimators of scikit-learn, and the photos that Python users have at hand."""

from __future__ import annotations

import io
import pickle

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone, is_classifier
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import make_pipeline
from sklearn.utils.validation import check_is_fitted

from patchvote import Dense, Extractor, ImageClassifier, MomentRidge, PatchvoteError, PhotoError, Recipe
from patchvote.photos.find import find_photos

SMALL = Recipe(sampling=Dense(sides=(96,)))


@pytest.fixture(scope="module")
def photos(photo_folder):
    found = find_photos(photo_folder)
    return [photo.source for photo in found], [photo.label for photo in found]


@pytest.fixture(scope="module")
def fitted(photos, tmp_path_factory):
    return ImageClassifier(SMALL, cache=tmp_path_factory.mktemp("cache")).fit(*photos)


def test_parameters_are_read_and_set_by_name():
    classifier = ImageClassifier(SMALL, voter="moment-ridge", budget=3, cache=False, seed=7)
    params = classifier.get_params()
    assert (params["voter"], params["budget"], params["cache"], params["seed"]) == ("moment-ridge", 3, False, 7)
    assert classifier.set_params(seed=8, voter="snbnl") is classifier
    assert classifier.get_params() == {**params, "seed": 8, "voter": "snbnl"}
    for wrong, says in (({"sead": 1}, "no parameter 'sead'. Did you mean 'seed'"), ({"budget": -1}, "budget must be")):
        with pytest.raises(PatchvoteError, match=says):
            classifier.set_params(**wrong)
    assert classifier.get_params() == {**params, "seed": 8, "voter": "snbnl"}


def test_a_clone_has_the_parameters_and_nothing_learned(fitted):
    copy = clone(fitted)
    assert copy.get_params() == fitted.get_params()
    assert is_classifier(copy)
    check_is_fitted(fitted)
    with pytest.raises(NotFittedError):
        check_is_fitted(copy)
    assert not hasattr(copy, "classes_")
    assert fitted.classes_.tolist() == list(fitted.classes)


def test_a_pickle_holds_the_model_itself(fitted, photos):
    assert fitted.score(*photos) == fitted.evaluate(*photos).accuracy
    again = pickle.loads(pickle.dumps(fitted))
    np.testing.assert_array_equal(again.predict_proba(photos[0][:5]), fitted.predict_proba(photos[0][:5]))
    assert again.scores.accuracy == fitted.scores.accuracy
    assert clone(again).get_params() == fitted.get_params()


def test_an_extractor_is_a_transformer_in_a_pipeline(photos):
    pipeline = make_pipeline(Extractor(SMALL), MomentRidge()).fit(*photos)
    assert pipeline.score(*photos) > 0.9
    assert clone(pipeline[0]).get_params() == pipeline[0].get_params()
    again = pickle.loads(pickle.dumps(pipeline[0]))
    np.testing.assert_array_equal(again.transform(photos[0][:1]).values, pipeline[0](photos[0][:1]).values)


def test_contents_and_open_files_are_photos(fitted, photos):
    paths = photos[0][:3]
    expected = fitted.predict_proba(paths)
    contents = [path.read_bytes() for path in paths]
    np.testing.assert_array_equal(fitted.predict_proba(contents), expected)
    np.testing.assert_array_equal(fitted.predict_proba([io.BytesIO(content) for content in contents]), expected)
    with paths[0].open("rb") as file:
        np.testing.assert_array_equal(fitted.predict_proba(file), expected[:1])


@pytest.mark.parametrize(
    ("content", "says"),
    [(b"", "the file is empty"), (b"no photo", "is not an image"), (io.StringIO("text"), "opened as text")],
)
def test_what_is_no_photo_is_told_by_its_place_in_the_list(fitted, photos, content, says):
    with pytest.raises(PhotoError, match=f"image 1: .*{says}"):
        fitted.predict([photos[0][0].read_bytes(), content])


def test_a_table_of_paths_and_labels_is_learned_from(fitted, photos, tmp_path):
    table = pd.DataFrame({"file_name": [str(path) for path in photos[0]], "label": photos[1]})
    classifier = ImageClassifier(SMALL, cache=tmp_path).fit(table)
    assert classifier.classes == fitted.classes
    assert classifier.score(table) == fitted.score(*photos)
    np.testing.assert_array_equal(fitted.predict(table["file_name"]), fitted.predict(photos[0]))


def test_an_estimator_shows_its_name_and_what_differs_from_its_defaults():
    shown = repr(ImageClassifier(seed=3, budget=60.0))
    assert shown.startswith("ImageClassifier(recipe=Recipe(network='efficientnet-lite0'")
    assert shown.endswith(", seed=3)")
    assert "budget" not in shown
