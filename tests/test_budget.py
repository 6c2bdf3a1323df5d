"""The budget covers the trainings, too."""

from __future__ import annotations

import time

import numpy as np
import pytest

from helpers.command import network_in
from patchvote import NBNL, NBNN, SNBNL, Bags
from patchvote.models.choose import Candidate, choose
from patchvote.utils.budget import cut_short, fit_until


def bags_of(count: int, size: int, seed: int = 0) -> tuple[Bags, np.ndarray]:
    rng = np.random.default_rng(seed)
    numbers = np.arange(count) % 4
    values = [rng.normal(size=(size, 40)) + np.eye(40)[number] for number in numbers]
    return Bags.of([value.astype(np.float32) for value in values]), numbers


def test_nbnl_ends_within_the_budget_and_says_so():
    bags, numbers = bags_of(40, 300)
    slow = Candidate("slow", NBNL(10, max_iter=10_000))
    began = time.perf_counter()
    choice = choose([slow], bags, numbers, budget=3)
    assert time.perf_counter() - began < 30  # without the budget, hours
    assert "of 10000 rounds" in cut_short(choice.voters[0])
    assert choice.tried[0].accuracy > 0.4


def test_the_command_says_what_the_budget_cut(command, photo_folder, tmp_path, monkeypatch):
    endless = [Candidate("NBNL", NBNL(max_iter=10**6))]
    monkeypatch.setattr("patchvote.models.fit.candidates_for", lambda voter, seed: endless)
    done = command(
        *("fit", photo_folder, tmp_path / "m.patchvote", "--network", network_in(tmp_path), "--no-cache"),
        *("--voter", "nbnl", "--budget", "3"),
    )
    assert done.code == 0
    assert "The budget of time cut it short" in done.out
    assert "the training on all photos ended after" in done.out
    assert "of 1000000 rounds" in done.out


@pytest.mark.parametrize("voter", [NBNL(2, max_iter=4), SNBNL(2, calibration=0)])
def test_a_budget_that_is_not_reached_changes_nothing(voter):
    bags, numbers = bags_of(12, 20)
    one, two = fit_until(voter, time.perf_counter() + 1e6, bags, numbers), fit_until(voter, np.inf, bags, numbers)
    np.testing.assert_array_equal(one.weights_, two.weights_)
    assert cut_short(one) is None
    assert one.callback is None


def test_nbnl_asks_after_each_round_whether_to_go_on():
    bags, numbers = bags_of(12, 20)
    seen = []

    def stop(told):
        seen.extend([told["round"]] if "loss" in told else [])
        return len(seen) == 3

    assert cut_short(NBNL(2, max_iter=9, callback=stop).fit(bags, numbers)) == "3 of 9 rounds"
    assert seen == [1, 2, 3]


@pytest.mark.parametrize(("steps", "ended"), [(20, "0 of 2 rounds"), (300, "0 of 2 rounds"), (420, "1 of 2 rounds")])
def test_nbnl_can_end_within_a_round_and_votes_with_what_it_has(steps, ended):
    bags, numbers = bags_of(12, 1000)  # 120 steps a round, after 240 of a linear start
    voter = NBNL(2, max_iter=2, callback=lambda told: told.get("steps", 0) >= steps).fit(bags, numbers)
    assert cut_short(voter) == ended
    assert np.isfinite(voter.weights_).all()
    assert voter.predict(bags).shape == (12,)


class Sluggish(NBNN):
    """Takes a twentieth of a second to answer for an image."""

    def _mean_votes(self, X):
        time.sleep(0.05 * len(X))
        return super()._mean_votes(X)


def test_slow_answers_are_asked_for_as_long_as_there_is_time_and_the_rest_is_told():
    bags, numbers = bags_of(600, 2)
    choice = choose([Candidate("slow", Sluggish(calibration=0))], bags, numbers, budget=3)
    assert 16 <= len(choice.images) < 100
    assert choice.not_asked == 120 - len(choice.images)
    assert len(np.unique(choice.images)) == len(choice.images)
    assert len(np.unique(numbers[choice.images])) == 4  # a random part, not the first class alone
    assert len(choice.voter_of) == len(choice.probability) == len(choice.images)


def test_splits_that_there_is_no_time_for_are_left_out():
    bags, numbers = bags_of(100, 2)
    choice = choose([Candidate("slow", Sluggish(calibration=0))], bags, numbers, budget=0)
    assert 16 <= len(choice.images) < 100
    assert choice.not_asked == 100 - len(choice.images)
    assert choice.probability.shape == (len(choice.images), 4)
