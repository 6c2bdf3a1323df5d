"""From a model and photos of another domain to a model that is fit for them."""

from __future__ import annotations

import dataclasses
import datetime

from sklearn.base import clone

from .adapted import Adapted
from .bag_svm import BagSVM, pooled
from .bags import Bags
from .card import card
from .errors import PatchvoteError
from .fitting import Fitted, arrays_of, plain_settings, timed, voter_of
from .model import Model
from .store import Store
from .voter import FEWEST_TO_CALIBRATE

_TIGHT = 0.3  # C of votes that learn from labels they gave themselves
_HELD_OUT = 0.2  # of the photos of an adapted model, to set its probabilities


def adapt_model(store: Store, model: Model, *, seconds: dict[str, float]) -> Fitted:
    """Make a model fit for photos of another domain, given bags of such photos; their labels are not looked at."""
    voter = voter_of(model)
    if not isinstance(voter, BagSVM):
        raise PatchvoteError(
            f"a model of {model.kind} does not keep what adapting takes: fit it with --voter bagsvm (the default)."
        )
    with timed(seconds, "training"):
        known = Bags.of(voter.vectors_)
        tight = clone(voter).set_params(C=min(voter.C, _TIGHT), calibration=_HELD_OUT)
        adapted = Adapted(tight).fit(known, voter.classes_[voter.class_], pooled(store))
        fitted = adapted.voter_
        if len(known) < FEWEST_TO_CALIBRATE:
            fitted.temperature_, fitted.rejection_threshold_ = model.temperature, model.threshold
    chosen = {"words": f"linear votes, C = {fitted.C:g}", "why": "held tighter, to adapt to photos without classes"}
    about = {
        **model.about,
        "chosen": chosen,
        "adapted": {
            "date": datetime.date.today().isoformat(),
            "photos": len(store),
            "taken": adapted.history_[-1]["taken"] if adapted.history_ else 0,
        },
    }
    new = dataclasses.replace(
        model,
        settings=plain_settings(fitted),
        temperature=fitted.temperature_,
        threshold=fitted.rejection_threshold_,
        arrays=arrays_of(fitted),
        about=about,
    )
    return Fitted(dataclasses.replace(new, card=card(new)), fitted)
