"""Probabilities of the baselines: a softmax of decision values, calibrated on held-out images as that of the voters."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from ...bags.bags import Bags
from ...bags.copies import copy_groups
from ...voters.calibration import FEWEST_TO_CALIBRATE, fit_temperature, threshold_for
from ...voters.labels import hold_out
from ...voters.votes import softmax

Vectors = npt.NDArray[np.float32]


class Probabilities:
    """A classifier that has `predict_proba` and a threshold of rejection.

    Attributes
    ----------
    classes_ : array
        The classes, sorted.
    rejection_threshold_ : float
        Smallest probability that is accepted; 0 where the classifier is not calibrated.
    """

    classes_: npt.NDArray[Any]
    rejection_threshold_: float = 0.0

    def predict_proba(self, X: Bags) -> npt.NDArray[Any]:
        """Return the probability of each class, for each image."""
        raise NotImplementedError


def decision_values(model: Any, vectors: Vectors) -> npt.NDArray[np.float64]:
    """Return one decision value per class; two classes, which have one function, get half of it with opposite signs."""
    values = np.asarray(model.decision_function(vectors), np.float64)
    return values if values.ndim == 2 else np.stack([-values, values], axis=1) / 2


def calibrated(
    train: Callable[[Vectors, npt.NDArray[Any]], Any],
    vectors: Vectors,
    labels: npt.NDArray[Any],
    share: float,
    rejection: float,
    seed: int,
) -> tuple[float, float]:
    """Return the temperature and the threshold of rejection, set on images that a training of their own has not seen.

    Without held-out images (a share of 0, too few images, or one per class) they are 1 and 0.

    Parameters
    ----------
    train : function
        Trains a classifier on vectors and labels.
    vectors : array of shape (images, features)
        Vectors of the training images; copies of an image are held out together.
    labels : array of shape (images,)
        Classes of these images.
    share : float
        Share of each class that is held out.
    rejection : float
        Share of the correctly classified held-out images that may be rejected.
    seed : int
        Seed of the choice of held-out images.
    """
    _, numbers = np.unique(labels, return_inverse=True)
    if share <= 0 or len(labels) < FEWEST_TO_CALIBRATE:
        return 1.0, 0.0
    keep, out = hold_out(np.arange(len(labels)), numbers, share, seed, copy_groups(vectors))
    if not len(out):
        return 1.0, 0.0
    values = decision_values(train(vectors[keep], labels[keep]), vectors[out])
    temperature = fit_temperature(values, numbers[out])
    return temperature, threshold_for(softmax(values / temperature), numbers[out], rejection)
