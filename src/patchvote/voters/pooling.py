"""One vector per bag, and how a linear score of it is distributed over the bag's descriptors.

The vector of a bag is the square root of its mean, scaled to length 1: ``g(m) = m^p / |m^p|`` with p = 1/2 (the
Hellinger map). The root keeps a few features that are strong everywhere from dominating the others. A linear score
``w . g(m)`` is distributed exactly: of each feature, a descriptor gets the share that it contributed to the mean,

    vote_i = sum_f  w_f g_f(m) x_if / m_f ,        mean of vote_i over the bag = w . g(m) .

Nothing here learns, and nothing needs more than numpy.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from ..bags.bags import Bags
from .power import raised


def bag_vectors(means: npt.NDArray[Any], power: float) -> npt.NDArray[np.float64]:
    """Return the vector of each bag, from the means of the bags.

    Examples
    --------
    >>> bag_vectors(np.array([[9.0, 16.0]]), 0.5)
    array([[0.6, 0.8]])
    """
    means = means.astype(np.float64)
    vectors = raised(means, power)
    length = np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.asarray(vectors / np.where(length > 0, length, 1))


def shared_votes(
    bags: Bags, weights: npt.NDArray[Any], bias: npt.NDArray[Any], power: float
) -> npt.NDArray[np.float64]:
    """Return the vote of every descriptor for every class; their mean over a bag is the bag's score.

    Parameters
    ----------
    bags : Bags
        The bags.
    weights : array of shape (classes, features)
        Weights of the linear score of a bag's vector.
    bias : array of shape (classes,)
        Intercepts of the linear score.
    power : float
        Exponent of the power normalisation.
    """
    means = bags.means().astype(np.float64)
    vectors = bag_vectors(means, power)
    votes = np.empty((len(bags.values), len(bias)))
    for number, (start, stop) in enumerate(zip(bags.offsets[:-1], bags.offsets[1:], strict=True)):
        mean = means[number]
        share = np.divide(vectors[number], mean, out=np.zeros_like(mean), where=mean != 0)
        votes[start:stop] = bags.values[start:stop].astype(np.float32) @ (weights * share).T.astype(np.float32)
    return np.asarray(votes + bias)
