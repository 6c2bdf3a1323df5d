"""Add photos to a model, of known or new classes, except those that it has learned before.

Linear votes store the mean of every photo, and banks store every descriptor, so the result is the same as if all photos
had been there at first. A model of prototypes stores a sample of descriptors, and learns new photos together with it.
"""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from ..bags.store import Store
from ..errors import PatchvoteError, PhotoError
from ..utils.timing import timed
from ..voters.bag_svm import pooled
from ..voters.base import Voter
from ..voters.familiarity import Familiarity
from ..voters.outputs import blaming, is_ours
from .about import About, Added
from .fit import Fitted
from .known import known_photos, short, with_photos
from .model import Model, voter_of
from .report.card import card


def add_to_model(store: Store, model: Model, *, seed: int, seconds: dict[str, float]) -> Fitted:
    """Learn more bags, of classes that the model knows or of new ones.

    Photos that the model has learned before are not learned again; those learned as another class are refused.
    """
    voter = voter_of(model)
    if not voter.can_learn_more:
        raise PatchvoteError(
            f"a model of {model.kind} with these settings cannot learn more: fit it again with all photos."
        )
    fresh, known, refused = _sorted_by_novelty(store, model)
    if not fresh:
        return Fitted(model, voter, known=known, refused=refused)
    store = store.only(fresh)
    labels = store.labels.astype(str)
    with timed(seconds, "training"), blaming(voter):
        _learn(voter, store, labels, model.descriptors, seed)
    counts, sizes = _by_class(labels, np.ones(len(store), np.int64)), _by_class(labels, store.extracted)
    new = dataclasses.replace(
        model,
        scorer=voter.scorer(),
        classes=tuple(str(label) for label in voter.classes_),
        names=(*model.names, *store.names) if model.names else (),
        descriptors=_summed(model.descriptors, sizes),
        steps=int(getattr(voter, "steps_", model.steps)),
        about=_about_added(store, model, counts),
        familiarity=_with_photos(model, store, labels, voter.classes_),
    )
    return Fitted(dataclasses.replace(new, card=card(new)), voter, known=known, refused=refused)


def _learn(voter: Voter, store: Store, labels: npt.NDArray[np.str_], seen: Mapping[str, int], seed: int) -> None:
    """Let a voter learn new images, in the form that it learns from; bags for other packages are read-only."""
    if voter.reads_store:
        voter.partial_fit(store, labels)
        return
    bags = pooled(store) if voter.means_only else store.load(dtype=store.dtype)[0]
    voter.learn_more(bags if is_ours(voter) else bags.frozen(), labels, seen, np.random.default_rng(seed))


def _with_photos(
    model: Model, store: Store, labels: npt.NDArray[np.str_], classes: npt.NDArray[Any]
) -> Familiarity | None:
    """Return the familiarity of a model after it learned new photos, if it has one."""
    if model.familiarity is None:
        return None
    numbers, places = np.searchsorted(classes, labels), np.searchsorted(classes, np.array(model.classes))
    return model.familiarity.with_photos(pooled(store).values, numbers, places, len(classes))


def _by_class(labels: npt.NDArray[np.str_], counts: npt.NDArray[np.int64]) -> dict[str, int]:
    return {label: int(counts[labels == label].sum()) for label in np.unique(labels).tolist()}


def _summed(one: Mapping[str, int], other: Mapping[str, int]) -> dict[str, int]:
    return {label: one.get(label, 0) + other.get(label, 0) for label in {**one, **other}}


def _sorted_by_novelty(store: Store, model: Model) -> tuple[list[str], int, tuple[PhotoError, ...]]:
    """Return the names of photos that a model has not learned, the number of known ones, and those of another class."""
    known = known_photos(model.about)
    fresh, repeated, refused = [], 0, []
    for entry in store.entries:
        label, digest = str(entry.label), short(entry.digest)
        learned_as = known.setdefault(digest, set())
        if not learned_as:
            learned_as.add(label)
            fresh.append(entry.name)
        elif label in learned_as:
            repeated += 1
        else:
            reason = f"it was learned as {', '.join(sorted(learned_as))}, and is not learned as {label}, too."
            refused.append(PhotoError(entry.name, f"{reason} To change its class, fit again with all photos."))
    return fresh, repeated, tuple(refused)


def _about_added(store: Store, model: Model, counts: dict[str, int]) -> About:
    """Return the metadata of a model that has learned more photos."""
    added: Added = {
        "date": datetime.date.today().isoformat(),
        "images": counts,
        "new_classes": sorted(set(counts) - set(model.classes)),
    }
    about = dataclasses.replace(
        model.about, images=_summed(model.about.images, counts), added=[*model.about.added, added]
    )
    labels = store.labels.astype(str).tolist()
    return with_photos(about, zip(labels, (entry.digest for entry in store.entries), strict=True))
