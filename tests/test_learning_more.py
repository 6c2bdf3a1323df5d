"""Voters that learn more images: as a whole or not at all, and without changing the model that they came from."""

from __future__ import annotations

import numpy as np
import pytest

from patchvote import Bags
from patchvote.errors import PatchvoteError
from patchvote.voters.snbnl import SNBNL

RNG = np.random.default_rng(0)
IMAGES = [RNG.random((6, 4)) + np.eye(4)[label] for label in (1, 2) for _ in range(6)]
LABELS = ["boat"] * 6 + ["cat"] * 6
MORE = [RNG.random((6, 4)) + np.eye(4)[0] for _ in range(2)]
NEW = ["ape"] * 2  # it sorts before the known classes, whose columns it would move


def arrays_of(voter) -> dict[str, list]:
    return {name: array.tolist() for name, array in voter.scorer().arrays.items()}


@pytest.mark.parametrize("labels", [["boat", "cat"], NEW])
def test_learning_more_does_not_change_the_model_that_a_voter_came_from(labels):
    voter = SNBNL(2).fit(IMAGES, LABELS)
    scorer, before = voter.scorer(), arrays_of(voter)
    again = SNBNL.from_scorer(scorer, ["boat", "cat"]).partial_fit(MORE, labels)
    assert {name: array.tolist() for name, array in scorer.arrays.items()} == before
    assert arrays_of(again) != before


# --- what SNBNL remembers --------------------------------------------------------------------------------------------


def learned(factor: float = 1.0, **settings) -> SNBNL:
    """A voter that remembers the images that it has learned."""
    images = [factor * bag for bag in IMAGES]
    voter = SNBNL(2, **settings).fit(images, LABELS)
    voter.remember(Bags.of(images), np.searchsorted(voter.classes_, LABELS), np.random.default_rng(0))
    return voter


def learn_more(voter: SNBNL, bags, labels, seen=()) -> None:
    voter.learn_more(Bags.of(bags), np.array(labels), dict(seen), np.random.default_rng(0))


def test_balanced_classes_old_and_new_have_the_same_weight_when_more_is_learned(monkeypatch):
    voter = learned(class_weight="balanced")
    read, weights = SNBNL._training_data, []

    def noted(self, *args, **settings):
        data = read(self, *args, **settings)
        weights.append(np.bincount(data.labels, data.weight * data.source.sizes))
        return data

    monkeypatch.setattr(SNBNL, "_training_data", noted)
    learn_more(voter, [*MORE, *MORE], ["ape", "ape", "ape", "dog"])
    np.testing.assert_allclose(weights, 12)  # descriptors: the 24 new ones are of two classes
    assert voter.class_weight == "balanced"


def test_old_and_new_descriptors_are_remembered_in_proportion_to_how_many_were_seen(monkeypatch):
    monkeypatch.setattr("patchvote.voters.snbnl.REMEMBERED", 8)
    voter = learned()
    assert np.bincount(voter.memory_class_).tolist() == [8, 8]
    learn_more(voter, [bag + 100 for bag in MORE], ["ape", "cat"], {"boat": 36, "cat": 36})
    assert voter.classes_.tolist() == ["ape", "boat", "cat"]
    new = voter.memory_values_.min(axis=1) > 50
    assert np.bincount(voter.memory_class_, new).tolist() == [6, 0, 1]  # 6 of the 42 descriptors of cats are new
    assert np.bincount(voter.memory_class_).tolist() == [6, 8, 8]


def test_descriptors_beyond_float16_are_remembered_and_what_a_new_fit_forgets_is_no_more_learned_from():
    voter = learned(1e5)
    learn_more(voter, [1e5 * bag for bag in MORE], NEW)
    voter.scorer().check_all()
    assert voter.memory_values_.max() > 1e5
    voter.fit(IMAGES, ["cow"] * 6 + LABELS[6:]).scorer().check_all()
    with pytest.raises(PatchvoteError, match="cannot learn more"):
        learn_more(voter, MORE, NEW)
