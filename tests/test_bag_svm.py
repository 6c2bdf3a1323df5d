from __future__ import annotations

import numpy as np
import pytest

from patchvote import Bags, BagSVM, Recipe, Store
from patchvote.bags.entries import Entry
from patchvote.bags.shard_writing import write_shard
from patchvote.voters.bag_svm import pooled
from patchvote.voters.pooling import bag_vectors, shared_votes


def photos(
    count: int = 60, classes: int = 3, seed: int = 0, strength: float = 1.0
) -> tuple[list[np.ndarray], np.ndarray]:
    """Bags of features that are never negative, as after a rectifier; each class has a strong feature of its own."""
    rng = np.random.default_rng(seed)
    labels = np.arange(count) % classes
    bags = [rng.random((int(rng.integers(3, 12)), 6)) ** 3 + strength * np.eye(6)[label] for label in labels]
    return bags, np.array(["land", "sea", "sky", "town"])[labels]


def test_votes_of_a_bag_average_to_the_linear_score_of_its_vector():
    bags, labels = photos()
    voter = BagSVM().fit(bags, labels)
    for bag in bags[:5]:
        mean = bag.mean(axis=0)
        vector = np.sqrt(mean) / np.sqrt(mean.sum())  # as the formula has it
        score = voter.linear_ @ vector + voter.bias_
        np.testing.assert_allclose(voter.votes([bag]).mean(axis=0), score, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(voter.decision_function([bag])[0], score, rtol=1e-6, atol=1e-9)


def test_a_descriptor_gets_of_each_feature_the_share_that_it_contributed():
    bag = np.array([[4.0, 0.0], [0.0, 1.0], [0.0, 0.0]])
    weights = np.array([[1.0, 10.0]])
    votes = shared_votes(Bags.of([bag]), weights, np.zeros(1), 0.5)
    vector = bag_vectors(bag.mean(axis=0)[None], 0.5)[0]
    np.testing.assert_allclose(votes[:, 0], [3 * vector[0], 30 * vector[1], 0], rtol=1e-6)


def test_a_feature_that_a_bag_does_not_have_gives_no_vote_and_no_warning():
    with np.errstate(all="raise"):
        votes = shared_votes(Bags.of([np.array([[1.0, 0.0]])]), np.array([[2.0, 5.0]]), np.zeros(1), 0.5)
        nothing = shared_votes(Bags.of([np.zeros((2, 2))]), np.array([[2.0, 5.0]]), np.ones(1), 0.5)
    assert votes.tolist() == [[2.0]]
    assert nothing.tolist() == [[1.0], [1.0]]


def test_roots_are_taken_unless_a_mean_is_negative():
    bags, labels = photos()
    assert BagSVM().fit(bags, labels).power_ == 0.5
    assert BagSVM(power=1).fit(bags, labels).power_ == 1
    signed = [bag - 0.5 for bag in bags]
    voter = BagSVM().fit(signed, labels)
    assert voter.power_ == 1
    np.testing.assert_allclose(voter.votes(signed[:1]).mean(axis=0), voter.decision_function(signed[:1])[0], atol=1e-5)


def test_one_photo_a_class_is_enough_to_learn():
    bags, labels = photos(3)
    test, expected = photos(90, seed=1)
    assert BagSVM().fit(bags, labels).score(test, expected) > 0.95


def test_learning_photos_later_gives_what_learning_all_at_once_gives():
    bags, labels = photos(80, classes=4)
    old = np.flatnonzero(labels != "town")
    new = np.flatnonzero(labels == "town")
    voter = BagSVM(calibration=0).fit([bags[i] for i in old], labels[old])
    voter.partial_fit([bags[i] for i in new], labels[new])
    order = np.concatenate([old, new])
    together = BagSVM(calibration=0).fit([bags[i] for i in order], labels[order])
    assert voter.classes_.tolist() == ["land", "sea", "sky", "town"]
    np.testing.assert_array_equal(voter.linear_, together.linear_)
    np.testing.assert_array_equal(voter.bias_, together.bias_)


def test_a_store_is_learned_in_blocks_and_gives_what_its_bags_give(tmp_path, monkeypatch):
    bags, labels = photos(30)
    entries = [Entry(f"{i:02d}.jpg", str(label), f"{i:02d}") for i, label in enumerate(labels)]
    write_shard(tmp_path, Recipe(), "0" * 16, entries, [Bags.of([bag.astype(np.float32)]) for bag in bags])
    store = Store.open(tmp_path)
    monkeypatch.setattr("patchvote.voters.bag_svm._AT_ONCE", 20)
    np.testing.assert_array_equal(pooled(store).values, store.load()[0].means())
    np.testing.assert_array_equal(BagSVM().fit(store).linear_, BagSVM().fit(store.load()[0], labels).linear_)


def test_a_class_may_count_more_than_others():
    bags, labels = photos(30, strength=0.1)
    plain = BagSVM(calibration=0).fit(bags, labels)
    heavy = BagSVM(calibration=0, class_weight={"land": 50}).fit(bags, labels)
    assert np.mean(heavy.predict(bags) == "land") > np.mean(plain.predict(bags) == "land")


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"C": 0}, "C of BagSVM must be a number from"),
        ({"power": 2}, "power of BagSVM must be 'auto' or a number above 0"),
        ({"power": "root"}, "got 'root'"),
        ({"calibration": 1}, "calibration of BagSVM"),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings, words):
    bags, labels = photos(9)
    with pytest.raises(ValueError, match=words):
        BagSVM(**settings).fit(bags, labels)
