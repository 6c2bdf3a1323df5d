"""Adapt a model to photos of another domain, or return the reason why that is refused."""

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

_MAX_C = 0.3  # stronger regularisation than usual, since adapted votes learn from labels that they predicted themselves
_HELD_OUT = 0.2  # share of the labelled photos on which the probabilities of an adapted model are calibrated


def adapt_model(
    store: Store, model: Model, *, insist: bool = False, seconds: dict[str, float]
) -> tuple[Fitted, str | None]:
    """Adapt a model to photos of another domain, given bags of such photos; their labels are not used.

    Parameters
    ----------
    store : Store
        Bags of photos of the other domain.
    model : Model
        Model to adapt.
    insist : bool, default False
        Whether to adapt even where that appears unsafe.
    seconds : dict
        Duration of each part so far; further parts are added.

    Returns
    -------
    fitted : Fitted
        Adapted model; where adapting was refused, the unchanged model.
    refusal : str or None
        Reason why adapting was refused; None where the model was adapted.
    """
    voter = voter_of(model)
    if not isinstance(voter, BagSVM):
        raise PatchvoteError(
            f"a model of {model.kind} does not keep what adapting needs: fit it with --voter bag-svm (the default)."
        )
    # Identical photos count once: many copies of one photo do not represent another camera.
    first_names: dict[str, str] = {}
    for entry in store.entries:
        first_names.setdefault(entry.digest, entry.name)
    target = store.only(list(first_names.values()))
    with timed(seconds, "training"):
        regularised = clone(voter).set_params(C=min(voter.C, _MAX_C), calibration=_HELD_OUT)
        source, labels = Bags.of(voter.vectors_), voter.classes_[voter.class_]
        adapted = Adapted(regularised, insist=insist)
        adapted.fit(source, labels, pooled(target), unadapted=_unadapted(voter))
    if adapted.refusal_ is not None:
        return Fitted(model, voter), adapted.refusal_
    adapted_to: AdaptedTo = {
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
            chosen={"words": words, "why": "stronger regularisation, to adapt to photos without classes"},
            adapted=adapted_to,
        ),
    )
    return Fitted(dataclasses.replace(new, card=card(new)), adapted), None


def _unadapted(voter: BagSVM) -> BagSVM:
    """Return the voter whose rejections remain valid: for a model that was adapted before, the original one."""
    if not hasattr(voter, "unadapted_linear_"):
        return voter
    veto, original = voter.scorer().arrays, copy.copy(voter)
    original.linear_, original.bias_ = veto["unadapted_linear"], veto["unadapted_bias"]
    original.classes_ = voter.classes_[veto["unadapted_class"]]
    original.temperature_, original.rejection_threshold_ = 1.0, float(veto["unadapted_threshold"][0])
    for name in ARRAYS:
        delattr(original, f"{name}_")
    return original
