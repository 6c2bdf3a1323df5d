from __future__ import annotations

import math
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from patchvote import PatchvoteError
from patchvote.models.scores import Scores, interval


def some_scores(count: int = 60, classes: int = 4, seed: int = 0) -> Scores:
    rng = np.random.default_rng(seed)
    probability = rng.dirichlet(np.full(classes, 0.3), count)
    expected = np.where(rng.uniform(size=count) < 0.7, probability.argmax(axis=1), rng.integers(0, classes, count))
    names = tuple(f"{index}.jpg" for index in range(count))
    return Scores(tuple("abcd"[:classes]), names, expected, probability, threshold=0.5)


@given(st.integers(0, 500), st.integers(0, 500))
def test_the_interval_holds_the_share_and_shrinks_with_images(right, wrong):
    low, high = interval(right, right + wrong)
    assert 0 <= low <= high <= 1
    if right + wrong:
        assert low - 1e-9 <= right / (right + wrong) <= high + 1e-9
        wider = high - low
        low, high = interval(4 * right, 4 * (right + wrong))
        assert high - low < wider


def test_accuracy_confusion_and_classes_are_those_of_the_definition():
    scores = some_scores()
    predicted = [int(np.argmax(row)) for row in scores.probability]
    assert scores.accuracy == sum(p == e for p, e in zip(predicted, scores.expected, strict=True)) / 60
    for i in range(4):
        for j in range(4):
            count = sum((e, p) == (i, j) for p, e in zip(predicted, scores.expected, strict=True))
            assert scores.confusion[i, j] == count
    for number, own in enumerate(scores.by_class()):
        asked = [p for p, e in zip(predicted, scores.expected, strict=True) if e == number]
        named = [e for p, e in zip(predicted, scores.expected, strict=True) if p == number]
        assert own.images == len(asked)
        assert own.found == pytest.approx(np.mean([p == number for p in asked]))
        assert own.right == pytest.approx(np.mean([e == number for e in named]))


def test_reliability_groups_hold_every_image_once_and_the_surest_mistakes_come_first():
    scores = some_scores(200)
    groups = scores.reliability()
    assert sum(group.images for group in groups) == 200
    assert sum(group.images * group.accuracy for group in groups) == pytest.approx(200 * scores.accuracy)
    worst = scores.worst(10)
    assert not scores.is_right[worst].any()
    assert (np.diff(scores.confidence[worst]) <= 0).all()
    others = np.setdiff1d(np.flatnonzero(~scores.is_right), worst)
    assert scores.confidence[others].max() <= scores.confidence[worst].min()


def test_answers_below_the_threshold_are_rejected_and_left_out_of_the_accuracy_of_named_images():
    probability = np.array([[0.9, 0.1], [0.6, 0.4], [0.9, 0.1]])
    scores = Scores(("a", "b"), ("1", "2", "3"), np.array([0, 1, 1]), probability, threshold=0.8)
    assert (scores.accuracy, scores.accuracy_of_named, scores.summary()["rejected"]) == (1 / 3, 0.5, 1)
    assert [values.tolist() for values in scores.named_curve()] == [[0, 1 / 3], [1 / 3, 0.5]]
    alone = Scores(("a", "b"), ("1",), np.array([0]), probability[:1], threshold=1.0)
    assert math.isnan(alone.accuracy_of_named)
    assert alone.summary()["classes"]["b"] == {"images": 0, "found": None, "right": None}


def test_the_confusion_matrix_is_a_figure(monkeypatch):
    scores = some_scores()
    axes = scores.plot().axes[0]
    assert [text.get_text() for text in axes.get_yticklabels()] == list(scores.classes)
    assert sum(int(text.get_text()) for text in axes.texts) == len(scores)
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(PatchvoteError, match=r"pip install 'patchvote\[plots\]'"):
        scores.plot()
