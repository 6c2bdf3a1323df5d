"""Routes of models: those of the server, and those of files, which are opened in workspaces."""

from __future__ import annotations

import shutil
import threading
from pathlib import Path

from fastapi import APIRouter, Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import FileResponse, Response

from ...utils.files import write_atomically
from ..context import Context, Here, model_view, reply
from ..problems import Problem
from ..shapes import (
    ERRORS,
    MODEL_BODY,
    Changed,
    ForgetIn,
    ModelOut,
    ModelsOut,
    WorkspaceIn,
    WorkspaceOut,
    read_uploads,
)
from ..workspaces import State, Workspace

router = APIRouter(tags=["models"], responses=ERRORS)
_MAX_PATTERNS = 100  # in one request to forget: each is compared with the names of all photos
_FORGETTING = threading.Lock()  # solves all equations again: one request at a time


@router.get("/v1/models", response_model=ModelsOut, summary="Models of the server")
def models(here: Here) -> Response:
    """List the models that the server was started with; those of workspaces are not listed."""
    return reply({"models": [model_view(one.name, one.model, one.size) for one in here.models.own.values()]})


@router.post(
    "/v1/models", response_model=WorkspaceOut, status_code=201, openapi_extra=MODEL_BODY, summary="Upload a model"
)
async def upload(request: Request, here: Here) -> Response:
    """Make a workspace that holds a model file."""
    sent = await read_uploads(request, 1, "file")
    return await run_in_threadpool(_made, here, "", sent.files[0].content)


@router.get("/v1/models/{name}", response_model=ModelOut, summary="What a model is")
def model(name: str, here: Here) -> Response:
    """Return what a model is, and how accurate."""
    served = here.models.get(name)
    return reply(model_view(served.name, served.model, served.size))


@router.get("/v1/models/{name}/file", response_class=FileResponse, summary="Download a model")
def download(name: str, here: Here) -> Response:
    """Return the file of a model."""
    served = here.models.get(name)
    title = "model" if served.workspace is not None else served.name
    return FileResponse(served.path, media_type="application/octet-stream", filename=f"{title}.patchvote")


@router.post(
    "/v1/workspaces", response_model=WorkspaceOut, status_code=201, tags=["workspaces"], summary="Make a workspace"
)
def create(here: Here, body: WorkspaceIn) -> Response:
    """Make a workspace, with a model of the server if one is named."""
    return _made(here, body.title, None if body.model is None else here.models.get(body.model).path)


@router.put(
    "/v1/workspaces/{workspace}/model", response_model=Changed, openapi_extra=MODEL_BODY, summary="Open a model file"
)
async def put_model(workspace: str, request: Request, here: Here) -> Response:
    """Open a model file in a workspace: its classes are added, and learning adds to it."""
    found = await run_in_threadpool(here.workspaces.get, workspace)
    sent = await read_uploads(request, 1, "file")
    here.jobs.check_free(found)
    await run_in_threadpool(_open_model, here, found, sent.files[0].content)
    return await run_in_threadpool(lambda: reply({"workspace": here.state(found)}))


@router.post("/v1/workspaces/{workspace}/forget", response_model=Changed, summary="Let an opened model forget photos")
def forget(workspace: str, body: ForgetIn, here: Here) -> Response:
    """Make the opened model the one that a fit without some of its photos gives."""
    found = here.workspaces.get(workspace)
    here.jobs.check_free(found)
    if len(photos := list(dict.fromkeys(body.photos))) > _MAX_PATTERNS:
        raise Problem(422, "invalid", f"at most {_MAX_PATTERNS} photos or patterns can be forgotten at once.")
    with _FORGETTING:
        base = found.state.base
        source = found.model_of(base)
        if source is None:
            message = "no model was opened here: to forget photos of a workspace, remove photos, and learn again."
            raise Problem(409, "conflict", message)
        run = found.new_run()
        try:
            here.models.loaded(source).forget(photos).save(run / "model.patchvote")
            with found.lock:
                here.jobs.check_free(found)
                if found.state.base != base:
                    raise Problem(409, "conflict", "another model was opened meanwhile: nothing was forgotten.")
                # What was learned here since is learned again by the next job.
                found.commit_run(run, State("").fingerprint(), opened=True)
        except BaseException:
            found.discard_run(run)
            raise
    return reply({"workspace": here.state(found)})


def _made(here: Context, title: str, source: bytes | Path | None) -> Response:
    """Make a workspace with the model of a file or of its content, if there is one."""
    workspace = here.workspaces.create(title)
    if source is not None:
        try:
            _open_model(here, workspace, source)
        except BaseException:
            here.workspaces.remove(workspace)
            raise
    return reply(here.state(workspace), 201)


def _open_model(here: Context, workspace: Workspace, source: bytes | Path) -> None:
    """Make the model of a file, or of its content, the present one of a workspace, which gets its classes."""
    run, most = workspace.new_run(), here.settings.limits.model_classes
    try:
        path = run / "model.patchvote"
        if isinstance(source, bytes):
            write_atomically(path, [source])
        else:
            shutil.copyfile(source, path)
        classes = here.models.loaded(path).model.classes
        # The server's own models may have as many classes as they like.
        if isinstance(source, bytes) and len({*workspace.state.classes.values(), *classes}) > most:
            raise Problem(413, "full", f"with this model, the workspace would have more than {most:,} classes.")
        with workspace.lock:
            here.jobs.check_free(workspace)  # a job may have begun while the file was read
            # It has learned from no photo of the workspace yet.
            workspace.commit_run(run, State("").fingerprint(), opened=True, classes=classes)
    except BaseException:
        workspace.discard_run(run)
        raise
