from __future__ import annotations

import numpy as np
import pytest
from patchvote.voters.gains import moved
from patchvote.voters.self_training import surest
from sklearn.base import clone
from test_bag_svm import photos

from patchvote import NBNN, SNBNL, Adapted, Bags, BagSVM

GAINS = np.array([1.0, 9.0, 0.5, 1.0, 4.0, 1.0])  # another camera


@pytest.fixture(scope="module")
def domains():
    source, labels = photos(90, strength=0.6, seed=1)
    target, expected = photos(90, strength=0.6, seed=2)
    return source, labels, [bag * GAINS for bag in target], expected


@pytest.mark.parametrize("voter", [BagSVM(C=0.3), SNBNL(2), NBNN(normalise=False)], ids=lambda v: type(v).__name__)
def test_any_voter_names_photos_of_another_camera_better_once_adapted(voter, domains):
    source, labels, target, expected = domains
    before = clone(voter).fit(source, labels).score(target, expected)
    after = Adapted(voter).fit(source, labels, target).score(target, expected)
    assert before < 0.75
    assert after > 0.95


def test_gains_make_the_means_of_both_domains_the_same():
    source, labels = photos(30, seed=1)
    target = Bags.of([bag * GAINS for bag in photos(30, seed=2)[0]])
    there = target.means().mean(axis=0)
    balanced = moved(Bags.of(source), labels, labels, there)
    np.testing.assert_allclose(balanced.means().mean(axis=0), there, rtol=0.1)
    assert (balanced.values >= 0).all()
    signed = moved(Bags.of([bag - 0.3 for bag in source]), labels, labels, there)
    np.testing.assert_allclose(signed.means().mean(axis=0), there, rtol=1e-4)


@pytest.mark.parametrize("shown", [["sea"], ["sea", "sky"]], ids=" and ".join)
def test_a_target_that_shows_some_classes_only_is_not_taken_for_another_camera(shown, domains):
    source, labels, _, _ = domains
    target, expected = photos(90, strength=0.6, seed=3)
    chosen = np.isin(expected, shown)
    target = [bag for bag, own in zip(target, chosen, strict=True) if own]
    plain = BagSVM(C=0.3).fit(source, labels).score(target, expected[chosen])
    assert plain > 0.9
    assert Adapted().fit(source, labels, target).score(target, expected[chosen]) >= plain


def test_the_surest_photos_are_the_same_share_of_every_class():
    means = np.array([[9, 0], [5, 0], [3, 0], [1, 0], [0, 2], [0, 1]])
    assert surest(means, 0.5).tolist() == [0, 1, 4]
    assert surest(means, 0.1).tolist() == [0, 4]
    assert surest(means, 1).tolist() == [0, 1, 2, 3, 4, 5]


def test_labels_of_some_photos_of_the_target_are_used_and_kept(domains):
    source, labels, target, expected = domains
    known = [label if i < 9 else None for i, label in enumerate(expected)]
    adapted = Adapted().fit(source, labels, target, known)
    assert adapted.score(target, expected) > 0.95
    assert len(adapted.voter_.vectors_) == len(source) + 9 + adapted.history_[-1]["taken"]
    assert adapted.history_[-1]["taken"] < 81 < len(target)  # those with labels are never named anew


def test_without_rounds_and_gains_it_is_the_voter_itself(domains):
    source, labels, target, _ = domains
    plain = BagSVM(C=0.3).fit(source, labels)
    adapted = Adapted(shares=(), gains=False).fit(source, labels, target)
    np.testing.assert_allclose(adapted.decision_function(target), plain.decision_function(target), atol=1e-5)
    np.testing.assert_allclose(adapted.predict_proba(target).sum(axis=1), 1)
    assert adapted.votes(target[:1]).shape == (len(target[0]), 3)
    assert set(adapted.predict_or_none(target)) <= {"land", "sea", "sky", "none of these"}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"target": [np.ones((2, 5))]}, "the source has 6 features per descriptor, the target 5"),
        ({"target_y": ["sea"]}, "the target has 90 photos, but 1 labels"),
        ({"target": [np.full((2, 6), np.nan)]}, "NaN"),
    ],
)
def test_photos_that_do_not_fit_are_refused(change, words, domains):
    source, labels, target, _ = domains
    asked = {"target": target, "target_y": None} | change
    with pytest.raises(ValueError, match=words):
        Adapted().fit(source, labels, asked["target"], asked["target_y"])
    with pytest.raises(ValueError, match="shares of Adapted"):
        Adapted(shares=(0.5, 2)).fit(source, labels, target)


def test_copies_of_the_source_do_not_make_an_adapted_voter_surer():
    rng = np.random.default_rng(0)
    bags = [rng.random((6, 80)) for _ in range(60)]
    labels = rng.integers(0, 2, 60).tolist()  # which mean nothing
    adapted = Adapted(BagSVM(), insist=True).fit(bags * 2, labels * 2, [rng.random((6, 80)) for _ in range(20)])
    strange = Bags.of([rng.random((6, 80)) for _ in range(60)])
    assert adapted.voter_.predict_proba(strange).max(axis=1).mean() < 0.65


def test_a_voter_that_is_fitted_anew_has_no_veto_of_the_model_before(domains):
    source, labels, target, _ = domains
    adapted = Adapted().fit(source, labels, target)
    assert adapted.scorer().has_veto
    voter = BagSVM.from_scorer(adapted.scorer(), adapted.classes_)
    assert not voter.fit(source, labels).scorer().has_veto
