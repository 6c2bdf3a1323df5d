"""Calibration of voters that do not know their answers for left-out images: by images that are held out."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from patchvote.bags.bags import Bags
from patchvote.bags.copies import copy_groups
from patchvote.bags.store import Store
from patchvote.voters.familiarity import REJECTION
from patchvote.voters.labels import hold_out
from patchvote.voters.votes import fit_temperature, softmax, threshold_for

HELD_OUT = 0.2  # share of the training images that are held out
FEWEST_TO_CALIBRATE = 50  # training images: of fewer, the held-out ones are too few


def fit_calibrated(voter: Any, images: Bags | Store, labels: npt.NDArray[Any]) -> Any:
    """Train a voter, and set its temperature and threshold by images that a training of their own has not seen.

    Copies of an image are held out together. The default voter calibrates itself.
    """
    if voter.leaves_out or len(labels) < FEWEST_TO_CALIBRATE:
        return voter.fit(images, labels)
    numbers = np.unique(labels, return_inverse=True)[1]
    keep, out = hold_out(np.arange(len(labels)), numbers, HELD_OUT, 0, copy_groups(images))
    if not len(out):
        return voter.fit(images, labels)
    scores = voter.fit(chosen(images, keep), labels[keep])._mean_votes(chosen(images, out))
    temperature = fit_temperature(scores, numbers[out])
    threshold = threshold_for(softmax(scores / temperature), numbers[out], REJECTION)
    voter.fit(images, labels)
    voter.temperature_, voter.rejection_threshold_ = temperature, threshold
    return voter


def chosen(images: Bags | Store, rows: npt.NDArray[Any]) -> Any:
    """Return some images, by their numbers or a mask."""
    return images[rows] if isinstance(images, Bags) else images.only(np.array(images.names, object)[rows].tolist())
