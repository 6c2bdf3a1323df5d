"""The list of voters: which there are, by which name, and where each is found.

A voter has one name, its kind, in model files, on the command line and in tables; the spellings of before are still
read. Nothing is imported before it is asked for, and a scorer without its estimator, so that naming photos does not
import scikit-learn. A package adds voters of its own through the entry point ``patchvote.voters``:

    [project.entry-points."patchvote.voters"]
    my-voter = "my_package:MyVoter"
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING, Any

from ..errors import PatchvoteError
from ..utils.suggest import nearest

if TYPE_CHECKING:
    from .base import Voter
    from .scorer import Scorer

DEFAULT = "bag-svm"
GROUP = "patchvote.voters"


@dataclasses.dataclass(frozen=True)
class _Own:
    """A voter of this package: ``module:Class`` of the estimator and of its scorer, and its names of before."""

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
    """Return the names of all voters, those of other packages last.

    Examples
    --------
    >>> kinds()[:5]
    ('bag-svm', 'snbnl', 'nbnl', 'nbnn', 'local-nbnn')
    """
    return *OWN, *sorted(set(_others()) - set(OWN))


def kind_of(name: str) -> str:
    """Return the kind that a name or a spelling of before means.

    Raises
    ------
    PatchvoteError
        There is no such voter; the message names the nearest.

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
    """Return the estimator of a kind."""
    if kind in OWN:
        found: type[Voter] = _own(OWN[kind].voter)
        return found
    return _loaded(kind)


def scorer_class(kind: str) -> type[Scorer]:
    """Return the scorer of a kind; one of this package comes without its estimator."""
    if kind in OWN:
        found: type[Scorer] = _own(OWN[kind].scorer)
        return found
    return _loaded(kind).scorer_class


def _own(place: str) -> Any:
    module, _, name = place.partition(":")
    return getattr(importlib.import_module(f".{module}", __package__), name)


@functools.cache
def _others() -> dict[str, EntryPoint]:
    return {point.name: point for point in entry_points(group=GROUP)}


def _loaded(kind: str) -> type[Voter]:
    """Load another package's voter, and see that it keeps the contract."""
    from .base import Voter

    point = _others()[kind]
    try:
        found = point.load()
    except Exception as error:  # whatever the import of another package raises
        raise PatchvoteError(f"the voter {kind!r} cannot be loaded from {point.value}: {error}") from error
    if not (isinstance(found, type) and issubclass(found, Voter) and hasattr(found, "scorer_class")):
        raise PatchvoteError(f"the voter {kind!r}, {point.value}, is no subclass of patchvote.Voter with a scorer.")
    if found.scorer_class.kind != kind:
        raise PatchvoteError(f"{point.value} calls itself {found.scorer_class.kind!r}, and is registered as {kind!r}.")
    return found
