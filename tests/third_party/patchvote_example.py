"""A package that brings a voter of its own: all that it takes; and below it, voters with faults."""

from __future__ import annotations

import numpy as np

from patchvote import Voter
from patchvote.utils.schema import number, whole
from patchvote.voters.scorer import FLOATS, DescriptorScorer, Schema


class NearestMeanVotes(DescriptorScorer):
    """Minus the distance of a descriptor to the mean of each class."""

    kind = "nearest-mean"
    schema = Schema(
        arrays={"centres": ("class feature", FLOATS)},
        settings={"sharpness": number(0.1, 100), "random_state": whole(0, 2**32 - 1)},
        needed=("sharpness",),
    )

    @property
    def features(self):
        return self.arrays["centres"].shape[1]

    def vote(self, values):
        apart = values[:, None, :] - self.arrays["centres"][None]
        return -self.settings["sharpness"] * np.sqrt(np.square(apart).sum(axis=2))


class NearestMean(Voter):
    """Names a bag by the class whose mean its descriptors are nearest to."""

    scorer_class = NearestMeanVotes

    def __init__(self, sharpness=1.0, random_state=0):
        self.sharpness = sharpness
        self.random_state = random_state

    def fit(self, X, y=None):
        """Take the mean of the descriptors of every class."""
        self._check_settings()
        bags, labels = self._read_labelled(X, y, reset=True)
        numbers = self._set_classes(labels)
        owner = numbers[bags.owner]
        self.centres_ = np.stack([bags.values[owner == number].mean(axis=0) for number in range(len(self.classes_))])
        self.temperature_, self.rejection_threshold_ = 1.0, 0.0
        return self


class Stranger:
    """What is no voter."""


def _named(kind, **members):
    return type(f"{kind} votes", (NearestMeanVotes,), {"kind": kind, **members})


class Thing(NearestMean):
    """Takes a setting of any kind."""

    scorer_class = _named(
        "thing", schema=Schema(NearestMeanVotes.schema.arrays, settings={"thing": lambda value: None})
    )

    def __init__(self, thing=None):
        self.thing = thing


class Collides(NearestMean):
    """Has a name of ours."""

    scorer_class = _named("nbnn")


class NamedAuto(NearestMean):
    """Has the name of the default."""

    scorer_class = _named("auto")


class Unregistered(NearestMean):
    """Is no entry point."""

    scorer_class = _named("unregistered")


def __getattr__(name):
    raise SystemExit("good bye") if name == "exits" else AttributeError(name)
