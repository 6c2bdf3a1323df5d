"""Adapt a model to photos of another domain, or return the reason why that is refused."""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..bags.extract import Described
from ..bags.moments import MomentBags
from ..errors import PatchvoteError
from ..utils.terminal import none_readable
from ..voters.adapted import Adapted
from ..voters.registry import DEFAULT
from .model import Model, check_memory, voter_of


def check_adapts(model: Model) -> None:
    """Refuse to adapt a model that is adapted already, or without what that needs."""
    if model.about.adapted:
        raise PatchvoteError("the model is adapted already: adapt the one that it was made from.")
    check_memory(model)
    if not model.scorer.adapts:
        raise PatchvoteError(
            f"a model of {model.kind} does not keep what adapting needs: fit it with --voter {DEFAULT} (the default)."
        )


def adapt_model(
    items: Sequence[Described], model: Model, *, insist: bool, threshold: float | None
) -> tuple[Model | None, str | None]:
    """Adapt a model to photos of another domain; return it, or the reason why that is refused.

    What the model rejects before, by the same rule and threshold as in its answers, stays rejected, unless the caller
    insists. Of photos with the same digest, one takes part and counts.
    """
    photos = {item.digest: item.bag for item in items if isinstance(item.bag, MomentBags)}
    if not photos:
        raise PatchvoteError(f"{none_readable(len(items))} {items[0].error}")
    target = MomentBags.joined(list(photos.values()))
    rejected = np.array([model.judge(target.rows([number]), threshold)[2] for number in range(len(target))], bool)
    voter: Any = voter_of(model)
    voter.fit(voter.learned(), voter.classes_[voter.class_], getattr(voter, "weight_", None))
    adapted = Adapted(insist=insist).fit(voter, target=target, rejected=rejected)
    if adapted.refusal_ is not None:
        return None, adapted.refusal_
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
    return new, None
