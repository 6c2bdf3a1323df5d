"""The budget covers the trainings, too."""

from __future__ import annotations

import time

import numpy as np
import pytest

from helpers.quick_network import QUICK, QuickNetwork
from patchvote import NBNL, ImageClassifier


def test_fit_ends_within_the_budget_and_says_so(photo_folder):
    classifier = ImageClassifier(QUICK, voter=NBNL(2, max_iter=10**6), budget=2, cache=False, backbone=QuickNetwork())
    began = time.perf_counter()
    classifier.fit(photo_folder)
    assert time.perf_counter() - began < 30  # without the budget, hours
    (cut,) = classifier.model.about.cut
    assert "the training on all photos ended after" in cut
    assert "of 1000000 rounds" in cut
    assert "The budget of time cut it short" in classifier.model.card


def test_what_else_runs_on_the_machine_does_not_end_a_training(photo_folder):
    voter = NBNL(2, max_iter=4).set_options(callback=lambda state: time.sleep(0.5))  # as if others had the processor
    classifier = ImageClassifier(QUICK, voter=voter, budget=2, cache=False, backbone=QuickNetwork())
    began = time.perf_counter()
    assert classifier.fit(photo_folder).model.about.cut == []
    assert time.perf_counter() - began > 2


@pytest.mark.parametrize(("budget", "asked"), [(0, 16), (600, 80)])
def test_held_out_photos_are_asked_about_as_long_as_there_is_time_and_the_rest_is_told(budget, asked):
    rng = np.random.default_rng(0)
    photos = [np.uint8(rng.integers(0, 60, (64, 64, 3)) + 60 * (index % 4)) for index in range(400)]
    classifier = ImageClassifier(QUICK, voter="nbnn", budget=budget, cache=False, backbone=QuickNetwork())
    scores = classifier.fit(photos, ["abcd"[index % 4] for index in range(400)]).scores
    assert len(scores) == len(set(scores.names)) == asked
    assert len(set(scores.expected)) == 4  # a random part, not the first class alone
    told = f"{80 - len(scores)} held-out photos were not tested"
    assert (told in " ".join(classifier.model.about.cut)) == (len(scores) < 80)
