"""A package that brings a voter of its own: all that it takes."""

from __future__ import annotations

import numpy as np

from patchvote import Voter
from patchvote.utils.schema import number, whole
from patchvote.voters.scorer import FLOATS, DescriptorScorer, Schema


class NearestMeanVotes(DescriptorScorer):
    """Minus the distance of a descriptor to the mean of each class."""

    kind = "nearest-mean"
    schema = Schema(
        arrays={"centres": (2, FLOATS)},
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
