"""From descriptors to votes, mean votes and calibrated probabilities.

Nothing here needs more than numpy: predicting must not wait for the import of scikit-learn. Probabilities are the
softmax of the scores at a temperature, and an image is rejected where its largest probability is below a threshold.
Both are set on the scores of held-out images.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from ..bags.bags import Bags
from ..utils.arrays import all_finite, to_float32

NONE = "none of these"

ROOT = 0.5  # exponent of the square root
_CHUNK = 16_384  # descriptors whose votes are held in memory at once
_NUMBERS = 1 << 25  # numbers held at once for these votes and what they are computed from: 128 MB in float32

_MARGIN = 0.5  # of an image by which boxes may reach beyond it, such as those of padded images
_MOST_STEPS = 60
_ERRORS = 2.5  # standard errors that left-out photos must speak against a strength
_TIE = 1e-6  # difference of log loss up to which two methods are equally good: it may be due to rounding


def chunk_rows(width: int) -> int:
    """Return the number of descriptors in a chunk, where `width` numbers are held per descriptor."""
    return max(1, min(_CHUNK, _NUMBERS // width))


def softmax(scores: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Softmax along the last axis."""
    power = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return np.asarray(power / power.sum(axis=-1, keepdims=True))


def with_positions(bags: Bags, rows: slice | npt.NDArray[np.int64], positions: bool) -> npt.NDArray[Any]:
    """Return some descriptors as float32 or float64, with the centres of their boxes in 0..1 if `positions` is set."""
    values = bags.values[rows]
    values = values if values.dtype in (np.float32, np.float64) else to_float32(values)
    if not positions:
        return values
    return np.concatenate([values, centres(bags, rows).astype(values.dtype)], axis=1)


def centres(bags: Bags, rows: slice | npt.NDArray[np.int64]) -> npt.NDArray[np.float32]:
    """Return the centres of the boxes of some descriptors, in 0..1 of the image."""
    return np.asarray((bags.boxes[rows, :2] + bags.boxes[rows, 2:]) / 2)


def has_positions(boxes: npt.NDArray[Any]) -> bool:
    """Whether boxes carry positions; in bags made from plain arrays every box is the whole image."""
    return bool((boxes != np.array([0, 0, 1, 1], np.float32)).any())


def check_bags(bags: Bags) -> None:
    """Refuse empty bags and values that are not finite; the error names the bag by its number."""
    if len(bags) == 0:
        raise ValueError("there are no bags.")
    if (bags.sizes == 0).any():
        raise ValueError(f"bag {int(np.argmin(bags.sizes))} is empty: every bag needs at least one descriptor.")
    if bags.values.dtype.kind not in "fiub":
        raise ValueError(f"descriptors must be numbers, got {bags.values.dtype}.")
    if len(bags.boxes) and not (bags.boxes.min() >= -_MARGIN and bags.boxes.max() <= 1 + _MARGIN):
        raise ValueError(
            f"boxes must be parts of the image, from 0 to 1, got {bags.boxes.min():g} to {bags.boxes.max():g}. Are "
            "they in pixels? Divide them by the width and height of the image."
        )
    rows = 1024  # few enough to stay in cache
    for start in range(0, len(bags.values), rows):
        if not all_finite(part := bags.values[start : start + rows]):
            row = start + int(np.isfinite(part).all(axis=1).argmin())
            raise ValueError(f"bag {bags.owner[row]} has a descriptor with NaN or infinity.")


# --- weights of parts by their confidence -----------------------------------------------------------------------------


def part_weights(votes: npt.NDArray[Any], exponent: float) -> npt.NDArray[np.float64]:
    """Return the weight of each part, not yet scaled: the difference of its two largest votes to the power `exponent`.

    Parts that say much the same of several classes, or something by chance, have a small lead. With the exponent 0 all
    parts count the same, as in the paper.
    """
    if exponent == 0 or votes.shape[1] < 2:
        return np.ones(len(votes))
    largest = np.partition(votes, votes.shape[1] - 2, axis=1)[:, -2:].astype(np.float64)
    return np.asarray((largest[:, 1] - largest[:, 0]) ** exponent)


def scaled(weights: npt.NDArray[np.float64], offsets: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
    """Scale the weights of each bag to a mean of 1; a bag whose parts all have the weight 0 gets equal weights."""
    sizes = np.diff(offsets)
    means = np.add.reduceat(weights, offsets[:-1]) / sizes
    known = np.repeat(means > 0, sizes)
    return np.where(known, weights / np.repeat(np.where(means > 0, means, 1), sizes), 1.0)


# --- power normalisation ----------------------------------------------------------------------------------------------


def raised(values: npt.NDArray[Any], power: float) -> npt.NDArray[Any]:
    """Return ``sign(x) |x|^power`` of every value; with the power 1, the array itself."""
    if power == 1:
        return values
    size = np.abs(values)
    size = np.sqrt(size, out=size) if power == ROOT else size**power
    return np.asarray(np.copysign(size, values, out=size))


def has_negative(values: npt.NDArray[Any]) -> bool:
    """Whether any value is negative."""
    if values.dtype == np.float16 and (values.view(np.int16) >= 0).all():  # the sign bit; a hundred times as fast
        return False
    return bool((values < 0).any())


# --- calibration on held-out images -----------------------------------------------------------------------------------


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


def best_and_strongest(losses: npt.NDArray[Any], images: int) -> tuple[int, int]:
    """Return the row with the smallest mean loss, and the last row within 2.5 standard errors of it.

    Rows are strengths of the regularisation, ascending; columns are left-out photos, of which so many are no copies.
    Photos of another camera are less like the training photos than left-out ones are: where left-out photos do not
    decide, stronger regularisation is right more often, and loses little where they are alike.
    """
    best = int(losses.mean(axis=1).argmin())
    difference = losses - losses[best]
    error = difference.std(axis=1) / math.sqrt(images)
    return best, int(np.flatnonzero(difference.mean(axis=1) <= _ERRORS * error + 1e-12).max())


def clearly_less(losses: npt.NDArray[Any], others: npt.NDArray[Any]) -> bool:
    """Whether losses of the same images are smaller by more than a tie and the standard error of the difference."""
    difference = others - losses
    mean, error = float(difference.mean()), float(difference.std()) / math.sqrt(len(difference))
    return mean > _TIE and mean > error
