"""Registry of the voters: their names, and where their classes are.

A voter has one name, its kind, in model files, on the command line and in tables; older spellings are still accepted.
Nothing is imported before it is needed, and a scorer is imported without its estimator, so that naming photos does not
import scikit-learn. Another package adds voters through the entry point ``patchvote.voters``:

    [project.entry-points."patchvote.voters"]
    my-voter = "my_package:MyVoter"
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
from typing import TYPE_CHECKING, Any

from ..errors import PatchvoteError
from ..utils.plugins import plugins
from ..utils.suggest import nearest

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

    from .base import Voter
    from .scorer import Scorer

DEFAULT = "bag-svm"
GROUP = "patchvote.voters"


@dataclasses.dataclass(frozen=True)
class _Own:
    """A voter of this package: ``module:Class`` of the estimator and of its scorer, and its older names."""

    voter: str
    scorer: str
    before: tuple[str, ...] = ()


OWN = {
    "bag-svm": _Own("bag_svm:BagSVM", "linear:LinearVotes", ("BagSVM", "bagsvm")),
    "snbnl": _Own("prototypes.snbnl:SNBNL", "prototypes.votes:SnbnlVotes", ("SNBNL",)),
    "nbnl": _Own("prototypes.nbnl:NBNL", "prototypes.votes:NbnlVotes", ("NBNL",)),
    "nbnn": _Own("neighbours.nbnn:NBNN", "neighbours.votes:NeighbourVotes", ("NBNN",)),
    "local-nbnn": _Own("neighbours.local_nbnn:LocalNBNN", "neighbours.votes:LocalVotes", ("LocalNBNN", "localnbnn")),
}


def kinds() -> tuple[str, ...]:
    """Return the names of all voters; those of other packages come last.

    Examples
    --------
    >>> kinds()[:5]
    ('bag-svm', 'snbnl', 'nbnl', 'nbnn', 'local-nbnn')
    """
    return *OWN, *sorted(set(_others()) - set(OWN))


def kind_of(name: str) -> str:
    """Return the kind for a name or an older spelling of it.

    Raises
    ------
    PatchvoteError
        If there is no such voter; the message names the nearest.

    Examples
    --------
    >>> kind_of("localnbnn")
    'local-nbnn'
    """
    for kind, own in OWN.items():
        if name == kind or name in own.before:
            return kind
    if name in _others():
        return name
    known = kinds()
    raise PatchvoteError(f"there is no voter {name!r}.{nearest(name, known)} There are: {', '.join(known)}.")


def voter_class(kind: str) -> type[Voter]:
    """Return the estimator class of a kind."""
    if kind in OWN:
        estimator: type[Voter] = _import_own(OWN[kind].voter)
        return estimator
    return _load_other(kind)


def scorer_class(kind: str) -> type[Scorer]:
    """Return the scorer class of a kind; for voters of this package, the estimator is not imported."""
    if kind in OWN:
        scorer: type[Scorer] = _import_own(OWN[kind].scorer)
        return scorer
    return _load_other(kind).scorer_class


def _import_own(path: str) -> Any:
    module, _, name = path.partition(":")
    return getattr(importlib.import_module(f".{module}", __package__), name)


@functools.cache
def _others() -> dict[str, EntryPoint]:
    return {point.name: point for point in plugins(GROUP)}


def _load_other(kind: str) -> type[Voter]:
    """Load another package's voter, and check that it meets the contract."""
    from .base import Voter

    point = _others()[kind]
    try:
        estimator = point.load()
    except Exception as error:  # importing another package may raise anything
        raise PatchvoteError(f"the voter {kind!r} cannot be loaded from {point.value}: {error}") from error
    if not (isinstance(estimator, type) and issubclass(estimator, Voter) and hasattr(estimator, "scorer_class")):
        raise PatchvoteError(f"the voter {kind!r}, {point.value}, is no subclass of patchvote.Voter with a scorer.")
    if estimator.scorer_class.kind != kind:
        raise PatchvoteError(f"{point.value} is {estimator.scorer_class.kind!r}, but is registered as {kind!r}.")
    return estimator
