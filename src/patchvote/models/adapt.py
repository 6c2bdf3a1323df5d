"""From a model and photos of another domain to a model that is fit for them, or the reason why not."""

from __future__ import annotations

import copy
import dataclasses
import datetime

from sklearn.base import clone

from ..bags.bags import Bags
from ..bags.store import Store
from ..errors import PatchvoteError
from ..utils.timing import timed
from ..voters.adapted import Adapted
from ..voters.bag_svm import BagSVM, pooled
from ..voters.veto import ARRAYS
from .about import AdaptedTo
from .fit import Fitted
from .model import Model, voter_of
from .report.card import card

_TIGHT = 0.3  # C of votes that learn from labels they gave themselves
_HELD_OUT = 0.2  # share of the labelled photos that sets the probabilities of an adapted model


def adapt_model(
    store: Store, model: Model, *, insist: bool = False, seconds: dict[str, float]
) -> tuple[Fitted, str | None]:
    """Make a model fit for photos of another domain, given bags of such photos; their labels are not looked at.

    Parameters
    ----------
    store : Store
        Bags of the photos.
    model : Model
        What to adapt.
    insist : bool, default False
        Whether to adapt where adapting looks unsafe.
    seconds : dict
        What has taken how long so far; more is written into it.

    Returns
    -------
    fitted : Fitted
        The adapted model; where adapting was refused, the model as it was.
    refusal : str or None
        Why adapting was refused.
    """
    voter = voter_of(model)
    if not isinstance(voter, BagSVM):
        raise PatchvoteError(
            f"a model of {model.kind} does not keep what adapting takes: fit it with --voter bag-svm (the default)."
        )
    # A photo that is there twice says no more than once, and many of one photo are no other camera.
    first: dict[str, str] = {}
    for entry in store.entries:
        first.setdefault(entry.digest, entry.name)
    target = store.only(list(first.values()))
    with timed(seconds, "training"):
        tight = clone(voter).set_params(C=min(voter.C, _TIGHT), calibration=_HELD_OUT)
        known, labels = Bags.of(voter.vectors_), voter.classes_[voter.class_]
        adapted = Adapted(tight, insist=insist)
        adapted.fit(known, labels, pooled(target), unadapted=_unadapted(voter))
    if adapted.refusal_ is not None:
        return Fitted(model, voter), adapted.refusal_
    told: AdaptedTo = {
        "date": datetime.date.today().isoformat(),
        "photos": len(target),
        "taken": adapted.history_[-1]["taken"] if adapted.history_ else 0,
        "rejected": int(adapted.rejected_.sum()),
    }
    words = f"linear votes, C = {adapted.voter_.C:g}"
    new = dataclasses.replace(
        model,
        scorer=adapted.scorer(),
        temperature=adapted.temperature_,
        threshold=adapted.rejection_threshold_,
        about=dataclasses.replace(
            model.about,
            chosen={"words": words, "why": "held tighter, to adapt to photos without classes"},
            adapted=told,
        ),
    )
    return Fitted(dataclasses.replace(new, card=card(new)), adapted), None


def _unadapted(voter: BagSVM) -> BagSVM:
    """Return the voter whose rejection stays in force: of a model that was adapted before, the first one."""
    if not hasattr(voter, "unadapted_linear_"):
        return voter
    veto, first = voter.scorer().arrays, copy.copy(voter)
    first.linear_, first.bias_ = veto["unadapted_linear"], veto["unadapted_bias"]
    first.classes_ = voter.classes_[veto["unadapted_class"]]
    first.temperature_, first.rejection_threshold_ = 1.0, float(veto["unadapted_threshold"][0])
    for name in ARRAYS:
        delattr(first, f"{name}_")
    return first
