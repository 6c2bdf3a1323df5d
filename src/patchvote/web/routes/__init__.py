"""What the routes of one server share, and workspaces, photos and models as the plain values of replies."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import Callable
from typing import Annotated, Any, TypeVar

from fastapi import Depends, Request
from prometheus_client import CollectorRegistry, Gauge
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from ...errors import PatchvoteError
from ...models.answers import Answer, row
from ...models.model import Model
from ...models.report.card import accuracy_of
from ...utils.machine import resident_memory
from ..decoding import Decoders
from ..guard import Sessions
from ..jobs import Jobs
from ..models import Models
from ..problems import Problem, private_folders
from ..settings import Settings
from ..workspaces import PhotoRecord, Workspace, Workspaces

T = TypeVar("T")


class Context:
    """The parts of one server."""

    def __init__(self, settings: Settings) -> None:
        limits = settings.limits
        self.settings, self.registry = settings, CollectorRegistry()
        self.workspaces = Workspaces(settings.data / "workspaces", limits)
        self.decode = Decoders()
        self.models = Models(settings, self.workspaces, self.registry, self.decode)
        self.jobs = Jobs(limits, self.registry, private_folders(settings))
        self.sessions = Sessions()
        self.streams = 0  # open streams of events
        self._decoders = asyncio.Semaphore(limits.decoding_requests)
        for name, description, read in (
            ("streams_open", "Open streams of events.", lambda: self.streams),
            ("cpu_seconds", "Processor time that the server has used.", time.process_time),
            ("memory_bytes", "Memory that the server uses.", resident_memory),
        ):
            Gauge(f"patchvote_{name}", description, registry=self.registry).set_function(read)

    async def decoding(self, work: Callable[..., T], *args: Any) -> T:
        """Run a function that decodes photos in a thread, when few enough others do; no thread waits meanwhile."""
        async with self._decoders:
            return await run_in_threadpool(work, *args)

    def changed(self, workspace: Workspace, status: int = 200, **more: Any) -> Response:
        """Return a reply with the state of a workspace after a change."""
        return reply(more | {"workspace": self.state(workspace)}, status)

    def state(self, workspace: Workspace) -> dict[str, Any]:
        """Return the state of a workspace."""
        state, job, model, learned = workspace.state, self.jobs.of(workspace), None, {}
        with contextlib.suppress(OSError, PatchvoteError, Problem):  # a damaged model keeps nobody from the rest
            served = self.models.of_workspace(workspace)
            learned = served.model.about.images
            opened = {"opened": state.base is not None, "stale": state.learned != state.fingerprint()}
            model = model_view(workspace.id, served.model, served.size) | opened
        counts = dict.fromkeys(state.classes, 0)
        for photo in state.labelled:
            counts[str(photo.label)] += 1
        classes = [
            {"id": label, "name": name, "photos": counts[label], "learned": learned.get(name, 0)}
            for label, name in state.classes.items()
        ]
        return {
            "id": workspace.id,
            "title": state.title,
            "version": state.version,
            "classes": classes,
            "photos": len(state.photos),
            "unlabelled": len(state.unlabelled),
            "answered": len(state.answered),
            "bytes": sum(photo.bytes for photo in state.photos.values()),
            "model": model,
            "job": None if job is None else self.jobs.plain(job),
            "has_report": workspace.report_file() is not None,
        }


async def _context(request: Request) -> Context:  # FastAPI would run a plain function in a thread
    context: Context = request.app.state.context
    return context


Here = Annotated[Context, Depends(_context)]


def _found(workspace: str, here: Here) -> Workspace:
    return here.workspaces.get(workspace)


Found = Annotated[Workspace, Depends(_found)]  # the workspace that the address names


def reply(value: Any, status: int = 200) -> Response:
    """Return a value as JSON in ASCII: names in a model file may hold characters that UTF-8 cannot encode."""
    return Response(json.dumps(value, allow_nan=False), status, media_type="application/json")


def model_view(name: str, model: Model, size: int) -> dict[str, Any]:
    """Return what a model is, and how accurate."""
    about = model.about
    return {
        "name": name,
        "kind": model.kind,
        "classes": list(model.classes),
        "photos": {label: about.images.get(label, 0) for label in model.classes},
        "made": about.made.get("date", ""),
        "network": model.recipe.network,
        "mode": model.recipe.mode,
        "bytes": size,
        "remembers": model.scorer.remembers and bool(model.names),
        "accuracy": accuracy_of(about),
        "held_out": about.held_out,
        "card": model.card,
    }


def photo_view(workspace: Workspace, photo: PhotoRecord) -> dict[str, Any]:
    """Return a photo of a workspace."""
    address = f"/v1/workspaces/{workspace.id}/photos/{photo.id}"
    answer = None
    if photo.answer is not None:
        answer = {name: value for name, value in photo.answer.items() if name != "run"}
        answer["current"] = photo.answer.get("run") == workspace.state.run
    view = {name: getattr(photo, name) for name in ("id", "name", "width", "height", "bytes")}
    pictures = {name: f"{address}/{name}" for name in ("thumbnail", "image")}
    return view | pictures | {"class": photo.label, "answer": answer}


def answer_view(answer: Answer) -> dict[str, Any]:
    """Return an answer with the fields of `patchvote predict --json`, and whether it was rejected."""
    return row(answer) | {"rejected": answer.rejected}
