from __future__ import annotations

import numpy as np
import pytest

from patchvote import NBNN, SNBNL, Bags, BagSVM
from patchvote.models.choose import Candidate, _splits, choose, clearly_less
from test_voters import make_bags


def numbers_of(labels: np.ndarray) -> np.ndarray:
    return np.unique(labels, return_inverse=True)[1]


def good_and_bad() -> list[Candidate]:
    hasty = SNBNL(1, start_scale=100, batch_size=10**6, max_iter=1, min_steps=0, calibration=0)  # one step from chaos
    return [Candidate("bad", hasty), Candidate("good", SNBNL(2, calibration=0))]


def test_the_better_candidate_is_chosen_and_both_are_told():
    bags, labels = make_bags(60)
    choice = choose(good_and_bad(), Bags.of(bags), numbers_of(labels), budget=60)
    assert choice.candidate.words == "good"
    assert [one.words for one in choice.tried] == ["bad", "good"]
    assert choice.tried[1].loss < choice.tried[0].loss
    assert choice.why == "the best of 2 on images held out, by log loss"


def test_the_first_candidate_stays_where_the_second_is_no_better():
    bags, labels = make_bags(60)
    same = [Candidate("first", SNBNL(2, calibration=0)), Candidate("second", SNBNL(2, calibration=0))]
    choice = choose(same, Bags.of(bags), numbers_of(labels), budget=60)
    assert choice.candidate.words == "first"
    assert choice.why == "the first of 2 that are equally good on images held out, by log loss"


def test_a_difference_that_rounding_makes_is_a_tie():
    losses = np.full(50, 0.25)
    assert not clearly_less(losses - 1e-9, losses)
    assert clearly_less(losses - 1e-3, losses)


def test_the_budget_ends_the_trials_but_not_before_the_first():
    bags, labels = make_bags(60)
    choice = choose(good_and_bad(), Bags.of(bags), numbers_of(labels), budget=0)
    assert [one.words for one in choice.tried] == ["bad"]
    assert choice.why == "the default; there was no time to try 1 more"


@pytest.mark.parametrize("count", [12, 60, 399, 400, 1000])
def test_no_image_is_on_both_sides_of_a_split_and_few_images_are_all_held_out(count):
    numbers = np.arange(count) % 3
    splits = _splits(numbers, 0)
    for keep, out in splits:
        assert not set(keep) & set(out)
        assert len(keep) + len(out) == count
        assert set(numbers[keep]) == {0, 1, 2}
    held_out = np.concatenate([out for _, out in splits])
    assert len(held_out) == len(set(held_out))
    assert len(held_out) == (count if count < 400 else pytest.approx(0.2 * count, abs=2))


def test_a_class_with_one_image_keeps_it_and_one_image_a_class_leaves_nothing_to_hold_out():
    numbers = np.array([0, 0, 0, 1, 1, 1, 2])
    for keep, out in _splits(numbers, 0):
        assert 6 in keep
        assert 6 not in out
    assert _splits(np.array([0, 1, 2]), 0) == []
    bags, _ = make_bags(3)
    choice = choose(good_and_bad(), Bags.of(bags), np.array([0, 1, 2]), budget=60)
    assert (choice.candidate.words, choice.tried, len(choice.images)) == ("bad", [], 0)


def test_held_out_answers_are_those_of_voters_that_never_saw_the_image():
    bags, labels = make_bags(30)
    joined, numbers = Bags.of(bags), numbers_of(labels)
    choice = choose([Candidate("memory", NBNN(calibration=0, normalise=False))], joined, numbers, budget=60)
    for image, voter in zip(choice.images, choice.voter_of, strict=True):
        remembered = choice.voters[voter].values_
        assert not (remembered[:, None, 0] == joined[int(image)].values[None, :, 0].astype(np.float32)).any()


def test_the_threshold_rejects_the_share_that_the_chosen_voter_was_made_with():
    bags, labels = make_bags(60)
    joined, numbers = Bags.of(bags), numbers_of(labels)
    some, many = (
        choose([Candidate("one", BagSVM(calibration=0, rejection=share))], joined, numbers, budget=60)
        for share in (0.05, 0.4)
    )
    right = many.probability.argmax(axis=1) == numbers[many.images]
    assert many.threshold == pytest.approx(np.quantile(many.probability.max(axis=1)[right], 0.4))
    assert many.threshold > some.threshold


def test_images_are_asked_about_in_whole_where_a_part_was_learned():
    bags, labels = make_bags(30)
    asked: list[int] = []

    def whole(images: np.ndarray) -> Bags:
        asked.extend(images.tolist())
        return Bags.of([bags[i] for i in images])

    part = Bags.of([bag[:2] for bag in bags])
    choice = choose([Candidate("one", SNBNL(2, calibration=0))], part, numbers_of(labels), budget=60, whole=whole)
    assert sorted(asked) == sorted(choice.images.tolist()) == list(range(30))
