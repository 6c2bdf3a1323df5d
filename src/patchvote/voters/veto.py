"""The unadapted model's veto: photos that it rejects stay rejected, whatever the adapted model predicts.

An adapted model of linear votes keeps the linear function that it had before. Its probabilities for a photo that the
unadapted model rejects are shrunk towards equal ones until the largest is below the threshold, and no more than the
mean of both models' probabilities of that class. So the photo is rejected wherever probabilities are compared with the
threshold, and its likeliest class is still known. Nothing here needs more than numpy.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from .pooling import bag_vectors
from .votes import softmax

Arrays = Mapping[str, npt.NDArray[Any]]

_FLOATS = ("float16", "float32", "float64")
# Arrays of a model that has a veto: number of axes, and the accepted dtypes. The unadapted model's temperature is
# folded into its linear function. Classes that were added after adapting have no row, and no veto.
ARRAYS: dict[str, tuple[int, tuple[str, ...]]] = {
    "unadapted_linear": (2, _FLOATS),
    "unadapted_bias": (1, _FLOATS),
    "unadapted_class": (1, ("int64",)),
    "unadapted_threshold": (1, _FLOATS),
}
ORDER = 1e-3  # smallest factor on the differences between classes, so that the likeliest class remains so
_BELOW = 1 - 1e-9  # factor on the threshold, so that rounding does not lift a rejected photo over it


def is_there(arrays: Arrays) -> bool:
    """Whether a model's arrays hold a veto."""
    return "unadapted_linear" in arrays


def limited(
    probability: npt.NDArray[Any],
    before: npt.NDArray[Any],
    limit: float,
    threshold: float,
    columns: npt.NDArray[np.int64] | None = None,
) -> npt.NDArray[np.float64]:
    """Limit the probabilities of photos that the unadapted model rejects; the order of the classes stays.

    Parameters
    ----------
    probability : array of shape (photos, classes)
        Probabilities of the adapted model.
    before : array of shape (photos, classes that the unadapted model knows)
        Probabilities of the unadapted model.
    limit : float
        Rejection threshold of the unadapted model.
    threshold : float
        Rejection threshold of the adapted model.
    columns : array of int, optional
        Class numbers of the classes that the unadapted model knows; all by default. Others are not limited.

    Examples
    --------
    >>> before = np.array([[0.6, 0.4], [0.4, 0.6], [0.8, 0.2]])
    >>> limited(np.array([[0.8, 0.2]] * 3), before, 0.75, 0.75).round(2)
    array([[0.7, 0.3],
           [0.6, 0.4],
           [0.8, 0.2]])
    """
    classes = probability.shape[1]
    known = np.arange(classes) if columns is None else columns
    unadapted = np.ones((len(before), classes))
    unadapted[:, known] = before
    rows, first = np.arange(len(before)), probability.argmax(axis=1)
    largest, equal = probability[rows, first], 1 / classes
    rejected = (before.max(axis=1) < limit) & np.isin(first, known)
    most = np.where(rejected, np.minimum((unadapted[rows, first] + largest) / 2, _BELOW * threshold), 1.0)
    above = largest - equal
    share = np.divide(most - equal, above, out=np.ones(len(above)), where=above > 0)
    return np.asarray(equal + np.clip(share, ORDER, 1)[:, None] * (probability - equal))


def with_veto(
    probability: npt.NDArray[Any], means: npt.NDArray[Any], arrays: Arrays, power: float, threshold: float
) -> npt.NDArray[np.float64]:
    """Return an adapted model's probabilities, limited for photos that the unadapted model rejects.

    Parameters
    ----------
    probability : array of shape (photos, classes)
        Probabilities of the adapted model.
    means : array of shape (photos, features)
        Means of the photos' descriptors.
    arrays : mapping of arrays
        Arrays of the model.
    power : float
        Exponent of the power normalisation.
    threshold : float
        Rejection threshold of the adapted model.
    """
    votes = bag_vectors(means, power) @ arrays["unadapted_linear"].T.astype(np.float64) + arrays["unadapted_bias"]
    limit = float(arrays["unadapted_threshold"][0])
    return limited(probability, softmax(votes), limit, threshold, arrays["unadapted_class"])


def veto_of(
    linear: npt.NDArray[Any],
    bias: npt.NDArray[Any],
    temperature: float,
    threshold: float,
    columns: npt.NDArray[np.int64],
) -> dict[str, npt.NDArray[Any]]:
    """Return the arrays of a veto, from an unadapted model's linear function, temperature and threshold.

    `columns` are the class numbers of its classes in the adapted model.
    """
    return {
        "unadapted_linear": np.asarray(linear / temperature, np.float64),
        "unadapted_bias": np.asarray(bias / temperature, np.float64),
        "unadapted_class": np.asarray(columns, np.int64),
        "unadapted_threshold": np.array([threshold], np.float64),
    }


def carried_over(
    arrays: Arrays, classes: Sequence[str] | npt.NDArray[Any], more: Sequence[str] | npt.NDArray[Any]
) -> dict[str, npt.NDArray[Any]]:
    """Return the arrays of a model's veto, with the class numbers of a model that knows more classes.

    Parameters
    ----------
    arrays : mapping of arrays
        Arrays of the model.
    classes : sequence of str
        Classes of the model, sorted.
    more : sequence of str
        Classes of the other model, sorted.
    """
    kept = {name: arrays[name] for name in ARRAYS if name in arrays}
    if kept:
        kept["unadapted_class"] = np.searchsorted(np.array(more), np.array(classes))[kept["unadapted_class"]]
    return kept


def fault(arrays: Arrays, classes: int, features: int) -> str | None:
    """Return what is wrong with the arrays of a veto, or None if they are right or there is no veto."""
    missing = [name for name in ARRAYS if name not in arrays]
    if len(missing) == len(ARRAYS):
        return None
    if missing:
        return f"the array {missing[0]!r} is missing."
    rows = len(arrays["unadapted_bias"])
    numbers, threshold = arrays["unadapted_class"], arrays["unadapted_threshold"]
    if rows < 1 or arrays["unadapted_linear"].shape != (rows, features) or len(numbers) != rows:
        return "the arrays of the unadapted model do not fit its weights."
    if numbers.min() < 0 or numbers.max() >= classes or len(np.unique(numbers)) != rows:
        return "the unadapted model has class numbers that are repeated or out of range."
    if threshold.shape != (1,) or not 0 <= threshold[0] <= 1:
        return "the rejection threshold of the unadapted model is out of range."
    return None
