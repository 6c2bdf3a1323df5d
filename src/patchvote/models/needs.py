"""What a model needs of the bags of photos, known before any photo is read.

For voters of this package it is told by their names, so that the network need not wait until scikit-learn is imported.
"""

from __future__ import annotations

from typing import Any

from ..bags.keep import ALL, Condenser, Keep, Mean
from ..voters.moment_keep import MomentCondenser
from ..voters.outputs import is_ours
from ..voters.registry import OWN
from .model import Model, voter_of

_OF_OWN: dict[str, Keep | Condenser] = {"bag-svm": Mean(), "moment-svm": MomentCondenser()}  # others: all descriptors


def learned_from(voter: Any, kind: str, seed: int) -> Keep | Condenser:
    """Return what `fit` needs of the bags of training images.

    Parameters
    ----------
    voter : str or estimator
        Voter, as for `candidates_for`.
    kind : str
        Kind of the voter.
    seed : int
        Seed of the training.

    Returns
    -------
    Keep or Condenser
        What all candidates need; all descriptors, if they need different things.
    """
    if isinstance(voter, str) and kind in OWN:
        return _OF_OWN.get(kind, ALL)
    from .fit import candidates_for

    needs = [_needs(candidate.voter) for candidate in candidates_for(voter, seed)]
    return needs[0] if all(need == needs[0] for need in needs) else ALL


def _needs(voter: Any) -> Keep | Condenser:
    """Return what a voter needs; one of another package all descriptors, unless it declares that means are enough."""
    if is_ours(voter):
        need: Keep | Condenser = voter.needs()
        return need
    return Mean() if voter.means_only else ALL


def added_from(model: Model) -> Keep | Condenser:
    """Return what `add` needs of the bags of new photos: what the model's voter learned from."""
    return _needs(voter_of(model))


def adapted_from(kind: str) -> Keep:
    """Return what adapting a model of a kind needs of the bags of the target: those of ours are adapted by `BagSVM`."""
    return Mean() if kind in OWN else ALL
