from __future__ import annotations

import shutil
import subprocess
import sys

import numpy as np
import pytest
from PIL import Image, ImageFilter

from patchvote import NBNL, SNBNL, Dense, ImageClassifier, MomentRidge, PatchvoteError, PhotoError, Recipe
from patchvote.photos.decode import load_image
from patchvote.photos.find import Photo, find_photos

SMALL = Recipe(sampling=Dense(sides=(96,)))


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module")
def fitted(photo_folder, cache) -> ImageClassifier:
    return ImageClassifier(SMALL, cache=cache).fit(photo_folder)


@pytest.fixture
def model(fitted, tmp_path):
    """A file of the fitted model."""
    fitted.save(tmp_path / "m.patchvote")
    return tmp_path / "m.patchvote"


def test_it_learns_a_folder_names_its_photos_and_rejects_others(fitted, photo_folder):
    assert fitted.classes == ("Straße & Café", "brick", "grass", "gravel")
    photos = find_photos(photo_folder)
    assert np.mean(fitted.predict(photo_folder) == [photo.label for photo in photos]) > 0.9
    probability = fitted.predict_proba(photo_folder)
    np.testing.assert_allclose(probability.sum(axis=1), 1)
    answers = list(fitted.answers(photo_folder))
    assert [answer.name for answer in answers] == [photo.name for photo in photos]
    for answer, row in zip(answers, probability, strict=True):
        assert answer.likeliest_probability == row.max()
        assert answer.runner_up_probability == np.sort(row)[-2]
        assert answer.rejected == (answer.familiarity < 0.05)
    blank = [np.full((64, 64, 3), 255, np.uint8), np.zeros((64, 64, 3), np.uint8)]
    rejected = np.array([answer.familiarity < 0.05 for answer in fitted.answers(blank)])
    assert rejected.any()
    assert set(fitted.predict(blank)) <= set(fitted.classes)
    np.testing.assert_array_equal(fitted.predict_or_none(blank) == "none of these", rejected)
    assert None in fitted.predict_or_none(blank, none=None).tolist()
    assert fitted.explain(blank[int(rejected.argmax())]).rejected


def test_folder_manifest_and_list_give_the_same_model_and_the_network_is_asked_once(
    fitted, photo_folder, cache, tmp_path
):
    photos = find_photos(photo_folder)
    manifest = tmp_path / "photos.csv"
    manifest.write_text("file_name,label\n" + "".join(f"{photo.source},{photo.label}\n" for photo in photos))
    paths = [photo.source for photo in photos]
    by_list = ImageClassifier(SMALL, cache=cache).fit(paths, [photo.label for photo in photos])
    by_manifest = ImageClassifier(SMALL, cache=cache).fit(manifest)
    for other in (by_list, by_manifest):
        assert (other.filled.extracted, other.filled.kept) == (0, 40)
        assert other.classes == fitted.classes
        np.testing.assert_allclose(other.predict_proba(paths[::7]), fitted.predict_proba(paths[::7]), atol=1e-3)
    again = ImageClassifier(SMALL, cache=cache, voter=MomentRidge(10.0)).fit(photo_folder)
    assert (again.filled.extracted, again.model.scorer.settings["alpha"]) == (0, 10)


def test_answering_needs_no_scikit_learn(model, photo_folder):
    code = """
import sys
from patchvote import ImageClassifier
classifier = ImageClassifier.load(sys.argv[1])
print(len(list(classifier.answers(sys.argv[2]))), "sklearn" in sys.modules, "faiss" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code, model, photo_folder], capture_output=True, text=True, check=True)
    assert done.stdout == "40 False False\n"


def test_evidence_points_at_the_right_side_whatever_way_the_camera_was_held(fitted, real_photos, tmp_path):
    upright = Image.new("RGB", (320, 160))  # grass on the left, brick on the right
    for left, name in ((0, "grass"), (160, "brick")):
        upright.paste(Image.open(real_photos / f"{name}.png").crop((300, 300, 460, 460)), (left, 0))
    for orientation, turn in ((1, None), (3, Image.Transpose.ROTATE_180), (6, Image.Transpose.ROTATE_90)):
        stored = upright if turn is None else upright.transpose(turn)
        exif = Image.Exif()
        exif[0x0112] = orientation
        path = tmp_path / f"{orientation}.jpg"
        stored.resize((stored.width * 3, stored.height * 3)).save(path, exif=exif, quality=95)
        shown = load_image(Photo("x", path))
        assert shown.width == 2 * shown.height
        evidence = fitted.explain(path)
        (probability,) = fitted.predict_proba([path])
        np.testing.assert_allclose(evidence.probability, probability, rtol=1e-6)
        grass, brick = evidence.contrast("grass", 32, 16), evidence.contrast("brick", 32, 16)
        assert grass[:, :16].sum() > grass[:, 16:].sum()
        assert brick[:, 16:].sum() > brick[:, :16].sum()


def test_more_photos_and_new_classes_are_learned_without_the_old_ones(photo_folder, cache, tmp_path):
    photos = find_photos(photo_folder)
    known = [photo for photo in photos if photo.label in ("brick", "grass")]
    new = [photo for photo in photos if photo.label == "gravel"]
    for voter in ("snbnl", "nbnn"):
        ImageClassifier(SMALL, cache=cache, voter=voter).fit(known).save(tmp_path / "m")
        classifier = ImageClassifier.load(tmp_path / "m", cache=cache)
        before = classifier.predict(known)
        classifier.add(new)
        assert np.mean(classifier.predict(new) == "gravel") > 0.8
        assert np.mean(classifier.predict(known) == before) > 0.9
        assert classifier.model.about.images == {"brick": 10, "grass": 10, "gravel": 10}
        assert classifier.model.about.added[0]["new_classes"] == ["gravel"]
    with pytest.raises(PatchvoteError, match="cannot learn more"):
        ImageClassifier(SMALL, cache=cache, voter=NBNL(2, max_iter=2)).fit(known).add(new)


def test_evaluation_compares_answers_with_labels_and_leaves_out_what_cannot_be_read(fitted, photo_folder, tmp_path):
    shutil.copytree(photo_folder, tmp_path / "photos")
    broken = tmp_path / "photos" / "brick" / "broken.jpg"
    broken.write_bytes(b"no")
    scores = fitted.evaluate(tmp_path / "photos")
    assert len(scores) == 40
    assert [error.name for error in fitted.skipped] == ["brick/broken.jpg"]
    photos = find_photos(photo_folder)
    assert scores.accuracy == np.mean(fitted.predict(photo_folder) == [photo.label for photo in photos])


def test_what_cannot_be_learned_or_asked_is_refused_with_a_way_on(photo_folder, tmp_path, fitted, cache, model):
    def refused(keyword, call, *words, **settings):
        with pytest.raises(PatchvoteError, match=keyword):
            call(*words, **settings)

    flat, fit = tmp_path / "flat", ImageClassifier(SMALL, cache=cache).fit
    (flat / "one").mkdir(parents=True)
    Image.new("RGB", (50, 50)).save(flat / "a.png")
    refused("Put the photos of each class into a folder", fit, flat)
    Image.new("RGB", (50, 50)).save(flat / "one" / "b.png")
    refused("first is a.png", fit, flat)
    (flat / "a.png").unlink()
    refused("of one class, 'one'", fit, flat)
    (flat / "two").mkdir()
    (flat / "two" / "c.png").write_bytes(b"broken")
    refused("would have those of one", fit, flat)
    refused("2 photos but 1 label", fit, [flat / "one" / "b.png", flat / "two" / "c.png"], ["x"])
    refused("Did you mean 'snbnl'", ImageClassifier, SMALL, voter="snbl")
    refused("the class 'one'", fitted.evaluate, [flat / "one" / "b.png"], ["one"])
    refused("c.png", fitted.predict, [flat / "two" / "c.png"])
    refused("nothing yet", ImageClassifier(SMALL).predict, [flat / "one" / "b.png"])
    refused("explain_each", fitted.explain, photo_folder)
    refused("another network", ImageClassifier.load, model, network="efficientnet-lite1")


def test_adapting_to_photos_of_another_camera_names_more_of_them_rightly(fitted, photo_folder, cache, tmp_path):
    target = tmp_path / "target"  # the same scenes out of focus, in fog and under a blue lamp
    target.mkdir()
    for photo in find_photos(photo_folder):
        pixels = np.asarray(load_image(photo).filter(ImageFilter.GaussianBlur(2)), np.float64)
        foggy = (0.4 * pixels + 110) * [0.6, 0.8, 1.0]
        Image.fromarray(foggy.clip(0, 255).astype(np.uint8)).save(target / f"{photo.name.replace('/', '_')}.png")
    right = [photo.name.split("_")[0] for photo in find_photos(target)]
    before = np.mean(fitted.predict(target) == right)
    adapted = ImageClassifier(SMALL, cache=cache).fit(photo_folder, target=target)
    assert np.mean(adapted.predict(target) == right) > before
    assert adapted.scores is not None  # of the photos with classes, held out

    fitted.save(tmp_path / "m.patchvote")
    again = ImageClassifier.load(tmp_path / "m.patchvote", cache=tmp_path / "cache")
    (target / "zz.png").write_bytes(b"no photo")
    answers = list(again.answers(target, adapt=True))
    assert (again.refusal, again.filled.extracted) == (None, 40)  # it looks at each photo once
    assert [answer.name for answer in answers if answer.error] == ["zz.png"]
    labels = [answer.likeliest for answer in answers if answer.error is None]
    assert np.mean(np.array(labels) == right) > before
    (target / "zz.png").unlink()
    assert again.predict(target).tolist() == labels  # it stays adapted


def test_a_target_that_cannot_be_used_is_told_before_any_work(photo_folder, tmp_path):
    with pytest.raises(PhotoError, match="nowhere"):
        ImageClassifier(SMALL, cache=tmp_path / "c").fit(photo_folder, target=tmp_path / "nowhere")
    with pytest.raises(PatchvoteError, match="snbnl cannot be adapted"):
        ImageClassifier(SMALL, voter=SNBNL(2), cache=tmp_path / "c").fit(photo_folder, target=photo_folder)
    assert not (tmp_path / "c").exists()
