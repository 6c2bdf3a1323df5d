"""The contract of a voter of another package, checked when it is loaded.

`docs/parts.md` has an example. What only shows when the voter is used is checked elsewhere: what `fit` leaves behind
(`models/fit.py`), what the scorer returns (`outputs`), and what a model stores (`models/model.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..errors import PatchvoteError
from ..utils.schema import brief
from ..utils.tensors import STORED
from .base import Voter
from .scorer import Schema, Scorer
from .settings import unstorable


def fault_of_class(estimator: Any, kind: str) -> str | None:
    """Return what is wrong with the class of a voter that is registered as `kind`, or None.

    Examples
    --------
    >>> from .moment_ridge import MomentRidge
    >>> fault_of_class(MomentRidge, "moment-ridge"), fault_of_class(MomentRidge, "mine")
    (None, "has a scorer of the kind 'moment-ridge', but is registered as 'mine'")
    """
    if not (isinstance(estimator, type) and issubclass(estimator, Voter) and hasattr(estimator, "scorer_class")):
        return "is no subclass of patchvote.Voter with a scorer"
    scorer = estimator.scorer_class
    if not (isinstance(scorer, type) and issubclass(scorer, Scorer)):
        return f"has the scorer_class {brief(scorer)}, which is no subclass of patchvote.voters.scorer.Scorer"
    if not isinstance(found := getattr(scorer, "kind", None), str):
        return f"has a scorer, {scorer.__qualname__}, whose `kind` is missing or no text: it must be {kind!r}"
    if found != kind:
        return f"has a scorer of the kind {found!r}, but is registered as {kind!r}"
    if left := sorted(getattr(scorer, "__abstractmethods__", ())):
        return f"has a scorer, {scorer.__qualname__}, that does not define {', '.join(left)}"
    if not callable(getattr(estimator, "fit", None)):
        return "does not define fit"
    if not isinstance(schema := getattr(scorer, "schema", None), Schema):
        return f"has a scorer, {scorer.__qualname__}, whose `schema` is missing or no Schema"
    if (fault := _fault_of_schema(schema)) is not None:
        return f"has a scorer, {scorer.__qualname__}, whose schema is wrong: {fault}"
    matrices = [name for name, (axes, _) in schema.arrays.items() if axes == 2]
    if not isinstance(rows := scorer.row_by_row, tuple) or not all(name in matrices for name in rows):
        return f"has a scorer, {scorer.__qualname__}, whose row_by_row, {brief(rows)}, is no tuple of its matrices"
    return None


def check_parameters(voter: Voter) -> None:
    """Refuse a parameter of the estimator that a model would not bring back: it would learn more with the default.

    Raises
    ------
    PatchvoteError
        The message names the parameter.
    """
    schema = voter.scorer_class.schema
    for name in voter.get_params(deep=False):
        if name not in (*schema.settings, *schema.unstored, "callback"):
            raise PatchvoteError(
                f"{name} of {type(voter).__name__} is a parameter, but no setting of the schema of {voter.kind!r}: a "
                "model would forget it. Add it to `settings`, or to `unstored` if it does not change what is learned."
            )
    if (wrong := unstorable(voter._plain_settings())) is not None:
        raise PatchvoteError(f"a model of {voter.kind!r} cannot be stored: {wrong}.")


def _fault_of_schema(schema: Schema) -> str | None:
    """Return which entry of a schema is wrong, or None."""
    for field in ("arrays", "kept", "settings"):
        table = getattr(schema, field)
        if not isinstance(table, Mapping) or not all(isinstance(name, str) for name in table):
            return f"{field} must be a table with names as keys, got {brief(table)}"
    for name, spec in {**schema.arrays, **schema.kept}.items():
        if not (isinstance(spec, tuple) and len(spec) == 2 and isinstance(spec[0], int) and _are_types(spec[1])):
            return (
                f"the array {name!r} must have a number of axes and a tuple of types among "
                f"{', '.join(sorted(STORED))}, got {brief(spec)}"
            )
    for name, check in schema.settings.items():
        if not callable(check):
            return f"the setting {name!r} must have a function that checks it, got {brief(check)}"
    unknown = [name for name in schema.needed if name not in schema.settings]
    return f"{unknown[0]!r} is needed, but no setting" if unknown else None


def _are_types(types: Any) -> bool:
    return isinstance(types, tuple) and bool(types) and all(name in STORED for name in types)
