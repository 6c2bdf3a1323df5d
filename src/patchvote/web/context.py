"""Context: what the routes of one server share, and workspaces, photos and models as the plain values of replies."""

from __future__ import annotations

import asyncio
import dataclasses
import json
from collections.abc import Callable
from typing import Annotated, Any, ParamSpec, TypeVar

from fastapi import Depends, Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from ..errors import PatchvoteError
from ..models.answers import Answer, row
from ..models.model import Model
from ..models.report.card import accuracy_of
from .jobs import Jobs
from .metrics import Metrics
from .models import Models, Served
from .settings import Settings
from .workspaces import PhotoRecord, Workspace, Workspaces

P = ParamSpec("P")
T = TypeVar("T")


@dataclasses.dataclass(eq=False)
class Context:
    """The parts of one server."""

    settings: Settings
    metrics: Metrics
    workspaces: Workspaces
    models: Models
    jobs: Jobs
    decoders: asyncio.Semaphore
    streams: int = 0  # open streams of events

    async def decoding(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a function that decodes photos in a thread, when few enough others do; no thread waits meanwhile."""
        async with self.decoders:
            return await run_in_threadpool(work, *args, **kwargs)

    def state(self, workspace: Workspace) -> dict[str, Any]:
        """Return the state of a workspace."""
        state, job = workspace.state, self.jobs.of(workspace)
        served = self._model_of(workspace)
        model = None
        if served is not None:
            model = model_view(workspace.id, served.model, served.size)
            model |= {"opened": state.base is not None, "stale": state.taught != state.fingerprint()}
        learned = {} if served is None else served.model.about.images
        counts = dict.fromkeys(state.classes, 0)
        for photo in state.labelled:
            counts[str(photo.label)] += 1
        return {
            "id": workspace.id,
            "title": state.title,
            "version": state.version,
            "classes": [
                {"id": label, "name": name, "photos": counts[label], "learned": learned.get(name, 0)}
                for label, name in state.classes.items()
            ],
            "photos": len(state.photos),
            "unlabelled": len(state.unlabelled),
            "answered": len(state.answered),
            "bytes": sum(photo.bytes for photo in state.photos.values()),
            "model": model,
            "job": None if job is None else self.jobs.plain(job),
            "has_report": workspace.report_file() is not None,
        }

    def _model_of(self, workspace: Workspace) -> Served | None:
        """Return the model of a workspace, if there is one; a damaged file keeps nobody from the rest."""
        try:
            return None if workspace.state.run is None else self.models.of_workspace(workspace)
        except (OSError, PatchvoteError):
            return None


async def context_of(request: Request) -> Context:
    """Return the context of the server that a request came to; FastAPI would run a plain function in a thread."""
    context: Context = request.app.state.context
    return context


Here = Annotated[Context, Depends(context_of)]


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
    return {
        "id": photo.id,
        "name": photo.name,
        "class": photo.label,
        "width": photo.width,
        "height": photo.height,
        "bytes": photo.bytes,
        "thumbnail": f"{address}/thumbnail",
        "image": f"{address}/image",
        "answer": answer,
    }


def answer_view(answer: Answer) -> dict[str, Any]:
    """Return an answer with the fields of `patchvote predict --json`, and whether it was rejected."""
    return row(answer) | {"rejected": answer.rejected}
