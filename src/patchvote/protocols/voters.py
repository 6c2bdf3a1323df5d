"""Names of voters in tables and on the command line.

Every voter of the registry can be used, also one of another package; what is compared with them stands here. A name may
include settings of the estimator: ``snbnl(n_prototypes=1,alpha=0.01)``.
"""

from __future__ import annotations

import ast
import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from ..errors import PatchvoteError
from ..utils.suggest import nearest
from ..voters import registry
from ..voters.neighbours.da_nbnn import DANBNN
from .baselines.adapted import AdaptedVoter
from .baselines.mop import MopCnn
from .baselines.pooled import MeanSvm, WholeImageLogistic, WholeImageNearestMean, WholeImageSvm
from .baselines.product import Product
from .baselines.scales import PooledSvm
from .names import current_settings
from .registered import SETTINGS, calibration_of, make_registered


@dataclasses.dataclass(frozen=True)
class VoterKind:
    """A kind of voter that protocols compare.

    Parameters
    ----------
    title : str
        Name in tables.
    make : function
        Makes the estimator from settings.
    settings : dict
        Settings that differ from the estimator's defaults, besides its calibration (see `registered`).
    work : function
        Approximate number of multiply-adds, given training descriptors, test descriptors, features and classes; fitted
        to measurements on Scene-15. It estimates the time where there are no results.
    adapts : bool
        Whether training uses the test images, without their labels.
    """

    title: str
    make: Callable[..., Any]
    settings: dict[str, Any]
    work: Callable[[float, float, int, int], float]
    adapts: bool = False


def _pooling(n: float, m: float, d: int, c: int) -> float:
    return 400.0 * n * d


def _registered(kind: str) -> Callable[..., Any]:
    """Return a function that makes the estimator of a kind in the registry."""
    return lambda **settings: make_registered(kind, **settings)


# Titles, settings and work of our voters, and of what they are compared with.
VOTERS: dict[str, VoterKind] = {
    "nbnn": VoterKind(
        "CNN-NBNN",
        _registered("nbnn"),
        SETTINGS["nbnn"],
        lambda n, m, d, c: n * m * 60.0 + m * c * 16 * d * 4,
    ),
    "local-nbnn": VoterKind(
        "LocalNBNN",
        _registered("local-nbnn"),
        SETTINGS["local-nbnn"],
        lambda n, m, d, c: n * m * 60.0 + m * 128 * d * 4,
    ),
    # The test photos are searched when it adapts, in part again in every round, and when it predicts.
    "da-nbnn": VoterKind(
        "DA-NBNN", DANBNN, {}, lambda n, m, d, c: 3 * ((n + m) * n * 60.0 + m * c * 16 * d * 4), adapts=True
    ),
    "nbnl": VoterKind(
        "CNN-NBNL", _registered("nbnl"), {}, lambda n, m, d, c: 30 * 10 * c * d * 3 * n * 2 + m * c * 10 * d
    ),
    "snbnl": VoterKind(
        "CNN-sNBNL", _registered("snbnl"), {}, lambda n, m, d, c: 3 * 10 * c * d * 2 * n * 2 + m * c * 10 * d
    ),
    "bag-svm": VoterKind("BagSVM", _registered("bag-svm"), {}, _pooling),
    "moment-svm": VoterKind(
        "MomentSVM", _registered("moment-svm"), {}, lambda n, m, d, c: (n + m) * (128.0 * d + 128 * 128) * 4
    ),
    "jury": VoterKind("Jury", _registered("jury"), {}, lambda n, m, d, c: 6 * 10 * c * d * 2 * n * 2 + m * c * 10 * d),
    "product": VoterKind("the product's choice", Product, {}, _pooling),
    "adapted": VoterKind("adapted BagSVM", AdaptedVoter, {}, _pooling, adapts=True),
    "whole-svm": VoterKind("whole image + SVM", WholeImageSvm, {}, _pooling),
    "whole-logistic": VoterKind("whole image + logistic regression", WholeImageLogistic, {}, _pooling),
    "whole-nearest-mean": VoterKind("whole image + nearest class mean", WholeImageNearestMean, {}, _pooling),
    "mean-svm": VoterKind("mean of the bag + SVM", MeanSvm, {}, _pooling),
    "pooled-svm": VoterKind("pooled image + SVM", PooledSvm, {}, _pooling),
    # Results of earlier versions have the name "mop" and assign every descriptor to its nearest centre, so that this is
    # what the plain name means; `mop(soft=5)` is the method as its authors run it.
    "mop": VoterKind("MOP-CNN", MopCnn, {"soft": 1}, lambda n, m, d, c: (n + m) * 500.0 * d * 12),
}


def _other(name: str) -> VoterKind:
    """Return the kind of a voter of another package: titled by its name, and as fast as pooling."""
    return VoterKind(name, _registered(name), {}, _pooling)


def voter_kind(name: str) -> VoterKind:
    """Return the kind of voter that a name begins with.

    Raises
    ------
    PatchvoteError
        There is no such voter; the message names the nearest.
    """
    kind = name.partition("(")[0].strip()
    if kind in VOTERS:
        return VOTERS[kind]
    known = [*VOTERS, *(other for other in registry.kinds() if other not in VOTERS)]
    if kind not in known:
        raise PatchvoteError(f"there is no voter {kind!r}.{nearest(kind, known)}")
    return _other(kind)


def parse_voter(name: str) -> tuple[str, dict[str, Any]]:
    """Return the kind of voter and the settings of a name.

    Examples
    --------
    >>> parse_voter("snbnl(n_prototypes=1, q=inf)")
    ('snbnl', {'n_prototypes': 1, 'q': inf})
    >>> parse_voter("snbnl(prototypes=1)")  # the name in an earlier version
    ('snbnl', {'n_prototypes': 1})
    """
    kind, bracket, rest = name.partition("(")
    kind = kind.strip()
    if bracket and not rest.rstrip().endswith(")"):
        raise PatchvoteError(f"{name!r} has no closing bracket: settings are given as in {kind}(name=value).")
    settings: dict[str, Any] = {}
    known = voter_kind(kind).make()._get_param_names()
    for part in filter(None, rest.rstrip().removesuffix(")").split(",")):
        key, _, value = (word.strip() for word in part.partition("="))
        (key,) = current_settings(kind, {key: value}, known)
        if key not in known:
            raise PatchvoteError(f"{kind} has no setting {key!r}.{nearest(key, known)}")
        settings[key] = _value(value)
    return kind, settings


def _value(text: str) -> Any:
    if text == "inf":
        return float("inf")
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, RecursionError, MemoryError):  # the last two: it nests too deeply
        return text


def make_voter(name: str, changed: Mapping[str, Mapping[str, Any]] | None = None, *, calibrated: bool = False) -> Any:
    """Make the estimator of this name.

    Parameters
    ----------
    name : str
        Name of the voter; its settings come before all others.
    changed : mapping, optional
        Settings of a protocol, by kind.
    calibrated : bool, default False
        Whether to hold training images out for its probabilities.
    """
    kind, settings = parse_voter(name)
    made = voter_kind(kind)
    known = made.make()._get_param_names()
    changed_settings = current_settings(kind, (changed or {}).get(kind, {}), known)
    try:
        voter = made.make(**{**made.settings, **calibration_of(known, calibrated), **changed_settings, **settings})
        if hasattr(voter, "_check_settings"):
            voter._check_settings()
    except (TypeError, ValueError) as error:  # an unknown setting, or an invalid value
        raise PatchvoteError(f"{name}: {error}") from None
    return voter


def title(name: str) -> str:
    """Return the name of a voter in tables."""
    kind, _, rest = name.partition("(")
    known = VOTERS.get(kind.strip())  # the package of another voter need not be installed to read its results
    return (known.title if known else kind.strip()) + (f" ({rest}" if rest else "")
