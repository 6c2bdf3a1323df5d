"""Routes of teaching: workspaces with their classes, models that are opened and learned in them, and jobs."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator
from typing import Annotated, Literal

from fastapi import APIRouter, Query, Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import FileResponse, Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from ...errors import PatchvoteError
from ...models.arguments import kind_of_voter
from ...utils.files import write_atomically
from .. import shapes
from ..jobs import Job
from ..learning import Task
from ..problems import Problem
from ..shapes import ERRORS, read_uploads
from ..workspaces import State, Workspace
from . import Context, Found, Here, model_view, reply

_workspaces = APIRouter(tags=["workspaces"], responses=ERRORS)
_models = APIRouter(tags=["models"], responses=ERRORS)
_learning = APIRouter(tags=["learn"], responses=ERRORS)
routers = (_workspaces, _models, _learning)
_ONE = "/v1/workspaces/{workspace}"
_FORGETTING = threading.Lock()  # solves all equations again: one request at a time
_POLL = 0.1  # seconds between two looks at a job whose events are streamed
_ALIVE = 15.0  # seconds between two signs of life


@_workspaces.post("/v1/workspaces", response_model=shapes.WorkspaceOut, status_code=201)
def create(here: Here, body: shapes.WorkspaceIn) -> Response:
    """Make a workspace, with a model of the server if one is named."""
    return _created(here, body.title, None if body.model is None else here.models.get(body.model).file().read_bytes())


@_workspaces.get(_ONE, response_model=shapes.WorkspaceOut)
def get(found: Found, here: Here) -> Response:
    """Return the state of a workspace."""
    return reply(here.state(found))


@_workspaces.delete(_ONE, status_code=204)
def remove(workspace: str, here: Here) -> Response:
    """Remove a workspace with everything in it, also a damaged one."""
    try:
        found = here.workspaces.get(workspace)
    except Problem as problem:
        if problem.code != "damaged":
            raise
        here.workspaces.remove(workspace)
        return Response(status_code=204)
    with found.lock:  # no other job begins meanwhile
        if (job := here.jobs.of(found)) is not None:
            here.jobs.cancel(job)
        here.workspaces.remove(workspace)
    return Response(status_code=204)


@_workspaces.post(f"{_ONE}/classes", response_model=shapes.ClassChanged, status_code=201)
def make_class(found: Found, body: shapes.ClassIn, here: Here) -> Response:
    """Make a class."""
    with found.change() as state:
        label = state.make_class(body.name, here.settings.limits.classes)
    return _class_changed(here, found, label, 201)


@_workspaces.patch(f"{_ONE}/classes/{{label}}", response_model=shapes.ClassChanged)
def rename_class(found: Found, label: str, body: shapes.ClassIn, here: Here) -> Response:
    """Rename a class; the model knows the new name once it has learned again."""
    with found.change() as state:
        state.rename(label, body.name)
    return _class_changed(here, found, label)


@_workspaces.delete(f"{_ONE}/classes/{{label}}", response_model=shapes.Changed)
def remove_class(
    found: Found, label: str, here: Here, photos: Annotated[Literal["keep", "delete"], Query()] = "keep"
) -> Response:
    """Remove a class; its photos become unlabelled, or are removed, too."""
    with found.change() as state:
        members = state.remove_class(label)
        if photos == "delete":
            for photo in members:
                del state.photos[photo.id]
    found.remove_files(photo.id for photo in members)
    return here.changed(found)


def _class_changed(here: Context, workspace: Workspace, label: str, status: int = 200) -> Response:
    state = here.state(workspace)
    changed = next(one for one in state["classes"] if one["id"] == label)
    return reply({"class": changed, "workspace": state}, status)


@_models.get("/v1/models", response_model=shapes.ModelsOut)
def models(here: Here) -> Response:
    """List the models that the server was started with; those of workspaces are not listed."""
    return reply({"models": [model_view(one.name, one.model, one.size) for one in here.models.own.values()]})


@_models.post("/v1/models", response_model=shapes.WorkspaceOut, status_code=201, openapi_extra=shapes.MODEL_BODY)
async def upload(request: Request, here: Here) -> Response:
    """Make a workspace that holds a model file."""
    files, _ = await read_uploads(request, 1, "file")
    return await run_in_threadpool(_created, here, "", files[0].content)


@_models.get("/v1/models/{name}", response_model=shapes.ModelOut)
def model(name: str, here: Here) -> Response:
    """Return what a model is, and how accurate."""
    served = here.models.get(name)
    return reply(model_view(served.name, served.model, served.size))


@_models.get("/v1/models/{name}/file", response_class=FileResponse)
def download(name: str, here: Here) -> Response:
    """Return the file of a model."""
    served = here.models.get(name)
    title = "model" if served.workspace is not None else served.name
    return FileResponse(served.file(), media_type="application/octet-stream", filename=f"{title}.patchvote")


@_models.put(f"{_ONE}/model", response_model=shapes.Changed, openapi_extra=shapes.MODEL_BODY)
async def put_model(found: Found, request: Request, here: Here) -> Response:
    """Open a model file in a workspace: its classes are added, and learning adds to it."""
    files, _ = await read_uploads(request, 1, "file")
    here.jobs.check_free(found)
    await run_in_threadpool(_open_model, here, found, files[0].content)
    return await run_in_threadpool(here.changed, found)


@_models.post(f"{_ONE}/forget", response_model=shapes.Changed)
def forget(found: Found, body: shapes.ForgetIn, here: Here) -> Response:
    """Make the opened model the one that a fit without some of its photos gives."""
    here.jobs.check_free(found)
    with _FORGETTING:
        base = found.state.base
        source = found.model_of(base)
        if source is None:
            message = "no model was opened here: to forget photos of a workspace, remove photos, and learn again."
            raise Problem(409, "conflict", message)
        with found.new_run() as run:
            here.models.loaded(source).forget(list(dict.fromkeys(body.photos))).save(run / "model.patchvote")
            with found.lock:
                here.jobs.check_free(found)
                if found.state.base != base:
                    raise Problem(409, "conflict", "another model was opened meanwhile: nothing was forgotten.")
                # What was learned here since is learned again by the next job.
                found.commit_run(run, State("").fingerprint(), opened=True)
    return here.changed(found)


def _created(here: Context, title: str, content: bytes | None) -> Response:
    """Make a workspace with the model of a file with this content, if there is one."""
    workspace = here.workspaces.create(title)
    if content is not None:
        try:
            _open_model(here, workspace, content)
        except BaseException:
            here.workspaces.remove(workspace.id)
            raise
    return reply(here.state(workspace), 201)


def _open_model(here: Context, workspace: Workspace, content: bytes) -> None:
    """Make the model of a file with this content the present one of a workspace, which gets its classes."""
    most = here.settings.limits.model_classes
    with workspace.new_run() as run:
        path = run / "model.patchvote"
        write_atomically(path, [content])
        classes = here.models.loaded(path).model.classes
        if len({*workspace.state.classes.values(), *classes}) > most:
            raise Problem(413, "full", f"with this model, the workspace would have more than {most:,} classes.")
        with workspace.lock:
            here.jobs.check_free(workspace)  # a job may have begun while the file was read
            # It has learned from no photo of the workspace yet.
            workspace.commit_run(run, State("").fingerprint(), opened=True, classes=classes)


@_learning.post(f"{_ONE}/learn", response_model=shapes.JobOut, status_code=202)
def learn(found: Found, body: shapes.LearnIn, here: Here) -> Response:
    """Start to learn from the labelled photos of a workspace."""
    try:
        kind_of_voter(body.voter)
    except PatchvoteError:
        raise Problem(422, "invalid", "there is no such voter; try auto.") from None
    here.jobs.check_free(found)
    with found.lock, found.new_run() as run:  # no model is opened, and nothing removed, before the job is there
        state, base = found.state, found.model_of(found.state.base)
        labelled = [[photo.id, photo.name, state.classes[str(photo.label)]] for photo in state.labelled]
        needed, words = (2, "at least two classes") if base is None else (1, "a class")
        if len({label for _, _, label in labelled}) < needed:
            raise Problem(422, "invalid", f"put photos into {words} first.")
        like = None if base is None else here.models.like(base)
        task = Task(
            photos=str(found.folder / "photos"),
            run=str(run),
            bags=str(found.folder / "bags"),
            labelled=labelled,
            unlabelled=[[photo.id, photo.name] for photo in state.unlabelled],
            base=None if base is None else str(base),
            network=None if like is None else str(like.batcher.extractor.recipe.network),
            jobs=here.settings.jobs,
            device=here.settings.device,
            **body.model_dump(),  # voter, budget, and how many photos to suggest
        )
        submitted = here.jobs.submit(found, task, state.fingerprint())
    return reply(here.jobs.plain(submitted), 202)


@_learning.get(f"{_ONE}/report")
def report(found: Found) -> Response:
    """Return accuracy, mistakes, suspects and suggestions of the last learning."""
    value = found.read_report()
    if value is None:
        raise Problem(404, "not_found", "nothing was learned here yet.")
    return reply(value)


@_learning.get("/v1/jobs/{job}", response_model=shapes.JobOut)
def job(job: str, here: Here) -> Response:
    """Return the state of a job."""
    return reply(here.jobs.plain(here.jobs.get(job)))


@_learning.delete("/v1/jobs/{job}", response_model=shapes.JobOut)
def cancel(job: str, here: Here) -> Response:
    """Cancel a job; what its workspace had before stays."""
    found = here.jobs.get(job)
    here.jobs.cancel(found)
    return reply(here.jobs.plain(found))


@_learning.get("/v1/jobs/{job}/events", response_class=StreamingResponse)
async def events(job: str, here: Here) -> Response:
    """Stream the state of a job as server-sent events, until it is over."""
    return EventStream(here, here.jobs.get(job))


class EventStream(StreamingResponse):
    """The events of a job, which count as an open stream until they end or their reader goes away."""

    def __init__(self, here: Context, job: Job) -> None:
        if here.streams >= here.settings.limits.streams:
            raise Problem(429, "busy", "too many streams are open. Ask for the state of the job instead.", 5)
        super().__init__(_events(here, job), media_type="text/event-stream")
        self._here = here
        here.streams += 1  # now, and not when the first event is read: many may ask at once

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the events."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._here.streams -= 1


async def _events(here: Context, job: Job) -> AsyncIterator[str]:
    """Yield an event whenever a job has changed, and a comment now and then, which shows a broken connection."""
    clock = asyncio.get_running_loop().time
    last, spoke = None, clock()
    while True:
        is_over, state = job.is_over, here.jobs.plain(job)
        shown = state | {"seconds": 0}
        if shown != last or is_over:
            last, spoke = shown, clock()
            yield f"event: {'end' if is_over else 'progress'}\ndata: {json.dumps(state)}\n\n"
        elif clock() - spoke > _ALIVE:
            spoke = clock()
            yield ": alive\n\n"
        if is_over:
            return
        await asyncio.sleep(_POLL)
