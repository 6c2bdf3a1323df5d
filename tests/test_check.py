"""What a check says of a collection: labels, copies, outliers, classes; beside the definitions written out."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from patchvote import Bags, MomentRidge
from patchvote.bags.moments import KeptMoments, MomentBags, photo_vectors
from patchvote.models.check.check import check_collection
from patchvote.models.check.findings import Kind
from patchvote.models.check.suspects import (
    doubtful_labels,
    hold_out_each,
    label_doubts,
    label_sentences,
    outliers_of,
    plain_labels,
)
from patchvote.models.fit import Labelled
from patchvote.models.scores import Scores
from patchvote.networks.bases import random_basis


def photos_of(classes=4, each=12, features=96, seed=0):
    """Means of photos that scatter around the centres of their classes, and class numbers."""
    rng = np.random.default_rng(seed)
    centres = rng.gamma(0.5, 1.0, (classes, features))
    numbers = np.repeat(np.arange(classes), each)
    return np.maximum(centres[numbers] + 0.35 * rng.standard_normal((len(numbers), features)), 0), numbers


def bags_of(means) -> MomentBags:
    """Photos of two parts each, one above the other, with these means; only photos of like means are laid out alike."""
    above = 0.5 + 0.3 * np.sin(8 * means)
    boxes = [[0, 0, 1, 0.5], [0, 0.5, 1, 1]]
    parts = np.stack([2 * above * means, 2 * (1 - above) * means], axis=1)
    return KeptMoments(random_basis(means.shape[1])).of(Bags.join([Bags(part, [0, 2], boxes) for part in parts]))


def collection(means, numbers, digests=None) -> Labelled:
    labels = [f"class {number}" for number in numbers]
    names = [f"{label}/{index}.jpg" for index, label in enumerate(labels)]
    digests = [str(index) for index in range(len(names))] if digests is None else digests
    return Labelled(names, labels, digests, bags_of(means))


# --- photos held out --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("features", [12, 200])
def test_answers_are_those_of_a_voter_that_learned_the_others(features):
    means, numbers = photos_of(features=features, each=6)
    bags, groups = bags_of(means), np.arange(24)
    groups[5] = 4  # copies are held out together
    found = hold_out_each(bags, numbers, groups)
    fitted = MomentRidge(class_weight="balanced").fit(bags, numbers, groups=groups)
    for photo in (0, 4, 5, 23):
        without = fitted.without(np.flatnonzero(fitted.folds_ == fitted.folds_[photo]))
        assert not (groups == groups[photo])[fitted.folds_ != fitted.folds_[photo]].any()
        np.testing.assert_allclose(without.predict_proba(bags.rows([photo]))[0], found.probability[photo], atol=1e-3)
    assert (found.unlike > 0).all()
    found = hold_out_each(bags, np.r_[np.zeros(23, int), 1], np.arange(24))  # one is alone in its class: not asked
    assert found.asked.tolist() == [True] * 23 + [False]
    assert np.isnan(found.probability[-1]).all()


def test_features_that_are_all_equal_are_no_error_and_have_no_outliers():
    for means in (np.ones((16, 8)), np.zeros((16, 8))):
        held_out = hold_out_each(bags_of(means), np.arange(16) % 2, np.arange(16))
        assert np.isfinite(held_out.probability).all()
        for groups in (np.arange(16), np.zeros(16, int)):
            assert outliers_of(held_out, np.full((16, 8), 8**-0.5), groups).tolist() == []


# --- labels -----------------------------------------------------------------------------------------------------------


@given(st.integers(0, 10_000))
def test_doubts_equal_the_loop_of_the_definition(seed):
    rng = np.random.default_rng(seed)
    probability = rng.dirichlet(np.full(3, 0.1), 12) + 1e-9
    probability[2] = np.nan
    labels = rng.integers(0, 3, 12)
    doubts, others = label_doubts(probability, labels)
    for i in range(12):
        if i == 2:
            assert doubts[i] == 0
            continue
        best = max((number for number in range(3) if number != labels[i]), key=lambda number: probability[i, number])
        same = [probability[j, best] for j in range(12) if j not in (i, 2) and labels[j] == labels[i]]
        rate = float(np.mean(same)) if same else 0.0
        assert others[i] == best
        assert doubts[i] == pytest.approx(probability[i, best] / probability[i, labels[i]] / (rate + 0.05))
    photos, classes = doubtful_labels(probability, labels)
    assert sorted(photos) == [i for i in range(12) if doubts[i] > 150]
    assert list(doubts[photos]) == sorted(doubts[photos], reverse=True)
    np.testing.assert_array_equal(classes, others[photos])


def test_planted_labels_are_found_and_named_best_first():
    means, right = photos_of(each=25)
    wrong = right.copy()
    wrong[[3, 40, 77]] = (right[[3, 40, 77]] + 1) % 4
    checked = check_collection(collection(means, wrong))
    found = {(one.name.split("/")[1], one.label, one.looks_like) for one in checked.of(Kind.label)}
    assert found == {(f"{i}.jpg", f"class {wrong[i]}", f"class {right[i]}") for i in (3, 40, 77)}
    assert check_collection(collection(means, right)).of(Kind.label) == []


def test_training_photos_that_look_mislabelled_are_told_after_a_fit():
    probability = np.array([[0.9, 0.1], [0.01, 0.99], [0.995, 0.005], [0.1, 0.9]])
    scores = Scores(("cat", "dog"), ("a", "b", "c", "d"), np.array([0, 0, 1, 1]), probability)
    (sentence,) = label_sentences(scores)
    assert "c (cat?), b (dog?)" in sentence
    assert plain_labels(scores)[0] == {"file_name": "c", "label": "dog", "looks_like": "cat", "probability": 0.995}
    assert label_sentences(dataclasses.replace(scores, expected=probability.argmax(axis=1))) == []


# --- copies -----------------------------------------------------------------------------------------------------------


def of_no_meaning():
    """Photos of two classes that mean nothing."""
    return np.random.default_rng(0).random((40, 96)), np.arange(40) % 2


def test_a_copy_in_another_class_is_told_unless_the_others_confirm_its_label():
    means, numbers = photos_of(each=25)
    means, numbers = np.r_[means, means[:1]], np.r_[numbers, 2]  # a photo of class 0 stands in class 2 as well
    digests = [*map(str, range(100)), "0"]
    checked = check_collection(collection(means, numbers, digests))
    (suspect,) = checked.of(Kind.classes)
    assert (suspect.name, suspect.label, suspect.looks_like) == ("class 2/100.jpg", "class 2", "class 0")
    assert (suspect.is_movable, checked.alike) == (True, [])


@pytest.mark.parametrize("in_test", [False, True])
def test_both_copies_are_told_where_nothing_says_which_is_right_and_go_if_they_are_in_the_test(in_test):
    means, numbers = of_no_meaning()
    means[1] = means[0] * 1.001
    test = collection(means[:1], [0], ["test"]) if in_test else None
    found = check_collection(collection(means, numbers), test).of(Kind.classes)
    assert {one.name: one.is_movable for one in found} == {"class 0/0.jpg": in_test, "class 1/1.jpg": in_test}


def test_photos_that_look_alike_are_not_told_as_copies_and_stay():
    means, numbers = photos_of(each=25)
    rng = np.random.default_rng(3)
    alike = np.maximum(means[[0, 30]] + 0.05 * rng.standard_normal((2, 96)), 0)
    test = collection(np.r_[alike[:1], means[50:51], means[60:61] * 1.001], [0, 2, 2], ["new", "50", "near"])
    checked = check_collection(collection(np.r_[means, alike[1:]], np.r_[numbers, 1]), test)
    assert [one.is_movable for one in checked.of(Kind.like_test)] == [False]
    assert {one.name: one.is_movable for one in checked.of(Kind.test)} == {
        "class 2/50.jpg": True,
        "class 2/60.jpg": True,
    }
    assert (checked.tested, checked.alike) == (3, [["class 1/30.jpg", "class 1/100.jpg"]])
    means, numbers = of_no_meaning()
    means[1] = means[0] + 0.05 * np.random.default_rng(0).random(96)
    checked = check_collection(collection(means, numbers))
    assert checked.of(Kind.classes) == []
    found = {one.name: one.is_movable for one in checked.of(Kind.like_class)}
    assert found == {"class 0/0.jpg": False, "class 1/1.jpg": False}


def test_photos_alike_in_one_class_are_groups_and_only_the_same_file_is_a_suspect():
    means, numbers = photos_of(each=12)
    means[1], means[2] = means[0], means[0] * 1.001
    digests = [str(index) for index in range(48)]
    digests[1] = "0"
    checked = check_collection(collection(means, numbers, digests))
    assert checked.alike == [["class 0/0.jpg", "class 0/1.jpg", "class 0/2.jpg"]]
    assert [suspect.name for suspect in checked.of(Kind.copy)] == ["class 0/1.jpg"]
    assert checked.different["class 0"] == 10
    assert checked.few == {}
    step = np.abs(np.random.default_rng(1).standard_normal((12, 96)))
    means[:12] = means[0] + 0.04 * np.cumsum(step, axis=0)  # each is like the one before it, and unlike the first
    checked = check_collection(collection(means, numbers))
    assert len(checked.alike) == 1
    assert 1 < checked.different["class 0"] < 12


# --- outliers and the rest --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("classes", "each", "seed"), [(4, 25, 0), *((2, 8, seed) for seed in range(4))])
def test_a_stranger_is_an_outlier_and_nothing_else_is(classes, each, seed):
    means, numbers = photos_of(classes, each, seed=seed)
    assert check_collection(collection(means, numbers)).of(Kind.outlier) == []
    stranger = np.random.default_rng(100 + seed).gamma(0.5, 1.0, 96)
    checked = check_collection(collection(np.r_[means, [stranger]], np.r_[numbers, 1]))
    found = [(one.name, one.kind) for one in checked.suspects if one.kind is Kind.outlier or each == 25]
    assert found == [(f"class 1/{len(means)}.jpg", Kind.outlier)]  # and listed once


def test_outliers_of_a_small_collection_follow_the_definition():
    means, numbers = photos_of(classes=3, each=7, seed=5)
    means = np.r_[means, np.random.default_rng(7).gamma(0.5, 1.0, (2, 96))]
    numbers, groups = np.r_[numbers, 0, 1], np.arange(23)
    groups[4] = 3
    held_out = hold_out_each(bags_of(means), numbers, groups)
    vectors = photo_vectors(bags_of(means)).astype(float)
    distance = []
    for i in range(23):
        others = sorted(1 - vectors[i] @ vectors[j] for j in range(23) if groups[j] != groups[i])
        distance.append(sum(others[:3]) / 3)
    expected = {}
    for i in range(23):
        z = []
        for values in (np.log(held_out.unlike), np.log(distance)):
            low, high = np.quantile(values, [0.25, 0.75])
            z.append((values[i] - high) / (high - low))
        expected[i] = min(z) - 2 * np.log(held_out.probability[i].max()) if min(z) > 0 else -np.inf
    found = outliers_of(held_out, vectors, groups)
    assert set(found.tolist()) == {i for i, value in expected.items() if value > 2.4} != set()
    assert [expected[i] for i in found] == sorted((expected[i] for i in found), reverse=True)


def test_where_the_others_are_undecided_about_most_photos_no_outlier_is_told():
    means = np.random.default_rng(0).gamma(0.5, 1.0, (80, 96))  # photos that have nothing in common, in 40 classes
    checked = check_collection(collection(means, np.repeat(np.arange(40), 2)))
    assert checked.of(Kind.outlier) == []
    assert any("undecided about most photos" in line for line in checked.sentences())


def test_photos_that_cannot_be_compared_are_named_with_the_reason():
    means, numbers = photos_of(classes=3, each=12)
    means[1:12] = means[0] * np.linspace(1.001, 1.01, 11)[:, None]  # a class whose photos all look alike
    checked = check_collection(collection(np.r_[means, means[-1:] + 1], np.r_[numbers, 3]))
    assert checked.only == ["class 3/36.jpg"]
    assert checked.linked == [f"class 0/{index}.jpg" for index in range(12)]


def test_few_photos_have_no_outliers_and_one_class_alone_is_checked_for_copies():
    means, numbers = photos_of(classes=2, each=5)
    means = np.r_[means, [np.random.default_rng(9).gamma(0.5, 1.0, 96)]]
    assert check_collection(collection(means, np.r_[numbers, 1])).of(Kind.outlier) == []
    means, numbers = photos_of(classes=1, each=30)
    means[7] = means[6]
    checked = check_collection(collection(means, numbers))
    assert checked.alike == [["class 0/6.jpg", "class 0/7.jpg"]]
    assert checked.of(Kind.label) == []
