"""Adapt a model to photos of another domain, or return the reason why that is refused."""

from __future__ import annotations

import dataclasses
import datetime

from ..bags.store import Store
from ..utils.timing import timed
from ..voters.adapted import Adapted
from .about import AdaptedTo
from .arguments import check_adapts
from .fit import Fitted
from .model import Model, voter_of
from .report.card import card


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
    check_adapts(model)
    voter = voter_of(model)
    # Identical photos count once: many copies of one photo do not represent another camera.
    first_names: dict[str, str] = {}
    for entry in store.entries:
        first_names.setdefault(entry.digest, entry.name)
    target = store.only(list(first_names.values()))
    with timed(seconds, "training"):
        source = voter.to_adapt()
        adapted = Adapted(source.voter, insist=insist)
        adapted.fit(source.bags, source.labels, target, unadapted=source.unadapted, sample_weight=source.weight)
    if adapted.refusal_ is not None:
        return Fitted(model, voter), adapted.refusal_
    adapted_to: AdaptedTo = {
        "date": datetime.date.today().isoformat(),
        "photos": len(target),
        "taken": adapted.history_[-1]["taken"] if adapted.history_ else 0,
        "rejected": int(adapted.rejected_.sum()),
    }
    new = dataclasses.replace(
        model,
        scorer=adapted.scorer(),
        names=(),  # it learned from photos of the other domain as well
        temperature=adapted.temperature_,
        threshold=adapted.rejection_threshold_,
        # As temperature and threshold do, it stays that of the unadapted model where few photos have labels.
        familiarity=model.familiarity if adapted.familiarity_ is None else adapted.familiarity_,
        about=dataclasses.replace(
            model.about,
            chosen={"words": source.words, "why": "stronger regularisation, to adapt to photos without classes"},
            adapted=adapted_to,
        ),
    )
    return Fitted(dataclasses.replace(new, card=card(new)), adapted), None
