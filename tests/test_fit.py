"""Which photos are held out of a fit, and what is said of them."""

from __future__ import annotations

import numpy as np
import pytest

from helpers.quick_network import QUICK, QuickNetwork
from patchvote import NBNN, ImageClassifier, PatchvoteError

LABELS = ["dark", "grey", "light"]


def shades(count: int, seed: int = 0, each: tuple[int, ...] | None = None):
    """Photos of three shades in turn, or so many of each, and their labels."""
    numbers = np.arange(count) % 3 if each is None else np.repeat(np.arange(3), each)
    rng = np.random.default_rng(seed)
    photos = [(rng.integers(0, 90, (64, 64, 3)) + 75 * number).astype(np.uint8) for number in numbers.tolist()]
    return photos, [LABELS[number] for number in numbers.tolist()]


def classifier(voter="auto", times: int = 1) -> ImageClassifier:
    return ImageClassifier(QUICK, voter=voter, backbone=QuickNetwork(times=times), cache=False)


def numbers_of(scores) -> list[int]:
    return sorted(int(name.removeprefix("image ")) for name in scores.names)


@pytest.mark.parametrize("count", [12, 60])
def test_the_default_voter_leaves_every_photo_out_and_any_other_a_fifth_of_every_class(count):
    photos, labels = shades(count)
    assert numbers_of(classifier().fit(photos, labels).scores) == list(range(count))
    held_out = classifier("nbnn").fit(photos, labels).scores
    np.testing.assert_array_equal(np.bincount(held_out.expected), max(1, round(0.2 * count / 3)))


@pytest.mark.parametrize("voter", ["auto", "snbnl"])
def test_a_share_or_names_are_held_out_together(voter):
    photos, labels = shades(60)
    half = classifier(voter).fit(photos, labels, held_out=0.5).scores
    np.testing.assert_array_equal(np.bincount(half.expected), 10)
    names = [f"image {index}" for index in (3, 7, 50)]
    fitted = classifier(voter).fit(photos, labels, held_out=names)
    assert sorted(fitted.scores.names) == sorted(names)
    assert classifier(voter).fit(photos, labels, held_out=0).scores is None


def test_answers_for_named_photos_are_those_of_a_voter_that_learned_the_others():
    photos, labels = shades(60)
    out = list(range(0, 60, 4))
    left_out = classifier().fit(photos, labels, held_out=[f"image {index}" for index in out]).scores
    kept = [index for index in range(60) if index not in out]
    others = classifier().fit([photos[index] for index in kept], [labels[index] for index in kept])
    predicted = dict(zip(left_out.names, np.array(left_out.classes)[left_out.predicted], strict=True))
    assert [predicted[f"image {index}"] for index in out] == others.predict([photos[index] for index in out]).tolist()


def test_names_that_leave_nothing_of_a_class_are_refused():
    with pytest.raises(PatchvoteError, match="held_out leaves no photo of the class of image 0 to learn from"):
        classifier().fit(*shades(12), held_out=[f"image {index}" for index in range(0, 12, 3)])


@pytest.mark.parametrize("voter", ["auto", "nbnn"])
def test_a_class_with_one_photo_keeps_it_and_one_photo_per_class_leaves_nothing_to_hold_out(voter):
    photos, labels = shades(0, each=(6, 6, 1))
    scores = classifier(voter).fit(photos, labels).scores
    assert 12 not in numbers_of(scores)
    assert set(scores.expected) == {0, 1}
    fitted = classifier(voter).fit(*shades(3))
    assert fitted.scores is None
    assert fitted.model.familiarity is None


@pytest.mark.parametrize("voter", ["auto", "nbnn"])
def test_copies_are_held_out_together(voter):
    rng = np.random.default_rng(0)
    photos = [rng.integers(0, 256, (64, 64, 3)).astype(np.uint8) for _ in range(10)] * 4
    labels = [LABELS[index % 2] for index in range(10)] * 4  # labels of noise: whoever has seen a copy knows them
    scores = classifier(voter).fit(photos, labels).scores
    held_out = set(numbers_of(scores))
    for index in held_out:
        assert {index % 10 + 10 * copy for copy in range(4)} <= held_out
    assert voter == "nbnn" or scores.accuracy < 0.8  # by chance, the two that nbnn is asked about may be right


def test_held_out_answers_are_those_of_voters_that_never_saw_the_photo():
    photos, labels = shades(30)
    fitted = classifier(NBNN(normalise=False)).fit(photos, labels)
    bank = fitted.model.scorer.arrays
    for evidence in fitted._mistakes():
        assert evidence.name not in {match.name for match in evidence.matches}
    assert set(bank["image"]) == set(range(30))  # in the end, all are learned


def test_the_threshold_rejects_the_share_that_the_voter_was_made_with():
    from patchvote import MomentRidge

    for share in (0.05, 0.4):
        model = classifier(MomentRidge(rejection=share)).fit(*shades(60)).model
        assert model.limit() == model.familiarity.rejection == share


def test_the_order_of_the_photos_does_not_matter():
    photos, labels = shades(30)
    order = np.random.default_rng(1).permutation(30)
    one = classifier().fit(photos, labels).model.scorer.arrays
    other = classifier().fit([photos[i] for i in order], [labels[i] for i in order]).model.scorer.arrays
    for name, array in one.items():
        np.testing.assert_array_equal(array, other[name])
