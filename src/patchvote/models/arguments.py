"""Arguments of a classifier, checked before any work is done."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any

import numpy as np

from ..errors import PatchvoteError
from ..photos.find import Photo
from ..utils.schema import brief
from ..utils.terminal import counted, nearest, some
from ..voters.registry import AUTO, DEFAULT, kind_of
from ..voters.votes import NONE

MAX_SEED = 2**32 - 1  # the largest seed that scikit-learn accepts


def kind_of_voter(voter: Any) -> str:
    """Return the kind of a voter, given by name or as an estimator of which a model can be made."""
    if isinstance(voter, str):
        return DEFAULT if voter == AUTO else kind_of(voter)
    from ..voters.base import Voter  # needs scikit-learn, which whoever passes a voter has imported

    if not isinstance(voter, Voter):
        raise PatchvoteError(
            f"voter must be the name of a voter or an estimator that is one, such as SNBNL(), got {voter!r:.80}."
        )
    voter.check_for_model()
    return voter.kind


def check_settings(budget: Any, seed: Any) -> None:
    """Refuse a budget that is no number of seconds, and a seed that scikit-learn does not accept."""
    if isinstance(budget, bool) or not isinstance(budget, (int, float)) or not budget >= 0:
        raise PatchvoteError(f"budget must be a number of seconds, at least 0, got {brief(budget)}.")
    if isinstance(seed, bool) or not isinstance(seed, (int, np.integer)) or not 0 <= seed <= MAX_SEED:
        raise PatchvoteError(f"seed must be a whole number from 0 to {MAX_SEED}, got {brief(seed)}.")


def check_classes(photos: Iterable[Photo]) -> None:
    """Refuse a class that has the name of the answer for rejected photos."""
    for photo in photos:
        if str(photo.label).strip().casefold() == NONE:
            raise PatchvoteError(
                f"a class may not be called {photo.label!r}: that is the answer for photos unlike all classes. Give "
                "the class of such photos another name, such as 'other'."
            )


def check_known(classes: Sequence[str], photos: Iterable[Photo], strangers: Iterable[Photo]) -> None:
    """Refuse labelled photos of classes that the model does not know, and strangers of classes that it knows."""
    labels, others = ({str(one.label) for one in found if one.label is not None} for found in (photos, strangers))
    if unknown := sorted(labels - set(classes)):
        raise PatchvoteError(
            f"the model does not know {_quoted(unknown)}.{nearest(unknown[0], classes)} `patchvote add` teaches it new "
            "classes; `patchvote evaluate --unknown DIR` measures how many photos of other classes are rejected."
        )
    if known := sorted(others & set(classes)):
        raise PatchvoteError(
            f"the model knows {_quoted(known)}: photos of unknown classes must show none of its classes."
        )


def _quoted(classes: list[str]) -> str:
    return f"the class{'es' * (len(classes) > 1)} {some([repr(label) for label in classes])}"


def held_out_of(held_out: Any, photos: Sequence[Photo]) -> float | Collection[str] | None:
    """Return a share of the photos to hold out, or names as a set; refuse what is neither."""
    if isinstance(held_out, Iterable) and not isinstance(held_out, (str, bytes)):
        names, known = list(held_out), {photo.name for photo in photos}
        if unknown := [name for name in names if name not in known]:
            raise PatchvoteError(
                f"held_out has {counted(len(unknown), 'name')} that no photo has, the first is {brief(unknown[0])}. "
                f"The first photo is called {brief(photos[0].name)}."
            )
        return set(names)
    if held_out is None:
        return None
    if isinstance(held_out, bool) or not isinstance(held_out, (int, float)) or not 0 <= held_out < 1:
        raise PatchvoteError(
            "held_out must be a share of the photos, from 0 to less than 1, or a collection of names of photos, got "
            f"{brief(held_out)}."
        )
    return held_out


def check_target(kind: str) -> None:
    """Refuse a target for a voter whose models cannot be adapted."""
    if kind != DEFAULT:
        raise PatchvoteError(f"a model of {kind} cannot be adapted to a target: use the default voter.")
