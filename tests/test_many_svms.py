"""SVMs of many classes that are learned together are those that are learned one by one."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.svm import LinearSVC

from patchvote import BagSVM
from patchvote.voters import linear_svm, many_svms
from patchvote.voters.many_svms import fit_many


def problem(images=150, classes=6, features=20, seed=0):
    rng = np.random.default_rng(seed)
    numbers = np.concatenate([np.arange(classes), rng.integers(0, classes, images - classes)])
    vectors = rng.normal(size=(images, features)) / 4 + rng.normal(size=(classes, features))[numbers] / 8
    return vectors, numbers, rng.uniform(0.5, 2, images)


@pytest.mark.parametrize("class_weight", [None, "balanced", {0: 3.0, 4: 0.5}])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("C", [0.3, 10])
def test_scores_are_those_of_liblinear(class_weight, weighted, C):
    vectors, numbers, weight = problem()
    weight = weight if weighted else np.ones(len(vectors))
    if class_weight == "balanced" and weighted:
        pytest.importorskip("sklearn", "1.7")  # before, balanced weights did not count the weights of images
    literal = LinearSVC(C=C, class_weight=class_weight, tol=1e-8, max_iter=100_000).fit(vectors, numbers, weight)
    present, linear, bias = fit_many(vectors, numbers, C, class_weight, weight)
    np.testing.assert_array_equal(present, literal.classes_)
    np.testing.assert_allclose(vectors @ linear.T + bias, literal.decision_function(vectors), atol=0.03)


def test_groups_of_classes_do_not_change_the_result(monkeypatch):
    vectors, numbers, weight = problem()
    together = fit_many(vectors, numbers, 1.0, None, weight)
    monkeypatch.setattr(many_svms, "_GROUP_NUMBERS", 2 * len(vectors))
    for one, other in zip(together, fit_many(vectors, numbers, 1.0, None, weight), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-9)


def test_a_bag_svm_of_many_classes_predicts_as_one_of_few(monkeypatch):
    vectors, numbers, _ = problem(classes=5)
    bags, labels = [row[None] for row in vectors], np.array(list("abcde"))[numbers]
    one_by_one = BagSVM(calibration=0, class_weight="balanced").fit(bags, labels)
    monkeypatch.setattr(linear_svm, "_MOST_NUMBERS", 0)
    together = BagSVM(calibration=0, class_weight="balanced").fit(bags, labels)
    np.testing.assert_allclose(together.decision_function(bags), one_by_one.decision_function(bags), atol=5e-3)


def test_classes_without_images_do_not_disturb_two_that_have_some(monkeypatch):
    vectors, numbers, weight = problem(classes=2)
    few = linear_svm.fit_linear(vectors, numbers, np.array(list("abc")), 1.0, None, weight, 0)
    monkeypatch.setattr(linear_svm, "_MOST_NUMBERS", 0)
    many = linear_svm.fit_linear(vectors, numbers, np.array(list("abc")), 1.0, None, weight, 0)
    for one, other in zip(few, many, strict=True):
        np.testing.assert_array_equal(one, other)
