"""Routes that ask a model: for answers, and for the evidence behind them, number by number as `Evidence` has it."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Annotated, Any

import numpy as np
from fastapi import APIRouter, Query, Request
from pydantic import BaseModel, Field
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from ...bags.bags import Bags
from ...errors import PhotoError
from ...models.answers import answer_in
from ...models.evidence import evidence_of
from ...photos.find import Photo
from ..models import Served, answered, described
from ..problems import Problem
from ..shapes import ERRORS, Answers, Asked, AskIn, Explained, files_body, read_uploads
from . import Context, Found, Here, answer_view, photo_view, reply

router = APIRouter(tags=["ask"], responses=ERRORS)
_ASKED_AT_ONCE = 32  # photos that are asked about where none are named
_MAX_MAPS = 16  # classes whose maps are in one response
_MAX_SIDE = 256  # cells of a map along one side
_MAX_CLASSES = 64  # classes whose votes are in one response; of a model of more, the likeliest
_MAX_VOTES = 1_000_000  # numbers in the parts of one response
_MAX_MATCHES = 20

ModelName = Annotated[str | None, Field(max_length=300, description="Name of a model, or id of a workspace.")]
Side = Annotated[int, Field(ge=1, le=_MAX_SIDE, description="Cells of the maps.")]


class Wanted(BaseModel):
    """Which evidence is asked for."""

    label: str | None = Field(None, max_length=1000, description="Class to find matching training parts for.")
    labels: list[str] | None = Field(None, max_length=_MAX_MAPS, description="Classes to return maps of.")
    width: Side = 64
    height: Side = 64


class WantedOf(Wanted):
    """Which evidence is asked for, and of which model."""

    model: ModelName = None


@router.post("/v1/predict", response_model=Answers, openapi_extra=files_body())
async def predict(
    request: Request,
    here: Here,
    model: Annotated[ModelName, Query()] = None,
    threshold: Annotated[float | None, Query(ge=0, le=0.999)] = None,
) -> Response:
    """Name photos, in their order; nothing is kept."""
    served = await run_in_threadpool(here.models.get, model)
    files, _ = await read_uploads(request, here.settings.limits.files)
    photos = [Photo(upload.name, upload.content) for upload in files]
    answers = await answered(served, photos, here.settings.limits.answer_seconds, threshold)
    return reply({"model": served.name, "answers": [answer_view(answer) for answer in answers]})


@router.post("/v1/explain", response_model=Explained, openapi_extra=files_body())
async def explain(request: Request, here: Here, wanted: Annotated[WantedOf, Query()]) -> Response:
    """Return where in one photo the votes for each class come from; nothing is kept."""
    served = await run_in_threadpool(here.models.get, wanted.model)
    files, _ = await read_uploads(request, 1)
    return await _explained(here, served, Photo(files[0].name, files[0].content), wanted)


@router.get("/v1/workspaces/{workspace}/photos/{photo}/evidence", response_model=Explained)
async def evidence(found: Found, photo: str, here: Here, wanted: Annotated[Wanted, Query()]) -> Response:
    """Return where in a photo the votes for each class come from."""
    record = found.state.photo(photo)
    served = await run_in_threadpool(here.models.of_workspace, found)
    return await _explained(here, served, found.photo(record), wanted)


@router.post("/v1/workspaces/{workspace}/answers", response_model=Asked)
async def ask(found: Found, body: AskIn, here: Here) -> Response:
    """Ask the model of a workspace about photos of it, and keep the answers."""
    served = await run_in_threadpool(here.models.of_workspace, found)
    run = served.path.parent.name
    fresh = [photo for photo in found.state.unlabelled if (photo.answer or {}).get("run") != run]
    photos = fresh[:_ASKED_AT_ONCE] if body.photos is None else found.state.some(body.photos)
    answers = []
    if photos:
        pictures = [found.photo(photo) for photo in photos]
        answers = await answered(served, pictures, here.settings.limits.answer_seconds)
    views = {photo.id: answer_view(answer) | {"run": run} for photo, answer in zip(photos, answers, strict=True)}

    def keep() -> Response:
        with found.change() if views else contextlib.nullcontext(found.state) as state:
            kept = [state.photos[photo] for photo in views if photo in state.photos]  # some may have gone meanwhile
            for photo in kept:
                photo.answer = views[photo.id]
        remaining = sum((photo.answer or {}).get("run") != run for photo in found.state.unlabelled)
        return here.changed(found, answers=[photo_view(found, photo) for photo in kept], remaining=remaining)

    return await run_in_threadpool(keep)


async def _explained(here: Context, served: Served, photo: Photo, wanted: Wanted) -> Response:
    for label in (wanted.label, *(wanted.labels or ())):
        if label and label not in served.model.classes:
            raise Problem(422, "invalid", "the model has no class of that name.")
    (item,) = await described(served.batcher, [photo], here.settings.limits.answer_seconds)
    if (bag := item.bag) is None:
        error = item.error or PhotoError(photo.name, "could not be read.")
        raise Problem(422, "invalid", f"the photo {error.reason}")
    return await asyncio.to_thread(lambda: reply(_evidence_view(served, photo.name, bag, wanted)))


def _evidence_view(served: Served, name: str, bag: Bags, wanted: Wanted) -> dict[str, Any]:
    """Return the evidence of one photo as plain values; training photos that are here come with their addresses."""
    evidence = evidence_of(served.model, name, bag, wanted.label or None)
    shown = np.arange(len(evidence.classes))
    if len(shown) > _MAX_CLASSES:
        shown = np.argsort(-evidence.probability, kind="stable")[:_MAX_CLASSES]
    if len(evidence.boxes) * len(shown) > _MAX_VOTES:
        raise Problem(422, "invalid", "this model has too many parts per photo to show them all.")
    parts = zip(evidence.boxes.tolist(), evidence.votes[:, shown].tolist(), strict=True)
    size, workspace = (wanted.width, wanted.height), served.workspace
    ids = {} if workspace is None else workspace.read_report("names.json") or {}

    def image(name: str) -> str | None:
        photo = ids.get(name)
        if workspace is None or photo not in workspace.state.photos:
            return None
        return f"/v1/workspaces/{workspace.id}/photos/{photo}/image"

    def maps(label: str) -> dict[str, Any]:
        votes, contrast = evidence.map(label, *size), evidence.contrast(label, *size)
        return {"label": label, "votes": votes.tolist(), "contrast": contrast.tolist()}

    return {
        "model": served.name,
        "answer": answer_view(answer_in(evidence)),
        "classes": [evidence.classes[number] for number in shown],
        "probability": evidence.probability[shown].tolist(),
        "decision": evidence.decision[shown].tolist(),
        "parts": [{"box": box, "votes": votes} for box, votes in parts],
        "width": wanted.width,
        "height": wanted.height,
        "maps": [maps(label) for label in dict.fromkeys(wanted.labels or evidence.ranking[:2])],
        "matched": wanted.label or evidence.ranking[0],
        "matches": [
            {"box": one.box, "photo": one.name, "there": one.there, "distance": one.distance, "image": image(one.name)}
            for one in evidence.matches[:_MAX_MATCHES]
        ],
        "pulls": [
            {"photo": one.name, "label": one.label, "share": one.share, "image": image(one.name)}
            for one in evidence.pulls
        ],
    }
