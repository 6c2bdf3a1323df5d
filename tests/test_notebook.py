"""What notebooks show: tables, pictures and a line of progress."""

from __future__ import annotations

import dataclasses
import sys

import numpy as np
import pytest
from PIL import Image

from helpers.quick_network import QUICK, QuickNetwork
from patchvote import ImageClassifier, PatchvoteError, find_photos
from patchvote.models.scores import Scores
from patchvote.utils.terminal import as_progress

ADDED = {"date": "2025-01-01", "images": {"red": 1}, "new_classes": ["red"]}


@pytest.fixture(scope="module")
def fitted(photo_folder, tmp_path_factory):
    cache = tmp_path_factory.mktemp("cache")
    return ImageClassifier(QUICK, backbone=QuickNetwork(), cache=cache).fit(photo_folder)


def test_a_classifier_shows_its_classes_and_accuracy(fitted):
    page = fitted._repr_html_()
    assert "Straße &amp; Café" in page
    assert f"<b>{100 * fitted.scores.accuracy:.1f}&nbsp;%</b>" in page
    assert "learned nothing yet" in ImageClassifier(QUICK, backbone=QuickNetwork())._repr_html_()


def test_a_classifier_says_of_which_photos_its_accuracy_is(fitted, photo_folder, tmp_path):
    held_out, photos = fitted.scores, find_photos(photo_folder)[:2]
    paths, labels = [photo.source for photo in photos], [photo.label for photo in photos]
    fitted.score(paths, labels)
    assert fitted.scores is held_out  # as scikit-learn's, `score` changes nothing
    assert f"of {len(held_out)} training photos, held out while others were learned," in fitted._repr_html_()
    fitted.save(tmp_path / "m.patchvote")
    other = ImageClassifier.load(tmp_path / "m.patchvote", backbone=QuickNetwork(), cache=False)
    assert other.scores is None
    assert "photos that it had not seen were classified correctly" in other._repr_html_()
    other.evaluate(paths, labels)
    assert not other.scores.held_out
    assert "of 2 photos given to evaluate classified correctly" in other._repr_html_()
    Image.new("RGB", (64, 64), "red").save(tmp_path / "red.png")
    other.add([tmp_path / "red.png"], ["red"])
    assert len(other.scores) == len(held_out)  # it is measured anew, as a fit to all photos does
    other.scores = None
    other._model = dataclasses.replace(other.model, about=dataclasses.replace(other.model.about, added=[ADDED]))
    assert "measured before 1 photo was added (among them the new class red)" in other._repr_html_()


def test_names_of_classes_and_photos_are_escaped(fitted, photo_folder):
    evil = "<script>alert(1)</script>"
    scores = Scores((evil, "b"), ("x",), np.array([0]), np.array([[0.9, 0.1]]))
    assert evil not in scores._repr_html_()
    evidence = fitted.explain(next(photo_folder.glob("brick/*")))
    classes = (evil, *evidence.classes[1:])
    assert evil not in dataclasses.replace(evidence, name=evil, classes=classes, photo=None)._repr_html_()


def test_evidence_draws_its_photo_beside_the_maps(fitted, photo_folder):
    path = next(photo_folder.glob("brick/*"))
    evidence = fitted.explain(path)
    picture = evidence.plot(["brick"], side=100)
    photo = Image.open(path).convert("RGB")
    photo.thumbnail((100, 100))
    shown = np.asarray(picture, float)[12 : 12 + photo.height, 12 : 12 + photo.width]
    assert np.abs(shown - np.asarray(photo)).mean() < 12
    assert 'src="data:image/png;base64,' in evidence._repr_html_()


def test_evidence_of_a_photo_that_is_gone_is_drawn_without_it(fitted, photo_folder, tmp_path):
    path = tmp_path / "gone.png"
    path.write_bytes(next(photo_folder.glob("brick/*.png")).read_bytes())
    evidence = fitted.explain(path)
    path.unlink()
    assert evidence.plot(side=80).width > 240


def test_the_confusion_matrix_is_a_figure(fitted):
    axes = fitted.plot().axes[0]
    assert [text.get_text() for text in axes.get_yticklabels()] == list(fitted.classes)
    counts = sum(int(text.get_text()) for text in axes.texts)
    assert counts == len(fitted.scores)
    with pytest.raises(PatchvoteError, match="nothing to plot yet"):
        ImageClassifier(QUICK, backbone=QuickNetwork()).plot()


def test_a_plot_without_matplotlib_names_the_extra(fitted, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    for plot in (fitted.plot, fitted.scores.plot):
        with pytest.raises(PatchvoteError, match=r"pip install 'patchvote\[plots\]'"):
            plot()


def test_progress_is_one_line_that_replaces_itself(fitted, photo_folder, capsys):
    fitted.evaluate(photo_folder, progress=True)
    shown = capsys.readouterr().err
    assert shown.endswith("\n")
    assert shown.count("\n") == 1
    assert "evaluate: 40 of 40 photos" in shown.split("\r")[-1]
    fitted.evaluate(photo_folder, progress=False)
    assert capsys.readouterr().err == ""


def test_a_shorter_line_covers_the_longer_one_before(capsys):
    show = as_progress(True)
    show("a long name of a stage", 1, 3)
    show("short", 3, 3)
    first, second = capsys.readouterr().err.split("\r")[1:]
    assert len(second.rstrip("\n")) >= len(first)
