"""Routes of workspaces and their classes."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Query
from starlette.responses import Response

from ..context import Here, reply
from ..problems import Problem
from ..shapes import ERRORS, Changed, ClassChanged, ClassIn, WorkspaceOut
from ..workspaces import Workspace

router = APIRouter(tags=["workspaces"], responses=ERRORS)
_ONE = "/v1/workspaces/{workspace}"


@router.get(_ONE, response_model=WorkspaceOut, summary="State of a workspace")
def get(workspace: str, here: Here) -> Response:
    """Return the state of a workspace."""
    return reply(here.state(here.workspaces.get(workspace)))


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


@router.post(f"{_ONE}/classes", response_model=ClassChanged, status_code=201, summary="Make a class")
def make_class(workspace: str, body: ClassIn, here: Here) -> Response:
    """Make a class."""
    found = here.workspaces.get(workspace)
    with found.change() as state:
        label = state.make_class(body.name, here.settings.limits.classes)
    return _changed(here, found, label, 201)


@router.patch(f"{_ONE}/classes/{{label}}", response_model=ClassChanged, summary="Rename a class")
def rename_class(workspace: str, label: str, body: ClassIn, here: Here) -> Response:
    """Rename a class; the model knows the new name once it has learned again."""
    found = here.workspaces.get(workspace)
    with found.change() as state:
        state.rename(label, body.name)
    return _changed(here, found, label)


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
    return reply({"workspace": here.state(found)})


def _changed(here: Here, workspace: Workspace, label: str, status: int = 200) -> Response:
    state = here.state(workspace)
    changed = next(one for one in state["classes"] if one["id"] == label)
    return reply({"class": changed, "workspace": state}, status)
