"""The budget covers the trainings, too."""

from __future__ import annotations

import time

import numpy as np
import pytest

from helpers.quick_network import QUICK, QuickNetwork
from patchvote import NBNL, Bags, ImageClassifier
from patchvote.models.fit import cut_short
from patchvote.voters.bank_votes import NeighbourVotes
from patchvote.voters.scorer import DescriptorScorer


def bags_of(count: int, size: int, seed: int = 0) -> tuple[Bags, np.ndarray]:
    rng = np.random.default_rng(seed)
    numbers = np.arange(count) % 4
    values = [rng.normal(size=(size, 40)) + np.eye(40)[number] for number in numbers]
    return Bags.of([value.astype(np.float32) for value in values]), numbers


def test_fit_ends_within_the_budget_and_says_so(photo_folder):
    classifier = ImageClassifier(QUICK, voter=NBNL(2, max_iter=10**6), budget=2, cache=False, backbone=QuickNetwork())
    began = time.perf_counter()
    classifier.fit(photo_folder)
    assert time.perf_counter() - began < 30  # without the budget, hours
    (cut,) = classifier.model.about.cut
    assert "the training on all photos ended after" in cut
    assert "of 1000000 rounds" in cut
    assert "The budget of time cut it short" in classifier.model.card


@pytest.mark.parametrize(("steps", "ended"), [(20, "0 of 2 rounds"), (300, "0 of 2 rounds"), (420, "1 of 2 rounds")])
def test_nbnl_can_end_within_a_round_and_votes_with_what_it_has(steps, ended):
    bags, numbers = bags_of(12, 1000)  # 120 steps a round, after 240 of a linear start
    voter = NBNL(2, max_iter=2).set_options(callback=lambda told: told.get("steps", 0) >= steps).fit(bags, numbers)
    assert cut_short(voter) == ended
    assert np.isfinite(voter.weights_).all()
    assert voter.predict(bags).shape == (12,)


@pytest.mark.parametrize(("budget", "least", "most"), [(0, 16, 16), (600, 80, 80)])
def test_held_out_photos_are_asked_about_as_long_as_there_is_time_and_the_rest_is_told(
    budget, least, most, monkeypatch
):
    monkeypatch.setattr(NeighbourVotes, "scores", slow)
    rng = np.random.default_rng(0)
    photos = [np.uint8(rng.integers(0, 60, (64, 64, 3)) + 60 * (index % 4)) for index in range(400)]
    classifier = ImageClassifier(QUICK, voter="nbnn", budget=budget, cache=False, backbone=QuickNetwork())
    scores = classifier.fit(photos, ["abcd"[index % 4] for index in range(400)]).scores
    assert least <= len(scores) <= most
    assert len(set(scores.names)) == len(scores)
    assert len(set(scores.expected)) == 4  # a random part, not the first class alone
    told = f"{80 - len(scores)} held-out photos were not tested"
    assert (told in " ".join(classifier.model.about.cut)) == (len(scores) < 80)


def slow(scorer, bags):
    time.sleep(0.3)
    return DescriptorScorer.scores(scorer, bags)
