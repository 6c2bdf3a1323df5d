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
    """Adapt a model to photos of another domain, whose classes need not be known.

    What the model rejects before, by the same rule and threshold as in its answers, stays rejected,
    unless the caller insists.

    Parameters
    ----------
    photos : MomentBags
        Photos of the other domain.
    digests : list of str
        Digest of the content of each: of identical photos, one counts.
    model : Model
        Model to adapt.
    insist : bool, default False
        Whether to adapt even where that appears unsafe.
    threshold : float, optional
        As for `Model.limit`.

    Returns
    -------
    model : Model
        Adapted model; where adapting was refused, the unchanged model.
    refusal : str or None
        Reason why adapting was refused; None where the model was adapted.
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
        "photos": len(photos),
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
