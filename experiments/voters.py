"""Names of voters in tables and on the command line: a kind, and settings of its estimator in brackets.

Every voter of the registry of patchvote can be named; "default" is the one that users get. What voters are compared
with stands in `baselines` and `da`.
"""

from __future__ import annotations

import ast
import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from patchvote.errors import PatchvoteError
from patchvote.utils.terminal import nearest
from patchvote.voters import registry
from patchvote.voters.base import Voter

from .baselines.adapted import AdaptedDefault, AdaptedVoter, AdaptedVotes
from .baselines.literal import PaperSnbnl
from .baselines.mixture import Mixture
from .baselines.mop import MopCnn
from .baselines.pooled import BagSvm, CovarianceSvm, MeanSvm, PooledSvm, WholeImageSvm
from .da.voter import DANBNN


@dataclasses.dataclass(frozen=True)
class VoterKind:
    """A kind of voter that protocols compare."""

    title: str  # in tables
    make: Callable[..., Any]  # makes the estimator from settings
    settings: dict[str, Any] = dataclasses.field(default_factory=dict)  # those that differ from its defaults
    adapts: bool = False  # whether training uses the test images, without their labels
    stores: bool = False  # whether it learns from stores, whose network has a basis of products, as for users


def _registered(kind: str) -> Callable[..., Any]:
    return lambda **settings: registry.voter_class(kind)(**settings)


def _default(**settings: Any) -> Voter:
    return registry.voter_class(registry.DEFAULT).default(0).set_params(**settings)


VOTERS: dict[str, VoterKind] = {
    "nbnn": VoterKind("CNN-NBNN", _registered("nbnn"), {"normalise": False}),
    "nbnn-pca": VoterKind("NBNN, centred, approximate", _registered("nbnn"), {"search": "pca"}),
    "local-nbnn": VoterKind("LocalNBNN, approximate", _registered("local-nbnn"), {"search": "pca"}),
    "da-nbnn": VoterKind("DA-NBNN", DANBNN, adapts=True),
    "nbnl": VoterKind("CNN-NBNL", _registered("nbnl")),
    "snbnl-paper": VoterKind("CNN-sNBNL, literal", PaperSnbnl),
    "snbnl-rule": VoterKind("CNN-sNBNL, by the rule", _registered("snbnl"), {"alpha": "auto"}),
    "snbnl": VoterKind("CNN-sNBNL, lambda 1e-4", _registered("snbnl")),
    "default": VoterKind("the default voter", _default, stores=True),
    "mixture": VoterKind("mixture", Mixture, stores=True),
    "adapted-default": VoterKind("adapted default voter", AdaptedDefault, adapts=True, stores=True),
    "adapted-snbnl": VoterKind("adapted CNN-sNBNL, literal", AdaptedVotes, adapts=True),
    "adapted-nbnn": VoterKind("adapted CNN-NBNN", AdaptedVotes, {"voter": "nbnn"}, adapts=True),
    "adapted": VoterKind("adapted BagSVM", AdaptedVoter, adapts=True),
    "bag-svm": VoterKind("BagSVM", BagSvm),
    "whole-svm": VoterKind("whole image", WholeImageSvm),
    "mean-svm": VoterKind("mean of the bag", MeanSvm),
    "pooled-svm": VoterKind("pooled image", PooledSvm),
    "covariance-svm": VoterKind("covariance pooling", CovarianceSvm),
    # Every descriptor is assigned to its nearest centre; `mop(soft=5)` is the method as its authors run it.
    "mop": VoterKind("MOP-CNN", MopCnn, {"soft": 1}),
}


def voter_kind(name: str) -> VoterKind:
    """Return the kind of voter that a name begins with: one of these, or one of the registry."""
    kind = name.partition("(")[0].strip()
    if kind in VOTERS:
        return VOTERS[kind]
    known = list(dict.fromkeys([*VOTERS, *registry.kinds()]))
    if kind not in known:
        raise PatchvoteError(f"there is no voter {kind!r}.{nearest(kind, known)}")
    return VoterKind(kind, _registered(kind))


def parse_voter(name: str) -> tuple[str, dict[str, Any]]:
    """Return the kind of voter and the settings of a name."""
    kind, bracket, rest = name.partition("(")
    if bracket and not rest.rstrip().endswith(")"):
        raise PatchvoteError(f"{name!r} has no closing bracket: settings are given as in {kind}(name=value).")
    settings = {}
    for part in filter(None, rest.rstrip().removesuffix(")").split(",")):
        key, _, value = (word.strip() for word in part.partition("="))
        settings[key] = _value(value)
    return kind.strip(), settings


def _value(text: str) -> Any:
    if text == "inf":
        return float("inf")
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text


def make_voter(name: str, changed: Mapping[str, Mapping[str, Any]] | None = None) -> Any:
    """Make the estimator of this name."""
    kind, settings = parse_voter(name)
    made = voter_kind(kind)
    known = made.make().get_params(deep=False)
    for key in settings:
        if key not in known:
            raise PatchvoteError(f"{kind} has no setting {key!r}.{nearest(key, known)}")
    try:
        voter = made.make(**{**made.settings, **(changed or {}).get(kind, {}), **settings})
        if isinstance(voter, Voter):
            voter._check_settings()
    except (TypeError, ValueError) as error:  # an unknown setting of a protocol, or an invalid value
        raise PatchvoteError(f"{name}: {error}") from None
    return voter


def title(name: str) -> str:
    """Return the name of a voter in tables."""
    kind, _, rest = name.partition("(")
    known = VOTERS[kind].title if kind in VOTERS else kind
    return known + (f" ({rest}" if rest else "")
