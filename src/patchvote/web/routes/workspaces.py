"""Routes of workspaces and their classes."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Query, Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from ..context import Here, reply
from ..opening import forget, open_model
from ..problems import Problem
from ..served import named
from ..shapes import ERRORS, MODEL_BODY, Changed, ClassChanged, ClassIn, ForgetIn, WorkspaceIn, WorkspaceOut
from ..uploads import read_uploads
from ..views import workspace_view

router = APIRouter(tags=["workspaces"], responses=ERRORS)
_ONE = "/v1/workspaces/{workspace}"


@router.post("/v1/workspaces", response_model=WorkspaceOut, status_code=201, summary="Make a workspace")
def create(here: Here, body: WorkspaceIn) -> Response:
    """Make a workspace, with a model of the server if one is named."""
    served = None if body.model is None else named(here.models, body.model)
    workspace = here.workspaces.create(body.title)
    if served is not None:
        try:
            open_model(here, workspace, served.path)
        except BaseException:
            here.workspaces.remove(workspace)
            raise
    return reply(workspace_view(here, workspace), 201)


@router.get(_ONE, response_model=WorkspaceOut, summary="State of a workspace")
def get(workspace: str, here: Here) -> Response:
    """Return the state of a workspace."""
    return reply(workspace_view(here, here.workspaces.get(workspace)))


@router.delete(_ONE, status_code=204, summary="Remove a workspace")
def remove(workspace: str, here: Here) -> Response:
    """Remove a workspace with everything in it, also a damaged one."""
    try:
        found = here.workspaces.get(workspace)
    except Problem as problem:
        if problem.code != "damaged":
            raise
        here.workspaces.remove_damaged(workspace)
        return Response(status_code=204)
    with found.lock:  # no other job begins meanwhile
        job = here.jobs.of(found)
        if job is not None:
            here.jobs.cancel(job)
        here.workspaces.remove(found)
    return Response(status_code=204)


@router.put(f"{_ONE}/model", response_model=Changed, openapi_extra=MODEL_BODY, summary="Open a model file")
async def put_model(workspace: str, request: Request, here: Here) -> Response:
    """Open a model file in a workspace: its classes are added, and learning adds to it."""
    found = await run_in_threadpool(here.workspaces.get, workspace)
    sent = await read_uploads(request, 1, "file")
    here.jobs.check_free(found)
    await run_in_threadpool(open_model, here, found, sent.files[0].content)
    return await run_in_threadpool(lambda: reply({"workspace": workspace_view(here, found)}))


@router.post(f"{_ONE}/forget", response_model=Changed, summary="Let an opened model forget photos")
def forget_photos(workspace: str, body: ForgetIn, here: Here) -> Response:
    """Make the opened model the one that a fit without some of its photos gives."""
    found = here.workspaces.get(workspace)
    here.jobs.check_free(found)
    forget(here, found, body.photos)
    return reply({"workspace": workspace_view(here, found)})


@router.post(f"{_ONE}/classes", response_model=ClassChanged, status_code=201, summary="Make a class")
def make_class(workspace: str, body: ClassIn, here: Here) -> Response:
    """Make a class."""
    found = here.workspaces.get(workspace)
    with found.change() as state:
        label = state.make_class(body.name, here.settings.limits.classes)
    return _class_reply(here, workspace, label, 201)


@router.patch(f"{_ONE}/classes/{{label}}", response_model=ClassChanged, summary="Rename a class")
def rename_class(workspace: str, label: str, body: ClassIn, here: Here) -> Response:
    """Rename a class; the model knows the new name once it has learned again."""
    found = here.workspaces.get(workspace)
    with found.change() as state:
        state.rename(label, body.name)
    return _class_reply(here, workspace, label, 200)


@router.delete(f"{_ONE}/classes/{{label}}", response_model=Changed, summary="Remove a class")
def remove_class(
    workspace: str, label: str, here: Here, photos: Annotated[Literal["keep", "delete"], Query()] = "keep"
) -> Response:
    """Remove a class; its photos become unlabelled, or are removed, too."""
    found = here.workspaces.get(workspace)
    with found.change() as state:
        members = state.remove_class(label)
        if photos == "delete":
            for photo in members:
                del state.photos[photo.id]
    found.remove_files(photo.id for photo in members)
    return reply({"workspace": workspace_view(here, found)})


def _class_reply(here: Here, workspace: str, label: str, status: int) -> Response:
    view = workspace_view(here, here.workspaces.get(workspace))
    made = next(one for one in view["classes"] if one["id"] == label)
    return reply({"class": made, "workspace": view}, status)
