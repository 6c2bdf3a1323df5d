"""Calibration: the temperature and the rejection threshold of a voter, learned from images that it has not seen.

Probabilities are the softmax of the scores at a temperature, and an image is rejected where its largest probability is
below a threshold. Both are set on the scores of held-out images.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

# Fewest training images to hold some out: with fewer, the held-out ones are too few, and the temperature stays 1.
FEWEST_TO_CALIBRATE = 50
_MOST_STEPS = 60
_TIE = 1e-6  # difference of log loss up to which two methods are equally good: it may be due to rounding


def threshold_for(probability: npt.NDArray[Any], labels: npt.NDArray[np.int64], rejection: float) -> float:
    """Return the probability that all but a share of the correctly classified images reach."""
    confidence = probability.max(axis=1)[probability.argmax(axis=1) == labels]
    return float(np.quantile(confidence, rejection)) if len(confidence) else 0.0


def fit_temperature(means: npt.NDArray[Any], labels: npt.NDArray[np.int64]) -> float:
    """Find the temperature at which the softmax of `means` gives `labels` the smallest log loss.

    If all n images are classified correctly, the temperature would go to 0. Labels therefore count as right with the
    probability (n + 1) / (n + 2), as in Platt (1999).
    """
    gap = means - means.max(axis=1, keepdims=True)
    scale = max(float(np.abs(gap).mean()), 1e-12)
    gap, smoothing = gap / scale, 1 / (len(labels) + 2)
    right = gap[np.arange(len(labels)), labels]
    wrong = (gap.sum(axis=1) - right) / max(1, gap.shape[1] - 1)
    expected = float(np.mean((1 - smoothing) * right + smoothing * wrong))
    # The loss is convex in the inverse temperature: Newton's steps, or the middle of the bounds where they leave these.
    low, high, inverse = math.exp(-8), math.exp(8), 1.0
    for _ in range(_MOST_STEPS):
        share = np.exp(inverse * gap)
        share /= share.sum(axis=1, keepdims=True)
        mean = np.einsum("ic,ic->i", share, gap)
        slope = float(mean.mean()) - expected
        low, high = (low, inverse) if slope > 0 else (inverse, high)
        curvature = float(np.mean(np.einsum("ic,ic,ic->i", share, gap, gap) - mean**2))
        step = inverse - slope / curvature if curvature > 0 else low
        before, inverse = inverse, step if low < step < high else math.sqrt(low * high)
        if abs(inverse - before) <= 1e-9 * before:
            break
    return scale / inverse


def log_losses(probability: npt.NDArray[np.float64], expected: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
    """Return the log loss of each image, from the probabilities of all classes and the number of the right one."""
    right = probability[np.arange(len(expected)), expected]
    return np.asarray(-np.log(np.maximum(right, 1e-12)))


def clearly_less(losses: npt.NDArray[Any], others: npt.NDArray[Any]) -> bool:
    """Whether losses of the same images are smaller by more than a tie and the standard error of the difference."""
    difference = others - losses
    mean, error = float(difference.mean()), float(difference.std()) / math.sqrt(len(difference))
    return mean > _TIE and mean > error
