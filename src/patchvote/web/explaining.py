"""Evidence as plain values: the parts with their votes, and the maps of `Evidence`, number by number."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from ..bags.bags import Bags
from ..errors import PhotoError
from ..models.answers import answer_in, evidence_of
from ..models.evidence import Evidence
from ..photos.find import Photo
from .problems import Problem
from .served import Served, described
from .views import answer_view

MAX_MAPS = 16  # classes whose maps are in one response
MAX_SIDE = 256  # cells of a map along one side
_MAX_CLASSES = 64  # classes whose votes are in one response; a model of more tells those of the likeliest
_MAX_VOTES = 1_000_000  # numbers in the parts of one response
_MAX_MATCHES = 20

_Images = Callable[[str], str | None]  # from the name of a training photo to its address


@dataclasses.dataclass(frozen=True)
class Wanted:
    """Which evidence is asked for: the class to match, the classes of the maps, and the size of the maps."""

    label: str | None = None
    labels: tuple[str, ...] = ()
    width: int = 64
    height: int = 64


async def explained(served: Served, photo: Photo, wanted: Wanted, seconds: float) -> dict[str, Any]:
    """Return the evidence of one photo.

    Raises
    ------
    Problem
        The photo cannot be read, or there is no such class.
    """
    known = served.model.classes
    for label in filter(None, (wanted.label, *wanted.labels)):
        if label not in known:
            raise Problem(422, "invalid", "the model has no class of that name.")
    (item,) = await described(served.batcher, [photo], seconds)
    if item.bag is None:
        error = item.error or PhotoError(photo.name, "could not be read.")
        raise Problem(422, "invalid", f"the photo {error.reason}")
    return await asyncio.to_thread(_plain, served, item.photo.name, item.bag, wanted)


def _plain(served: Served, name: str, bag: Bags, wanted: Wanted) -> dict[str, Any]:
    evidence = evidence_of(served.model, name, bag, wanted.label)
    numbers = _classes(evidence)
    if len(evidence.boxes) * len(numbers) > _MAX_VOTES:
        raise Problem(422, "invalid", "this model has too many parts per photo to show them all.")
    labels, image = wanted.labels or evidence.ranking[:2], _images(served)
    return {
        "model": served.name,
        "answer": answer_view(answer_in(evidence)),
        "classes": [evidence.classes[number] for number in numbers],
        "probability": evidence.probability[numbers].tolist(),
        "decision": evidence.decision[numbers].tolist(),
        "parts": _parts(evidence, numbers),
        "width": wanted.width,
        "height": wanted.height,
        "maps": [_maps(evidence, label, wanted) for label in dict.fromkeys(labels)],
        "matched": wanted.label or evidence.ranking[0],
        "matches": _matches(evidence, image),
        "pulls": _pulls(evidence, image),
    }


def _classes(evidence: Evidence) -> npt.NDArray[np.int64]:
    """Return the classes whose votes are shown: all in their order, or the likeliest of many."""
    if len(evidence.classes) <= _MAX_CLASSES:
        return np.arange(len(evidence.classes))
    return np.argsort(-evidence.probability, kind="stable")[:_MAX_CLASSES]


def _parts(evidence: Evidence, numbers: npt.NDArray[np.int64]) -> list[dict[str, Any]]:
    votes = evidence.votes[:, numbers].tolist()
    return [{"box": box, "votes": own} for box, own in zip(evidence.boxes.tolist(), votes, strict=True)]


def _maps(evidence: Evidence, label: str, wanted: Wanted) -> dict[str, Any]:
    return {
        "label": label,
        "votes": evidence.map(label, wanted.width, wanted.height).tolist(),
        "contrast": evidence.contrast(label, wanted.width, wanted.height).tolist(),
    }


def _matches(evidence: Evidence, image: _Images) -> list[dict[str, Any]]:
    """Return the parts of training photos that are most alike, with the address of the photo where it is here."""
    return [
        {"box": one.box, "photo": one.name, "there": one.there, "distance": one.distance, "image": image(one.name)}
        for one in evidence.matches[:_MAX_MATCHES]
    ]


def _pulls(evidence: Evidence, image: _Images) -> list[dict[str, Any]]:
    """Return the training photos that count most for the class, where the model can tell."""
    return [
        {"photo": one.name, "label": one.label, "share": one.share, "image": image(one.name)} for one in evidence.pulls
    ]


def _images(served: Served) -> _Images:
    """Return a function from the name of a training photo to its address, or None where it is not here."""
    workspace = served.workspace
    ids = {} if workspace is None else workspace.trained_photos()

    def image(name: str) -> str | None:
        photo = ids.get(name)
        if workspace is None or photo not in workspace.state.photos:
            return None
        return f"/v1/workspaces/{workspace.id}/photos/{photo}/image"

    return image
