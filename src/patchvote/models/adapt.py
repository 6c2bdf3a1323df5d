"""Adapt a model to photos of another domain, or return the reason why that is refused."""

from __future__ import annotations

import dataclasses
import datetime
from typing import Any

import numpy as np

from ..bags.moments import MomentBags
from ..voters.adapted import Adapted
from .arguments import check_adapts
from .model import Model, voter_of
from .report.card import card


def adapt_model(
    photos: MomentBags, digests: list[str], model: Model, *, insist: bool = False, threshold: float | None = None
) -> tuple[Model, str | None]:
    """Adapt a model to photos of another domain; return it, or the unchanged model and the reason of the refusal.

    What the model rejects before, by the same rule and threshold as in its answers, stays rejected, unless the caller
    insists. Of photos with the same digest, one takes part and counts.
    """
    check_adapts(model)
    first = np.sort(np.unique(digests, return_index=True)[1])
    target = photos.rows(first)
    rejected = np.array([model.rejects_bag(target.rows([number]), threshold) for number in range(len(target))], bool)
    voter: Any = voter_of(model)
    voter.fit(voter.learned(), voter.classes_[voter.class_], getattr(voter, "weight_", None))
    adapted = Adapted(voter, insist=insist).fit(voter, target=target, rejected=rejected)
    if adapted.refusal_ is not None:
        return model, adapted.refusal_
    adapted_to = {
        "date": datetime.date.today().isoformat(),
        "photos": len(target),
        "taken": adapted.taken_,
        "rejected": 0 if insist else int(rejected.sum()),
    }
    new = dataclasses.replace(
        model,
        scorer=adapted.scorer(),
        names=(),  # it learned from photos of the other domain as well, and can learn and forget no more
        digests=(),
        temperature=adapted.temperature_,
        threshold=0.0 if insist else model.threshold,
        familiarity=None if insist else model.familiarity,
        about=dataclasses.replace(model.about, adapted=adapted_to),
    )
    return dataclasses.replace(new, card=card(new)), None
