"""Registry of the voters: their names, and where their classes are.

A voter has one name, its kind, in model files, on the command line and in tables. A scorer is imported without its
estimator, so that naming photos does not import scikit-learn. Other packages add voters by the entry point
``patchvote.voters``; the names of our voters and "auto" are reserved.
"""

from __future__ import annotations

import functools
import importlib
from typing import TYPE_CHECKING, Any

from ..errors import PatchvoteError, first_line
from ..utils.machine import plugins
from ..utils.terminal import nearest

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

    from .base import Voter
    from .scorer import Scorer

DEFAULT = "moment-ridge"
AUTO = "auto"  # name by which users leave the choice to patchvote
GROUP = "patchvote.voters"

OWN = {  # estimator and scorer of each voter of this package
    "moment-ridge": ("moment_ridge:MomentRidge", "moment_votes:MomentVotes"),
    "snbnl": ("snbnl:SNBNL", "prototype_votes:SnbnlVotes"),
    "nbnl": ("nbnl:NBNL", "prototype_votes:NbnlVotes"),
    "nbnn": ("nbnn:NBNN", "bank_votes:NeighbourVotes"),
    "local-nbnn": ("nbnn:LocalNBNN", "bank_votes:LocalVotes"),
}


def kinds() -> tuple[str, ...]:
    """Return the names of all voters; those of other packages come last."""
    return *OWN, *sorted(set(_others()) - {AUTO, *OWN})


def kind_of(name: str) -> str:
    """Return the kind of this name."""
    if name not in OWN and name not in kinds():
        raise PatchvoteError(f"there is no voter {name!r}.{nearest(name, kinds())}")
    return name


def voter_class(kind: str) -> type[Voter]:
    """Return the estimator class of a kind."""
    estimator: type[Voter] = _import_own(OWN[kind][0]) if kind in OWN else _load_other(kind)
    return estimator


def scorer_class(kind: str) -> type[Scorer]:
    """Return the scorer class of a kind; for voters of this package, the estimator is not imported."""
    scorer: type[Scorer] = _import_own(OWN[kind][1]) if kind in OWN else _load_other(kind).scorer_class
    return scorer


def check_registered(scorer: type[Scorer]) -> None:
    """Refuse a scorer that a file of its kind would not bring back: its kind is unknown or that of another class."""
    if scorer.kind not in kinds() or scorer_class(scorer.kind) is not scorer:
        raise PatchvoteError(
            f"{scorer.kind!r} is not the registered kind of {scorer.__module__}:{scorer.__qualname__}, so that its "
            f"models could not be read again. Its package needs an entry point of this name in {GROUP!r}."
        )


def _import_own(path: str) -> Any:
    module, _, name = path.partition(":")
    return getattr(importlib.import_module(f".{module}", __package__), name)


@functools.cache
def _others() -> dict[str, EntryPoint]:
    """Return the entry points of other packages by name."""
    return {point.name: point for point in plugins(GROUP)}


def _load_other(kind: str) -> type[Voter]:
    """Load another package's voter, and check that it meets the contract."""
    from .base import Voter

    point = _others()[kind]
    try:
        estimator: type[Voter] = point.load()
    except (Exception, SystemExit) as error:  # importing another package may raise anything
        raise PatchvoteError(f"the voter {kind!r} cannot be loaded from {point.value}: {first_line(error)}") from error
    scorer = getattr(estimator, "scorer_class", None)
    if not (isinstance(estimator, type) and issubclass(estimator, Voter) and getattr(scorer, "kind", None) == kind):
        raise PatchvoteError(
            f"the voter {kind!r}, {point.value}, must be a subclass of patchvote.Voter whose scorer has this kind."
        )
    return estimator
