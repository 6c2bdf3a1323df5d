"""Teach a model more photos, of known or new classes, and make it forget some.

The default voter holds the moments of all its photos, so both are a fit from scratch to the photos that are then there,
without their network. A bank of neighbours holds every descriptor; prototypes hold a sample of them, and learn new
photos together with it, but cannot forget.
"""

from __future__ import annotations

import collections
import dataclasses
import datetime
import fnmatch
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np

from ..bags.extract import Extractor
from ..bags.moments import MomentBags, photo_vectors
from ..errors import PatchvoteError, PhotoError
from .about import About, short, with_photos
from .fit import Fitted, Labelled, descriptors_of, fit_model
from .model import Model, check_memory, voter_of

_AT_ONCE = 50_000  # descriptors of a store that are held in memory at once


def add_to_model(photos: Labelled, model: Model, extractor: Extractor, *, seed: int) -> Fitted:
    """Learn more photos, of classes that the model knows or of new ones.

    Photos that the model has learned before are not learned again; those learned as another class are refused.
    """
    voter = voter_of(model)
    check_learns(model)
    fresh, known, refused = _sorted_by_novelty(photos, model)
    if not fresh:
        return Fitted(model, known=known, refused=refused)
    added = dict(sorted(collections.Counter(photos.labels[i] for i in fresh).items()))
    if isinstance(photos.bags, MomentBags):
        every = memory_of(model).joined(photos.only(np.array(fresh, np.int64)))
        fitted = _fitted_again(every, voter, extractor, seed)
        return dataclasses.replace(fitted, known=known, refused=refused, added=added)
    store = photos.bags.only([photos.names[i] for i in fresh])
    new = Labelled(list(store.names), [photos.labels[i] for i in fresh], [photos.digests[i] for i in fresh], store)
    bags = store.load(dtype=store.dtype)[0]
    voter.learn_more(bags, np.array(new.labels, str), model.descriptors, np.random.default_rng(seed))
    return Fitted(_with_more(model, voter, new, added), known=known, refused=refused, added=added)


def forget(model: Model, extractor: Extractor, chosen: Collection[str], *, seed: int) -> tuple[Fitted, list[str]]:
    """Forget training photos, and return the model of the others, with the names of those that were forgotten.

    They are chosen by names, patterns of names such as "cat/2019*", digests (16 characters at least), or names of
    classes followed by a slash.
    """
    check_learns(model)
    if not model.digests:
        raise PatchvoteError(
            f"a model of {model.kind} cannot forget photos: fit it again without them, or use the default voter."
        )
    memory = memory_of(model)
    gone = np.zeros(len(memory), bool)
    for one in chosen:
        photos = zip(memory.names, memory.labels, memory.digests, strict=True)
        if one in memory.names:  # a name may look like a pattern: x[1].jpg
            found = np.array([name == one for name in memory.names])
        else:
            found = np.array([_is_meant(one, *photo) for photo in photos])
        if not found.any():
            raise PatchvoteError(
                f"the model has learned no photo {one!r}: give a photo's path in the folder that was learned, a "
                "pattern of such paths, the SHA-256 of its content, or a class followed by a slash."
            )
        gone |= found
    rest = memory.only(np.flatnonzero(~gone))
    return _fitted_again(rest, voter_of(model), extractor, seed), [memory.names[i] for i in np.flatnonzero(gone)]


def _is_meant(chosen: str, name: str, label: str, digest: str) -> bool:
    """Whether a photo matches this pattern of names, has this digest, or is of this class."""
    if chosen.endswith("/"):
        return label == chosen[:-1]
    has_digest = len(chosen) >= len(short(digest)) and digest.startswith(chosen.lower())
    return has_digest or fnmatch.fnmatchcase(name, chosen)


def _fitted_again(photos: Labelled, voter: Any, extractor: Extractor, seed: int) -> Fitted:
    unfitted = type(voter)(**voter.get_params())
    return fit_model(photos, unfitted, extractor, budget=0.0, seed=seed, progress=None)


def memory_of(model: Model) -> Labelled:
    """Return the photos that a model of the default voter holds."""
    scorer: Any = model.scorer
    labels = [model.classes[number] for number in scorer.arrays["class"].tolist()]
    return Labelled(list(model.names), labels, list(model.digests), scorer.learned)


def check_learns(model: Model) -> None:
    """Refuse a model that holds nothing to learn and forget with."""
    if model.about.adapted:
        raise PatchvoteError(
            "an adapted model cannot learn or forget: change the model that was adapted, and adapt it again."
        )
    if not hasattr(voter_of(model), "partial_fit"):
        raise PatchvoteError(
            f"a model of {model.kind} with these settings cannot learn more: fit it again with all photos."
        )
    check_memory(model)


def _sorted_by_novelty(photos: Labelled, model: Model) -> tuple[list[int], int, tuple[PhotoError, ...]]:
    """Return the photos that a model has not learned, the number of known ones, and those of another class."""
    known = dict(model.about.known)
    fresh, repeated, refused = [], 0, []
    for number, (name, label, digest) in enumerate(zip(photos.names, photos.labels, photos.digests, strict=True)):
        learned_as = known.get(short(digest))
        if learned_as is None:
            known[short(digest)] = frozenset([label])
            fresh.append(number)
        elif label in learned_as:
            repeated += 1
        else:
            reason = f"it was learned as {', '.join(sorted(learned_as))}, and is not learned as {label}, too."
            refused.append(PhotoError(name, f"{reason} To change its class, `patchvote forget` it first."))
    return fresh, repeated, tuple(refused)


def _with_more(model: Model, voter: Any, photos: Labelled, added: Mapping[str, int]) -> Model:
    """Return a model after its voter has learned the descriptors of more photos, in a store."""
    classes = tuple(str(label) for label in voter.classes_)
    familiarity = model.familiarity
    if familiarity is not None:
        vectors = np.concatenate([photo_vectors(bags) for bags, _ in photos.bags.blocks(_AT_ONCE)])
        numbers = np.searchsorted(voter.classes_, np.array(photos.labels, str))
        places = np.searchsorted(voter.classes_, np.array(model.classes))
        familiarity = familiarity.with_photos(vectors, numbers, places, len(classes))
    return dataclasses.replace(
        model,
        scorer=voter.scorer(),
        classes=classes,
        names=(*model.names, *photos.names) if model.names else (),
        descriptors=_summed(model.descriptors, descriptors_of(photos.bags, photos.labels)),
        steps=int(getattr(voter, "steps_", model.steps)),
        about=_about_added(model, photos, added),
        familiarity=familiarity,
    )


def _about_added(model: Model, photos: Labelled, counts: Mapping[str, int]) -> About:
    """Return the metadata of a model that has learned more photos since it was measured."""
    added = {
        "date": datetime.date.today().isoformat(),
        "images": dict(counts),
        "new_classes": sorted(set(counts) - set(model.classes)),
    }
    images, every = _summed(model.about.images, counts), [*model.about.added, added]
    about = dataclasses.replace(model.about, images=images, added=every)
    return with_photos(about, zip(photos.labels, photos.digests, strict=True))


def _summed(one: Mapping[str, int], other: Mapping[str, int]) -> dict[str, int]:
    return {label: one.get(label, 0) + other.get(label, 0) for label in {**one, **other}}
