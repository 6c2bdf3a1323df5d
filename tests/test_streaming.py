"""Answers and measurements go from photo to photo: what is held does not grow with the number of photos."""

from __future__ import annotations

import weakref

import pytest

from helpers.quick_network import quick, shades
from patchvote import Bags
from patchvote.bags.extract import _Pipeline
from patchvote.models.scores import WORST


@pytest.fixture
def alive(monkeypatch):
    """Numbers of bags of photos in memory, each time that one more is made."""
    living: weakref.WeakSet[Bags] = weakref.WeakSet()
    counts: list[int] = []
    original = _Pipeline._bag

    def made(self, *what):
        bag = original(self, *what)
        living.add(bag)
        counts.append(len(living))
        return bag

    monkeypatch.setattr(_Pipeline, "_bag", made)
    return counts


@pytest.mark.parametrize("voter", ["moment-ridge", "nbnn"])
def test_predicting_and_evaluating_hold_as_many_bags_for_many_photos_as_for_few(voter, alive):
    classifier = quick(voter).fit(*shades(12))
    most = {}
    for count in (30, 90):
        many, labels = shades(count)
        alive.clear()
        classifier.predict(many)
        assert len(alive) == count
        most["predict", count] = max(alive)
        alive.clear()
        for _ in classifier.answers(many):
            pass
        most["answers", count] = max(alive)
        alive.clear()
        classifier.evaluate(many, labels[1:] + labels[:1])  # every photo is a mistake
        most["evaluate", count] = max(alive)
    assert max(most["predict", 90], most["answers", 90]) <= 4
    assert most["evaluate", 30] == most["evaluate", 90] <= WORST + 4
