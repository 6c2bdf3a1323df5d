"""Context: what the routes of one server share, and how they reply."""

from __future__ import annotations

import asyncio
import dataclasses
import json
from collections.abc import Callable
from typing import Annotated, Any, ParamSpec, TypeVar

from fastapi import Depends, Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from .jobs import Jobs
from .metrics import Metrics
from .served import Models
from .settings import Settings
from .streams import Streams
from .workspaces import Workspaces

P = ParamSpec("P")
T = TypeVar("T")


@dataclasses.dataclass(frozen=True, eq=False)
class Context:
    """The parts of one server."""

    settings: Settings
    metrics: Metrics
    workspaces: Workspaces
    models: Models
    jobs: Jobs
    streams: Streams
    decoders: asyncio.Semaphore

    async def decoding(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a function that decodes photos in a thread, when few enough others do; no thread waits meanwhile."""
        async with self.decoders:
            return await run_in_threadpool(work, *args, **kwargs)


async def context_of(request: Request) -> Context:
    """Return the context of the server that a request came to; FastAPI would run a plain function in a thread."""
    context: Context = request.app.state.context
    return context


Here = Annotated[Context, Depends(context_of)]


def reply(value: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """Return a value as JSON in ASCII: names in a model file may hold characters that UTF-8 cannot encode."""
    return Response(json.dumps(value, allow_nan=False), status, headers, media_type="application/json")
