"""Routes of learning: jobs, their events, and the report."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator

from fastapi import APIRouter
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from ...errors import PatchvoteError
from ...models.arguments import kind_of_voter
from ..context import Context, Here, reply
from ..jobs import Job
from ..learning import Task
from ..problems import Problem
from ..shapes import ERRORS, JobOut, LearnIn
from ..workspaces import Workspace

router = APIRouter(tags=["learn"], responses=ERRORS)
_POLL = 0.1  # seconds between two looks at a job whose events are streamed
_ALIVE = 15.0  # seconds between two signs of life
_ONE = "/v1/workspaces/{workspace}"


@router.post(f"{_ONE}/learn", response_model=JobOut, status_code=202, summary="Learn")
def learn(workspace: str, body: LearnIn, here: Here) -> Response:
    """Start to learn from the labelled photos of a workspace."""
    found = here.workspaces.get(workspace)
    try:
        kind_of_voter(body.voter)
    except PatchvoteError:
        raise Problem(422, "invalid", "there is no such voter; try auto.") from None
    here.jobs.check_free(found)
    with found.lock:  # so that no model is opened, and nothing removed, before the job is there
        submitted = _submitted(here, found, body)
    return reply(here.jobs.plain(submitted), 202)


def _submitted(here: Context, workspace: Workspace, body: LearnIn) -> Job:
    state, base = workspace.state, workspace.model_of(workspace.state.base)
    labelled = [[photo.id, photo.name, state.classes[str(photo.label)]] for photo in state.labelled]
    needed = 2 if base is None else 1
    if len({label for _, _, label in labelled}) < needed:
        message = "put photos into at least two classes first." if needed == 2 else "put photos into a class first."
        raise Problem(422, "invalid", message)
    like = None if base is None else here.models.like(base)
    run = workspace.new_run()
    task = Task(
        photos=str(workspace.folder / "photos"),
        run=str(run),
        bags=str(workspace.folder / "bags"),
        labelled=labelled,
        unlabelled=[[photo.id, photo.name] for photo in state.unlabelled],
        base=None if base is None else str(base),
        network=None if like is None else str(like.batcher.extractor.recipe.network),
        voter=body.voter,
        budget=body.budget,
        suggest=body.suggest,
        jobs=here.settings.jobs,
        device=here.settings.device,
    )
    try:
        return here.jobs.submit(workspace, task, state.fingerprint())
    except BaseException:
        workspace.discard_run(run)
        raise


@router.get(f"{_ONE}/report", summary="What the last learning found")
def report(workspace: str, here: Here) -> Response:
    """Return accuracy, mistakes, suspects and suggestions of the last learning."""
    value = here.workspaces.get(workspace).read_report()
    if value is None:
        raise Problem(404, "not_found", "nothing was learned here yet.")
    return reply(value)


@router.get("/v1/jobs/{job}", response_model=JobOut, summary="State of a job")
def job(job: str, here: Here) -> Response:
    """Return the state of a job."""
    return reply(here.jobs.plain(here.jobs.get(job)))


@router.delete("/v1/jobs/{job}", response_model=JobOut, summary="Cancel a job")
def cancel(job: str, here: Here) -> Response:
    """Cancel a job; what its workspace had before stays."""
    found = here.jobs.get(job)
    here.jobs.cancel(found)
    return reply(here.jobs.plain(found))


@router.get("/v1/jobs/{job}/events", response_class=StreamingResponse, summary="Progress of a job, live")
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
    seen, spoke = -1, clock()
    while True:
        is_over, version = job.is_over, job.version
        if version != seen or is_over:
            seen, spoke = version, clock()
            kind = "end" if is_over else "progress"
            yield f"event: {kind}\ndata: {json.dumps(here.jobs.plain(job))}\n\n"
        elif clock() - spoke > _ALIVE:
            spoke = clock()
            yield ": alive\n\n"
        if is_over:
            return
        await asyncio.sleep(_POLL)
