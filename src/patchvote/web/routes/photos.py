"""Routes of the photos of a workspace."""

from __future__ import annotations

import contextlib
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import FileResponse, Response

from ..adding import add_photos, destination
from ..context import Here, reply
from ..explaining import Wanted, explained
from ..pictures import picture
from ..problems import missing
from ..records import State
from ..served import answered
from ..shapes import ERRORS, Added, Asked, AskIn, Deleted, Explained, Listed, Moved, MoveIn, PhotosIn, files_body
from ..uploads import read_uploads
from ..views import answer_view, photo_view, workspace_view
from .asking import Label, Labels, Side

router = APIRouter(tags=["photos"], responses=ERRORS)
_ONE = "/v1/workspaces/{workspace}/photos"
_ASKED_AT_ONCE = 32  # photos that are asked about where none are named
_TEXT = {"type": "string"}
# A photo of this id never changes; but one that was removed is not to stay in the browser for long.
_PRIVATE = {"Cache-Control": "private, max-age=3600, immutable"}


@router.post(
    _ONE,
    response_model=Added,
    openapi_extra=files_body(**{"class": _TEXT, "class_name": _TEXT, "folders": {"type": "boolean"}}),
    summary="Add photos",
)
async def add(workspace: str, request: Request, here: Here) -> Response:
    """Add photos to a class, or to the unlabelled ones."""
    found = await run_in_threadpool(here.workspaces.get, workspace)
    sent = await read_uploads(request, here.settings.limits.files)
    added = await here.decoding(add_photos, here, found, sent)
    return await run_in_threadpool(lambda: reply(added | {"workspace": workspace_view(here, found)}))


@router.get(_ONE, response_model=Listed, summary="List photos")
def list_photos(
    workspace: str,
    here: Here,
    label: Annotated[str | None, Query(alias="class", max_length=20, description='Id of a class, or "none".')] = None,
    answered: bool | None = None,
    offset: Annotated[int, Query(ge=0, le=1_000_000)] = 0,
    limit: Annotated[int, Query(ge=1, le=1000)] = 200,
) -> Response:
    """List photos in the order in which they came."""
    found = here.workspaces.get(workspace)
    state: State = found.state
    photos = list(state.photos.values())
    if label is not None and label != "none":
        state.name_of(label)
    if label is not None:
        photos = [photo for photo in photos if photo.label == (None if label == "none" else label)]
    if answered is not None:
        photos = [photo for photo in photos if (photo.answer is not None) == answered]
    shown = [photo_view(found, photo) for photo in photos[offset : offset + limit]]
    return reply({"photos": shown, "total": len(photos), "offset": offset})


@router.patch(_ONE, response_model=Moved, summary="Move photos, or correct answers")
def move(workspace: str, body: MoveIn, here: Here) -> Response:
    """Give photos a class, which makes them training photos, or make them unlabelled."""
    found = here.workspaces.get(workspace)
    with found.change() as state:
        photos = state.some(body.photos)
        label = destination(state, body.label, body.class_name, here.settings.limits.classes)
        for photo in photos:
            photo.label = label
    view = workspace_view(here, found)
    return reply({"photos": [photo_view(found, photo) for photo in photos], "workspace": view})


@router.post(f"{_ONE}/delete", response_model=Deleted, summary="Remove photos")
def delete(workspace: str, body: PhotosIn, here: Here) -> Response:
    """Remove photos."""
    found = here.workspaces.get(workspace)
    with found.change() as state:
        ids = [photo.id for photo in state.some(body.photos)]
        for photo in ids:
            del state.photos[photo]
    found.remove_files(ids)
    return reply({"deleted": len(ids), "workspace": workspace_view(here, found)})


@router.get(f"{_ONE}/{{photo}}/thumbnail", response_class=FileResponse, summary="Small picture of a photo")
def thumbnail(workspace: str, photo: str, here: Here) -> Response:
    """Return a small JPEG of a photo."""
    path = here.workspaces.get(workspace).thumbnail_file(photo)
    if not path.is_file():
        raise missing("photo")
    return Response(path.read_bytes(), media_type="image/jpeg", headers=_PRIVATE)


@router.get(f"{_ONE}/{{photo}}/image", response_class=Response, summary="Picture of a photo")
async def image(workspace: str, photo: str, here: Here) -> Response:
    """Return a photo as an upright JPEG of at most 1,024 pixels."""
    found = await run_in_threadpool(here.workspaces.get, workspace)
    content = await here.decoding(picture, found.photo(found.state.photo(photo)))
    return Response(content, media_type="image/jpeg", headers=_PRIVATE)


@router.get(f"{_ONE}/{{photo}}/evidence", response_model=Explained, summary="Explain a photo")
async def evidence(
    workspace: str,
    photo: str,
    here: Here,
    label: Label = None,
    labels: Labels = None,
    width: Side = 64,
    height: Side = 64,
) -> Response:
    """Return where in a photo the votes for each class come from."""
    found = await run_in_threadpool(here.workspaces.get, workspace)
    record = found.state.photo(photo)
    served = await run_in_threadpool(here.models.of_workspace, found)
    wanted = Wanted(label or None, tuple(labels or ()), width, height)
    value = await explained(served, found.photo(record), wanted, here.settings.limits.answer_seconds)
    return await run_in_threadpool(reply, value)


@router.post("/v1/workspaces/{workspace}/answers", response_model=Asked, tags=["ask"], summary="Ask about photos")
async def ask(workspace: str, body: AskIn, here: Here) -> Response:
    """Ask the model of a workspace about photos of it, and keep the answers."""
    found = await run_in_threadpool(here.workspaces.get, workspace)
    served = await run_in_threadpool(here.models.of_workspace, found)
    run = served.path.parent.name
    fresh = [photo for photo in found.state.unlabelled if (photo.answer or {}).get("run") != run]
    photos = fresh[:_ASKED_AT_ONCE] if body.photos is None else found.state.some(body.photos)
    answers = []
    if photos:
        pictures = [found.photo(photo) for photo in photos]
        answers = await answered(served, pictures, here.settings.limits.answer_seconds)
    views = [answer_view(answer) | {"run": run} for answer in answers]

    def keep() -> Any:
        ids = [photo.id for photo in photos]
        with found.change() if ids else contextlib.nullcontext(found.state) as state:
            for photo, view in zip(ids, views, strict=True):
                if photo in state.photos:  # it may have been removed meanwhile
                    state.photos[photo].answer = view
        shown = [photo_view(found, found.state.photos[photo]) for photo in ids if photo in found.state.photos]
        remaining = sum((photo.answer or {}).get("run") != run for photo in found.state.unlabelled)
        return reply({"answers": shown, "remaining": remaining, "workspace": workspace_view(here, found)})

    return await run_in_threadpool(keep)
