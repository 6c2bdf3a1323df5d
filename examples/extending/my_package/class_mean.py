"""A voter: a descriptor votes for the classes whose means are near it (docs/parts.md explains every line)."""

import numpy as np

from patchvote import Store, Voter
from patchvote.utils.schema import number
from patchvote.voters.labels import check_weights
from patchvote.voters.scorer import FLOATS, DescriptorScorer, Schema


class ClassMeanVotes(DescriptorScorer):  # votes with what was learned; needs numpy alone
    kind = "class-mean"  # the name of the entry point
    schema = Schema(
        arrays={"centres": ("class feature", FLOATS)}, settings={"sharpness": number(0.1, 100)}, needed=("sharpness",)
    )

    @property
    def features(self):
        return self.arrays["centres"].shape[1]

    def vote(self, values):  # (descriptors, features) to (descriptors, classes)
        distance = np.linalg.norm(values[:, None] - self.arrays["centres"], axis=2)
        return -self.settings["sharpness"] * distance


class ClassMean(Voter):  # an estimator of scikit-learn, which learns
    scorer_class = ClassMeanVotes

    def __init__(self, sharpness=1.0):
        self.sharpness = sharpness

    def fit(self, X, y=None, sample_weight=None):
        self._check_settings()  # by the schema
        images, labels = self._read_labelled(X, y, reset=True)  # checked; sets n_features_in_
        bags = images.load()[0] if isinstance(images, Store) else images
        used = check_weights(sample_weight, len(bags)) > 0  # images of weight 0 are left out
        numbers, means = self._set_classes(labels[used]), bags.means()[used]  # sets classes_
        self.centres_ = np.stack([means[numbers == number].mean(axis=0) for number in range(len(self.classes_))])
        return self
