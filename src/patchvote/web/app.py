"""The application: routes, and around them the guard, the limits of bodies and the metrics."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

from fastapi import FastAPI
from starlette.types import ASGIApp

from ..utils.machine import resident_memory
from ..version import __version__
from .bodies import Bodies
from .context import Context
from .guard import Guard
from .jobs import Jobs
from .metrics import Measured, Metrics
from .problems import add_handlers, private_folders
from .routes import asking, learning, photos, service, workspaces
from .served import Models
from .settings import Settings
from .streams import Streams
from .workspaces import Workspaces

# Later versions of FastAPI can send figures and errors of requests elsewhere, if the environment asks for it; earlier
# ones ignore the setting.
_NO_TELEMETRY: Any = {"tracing": False, "metrics": False, "logs": False, "auto_configure": False}
_ABOUT = "Teach a model with a few photos of each class, ask it about others, and see where its evidence is."


def make_context(settings: Settings) -> Context:
    """Make the parts of a server: its workspaces, models and jobs."""
    metrics = Metrics()
    kept = Workspaces(settings.data / "workspaces", settings.limits)
    models = Models(settings, kept, metrics)
    folders = private_folders(settings.data, settings.models, settings.network)
    jobs = Jobs(settings.limits, metrics, folders)
    streams = Streams(settings.limits.streams)
    metrics.gauge("patchvote_photos_waiting", "Photos that wait for the network.", lambda: models.waiting)
    metrics.gauge("patchvote_jobs_running", "Jobs that run.", lambda: jobs.running)
    metrics.gauge("patchvote_streams_open", "Open streams of events.", lambda: streams.count)
    metrics.gauge("patchvote_cpu_seconds", "Processor time that the server has used.", time.process_time)
    metrics.gauge("patchvote_memory_bytes", "Memory that the server uses.", lambda: float(resident_memory()))
    decoders = asyncio.Semaphore(settings.limits.decoding_requests)
    return Context(settings, metrics, kept, models, jobs, streams, decoders)


def make_api(context: Context) -> FastAPI:
    """Return the routes of a server, which end its jobs when it ends."""

    @contextlib.asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        yield
        context.jobs.close()
        context.models.close()

    api = FastAPI(
        title="patchvote",
        version=__version__,
        description=_ABOUT,
        lifespan=lifespan,
        docs_url=None,  # FastAPI's pages load scripts from other hosts
        redoc_url=None,
        redirect_slashes=False,
        telemetry=_NO_TELEMETRY,
    )
    api.state.context = context
    settings = context.settings
    add_handlers(api, private_folders(settings.data, settings.models, settings.network))
    for routes in (service, asking, workspaces, photos, learning):
        api.include_router(routes.router)
    api.include_router(service.page_routes(context.settings))
    return api


def make_app(settings: Settings, log: Callable[[str], None] | None = None) -> ASGIApp:
    """Return the whole application.

    Parameters
    ----------
    settings : Settings
        Settings of the server.
    log : function, optional
        Called with a line per request: method, route, status and duration, and nothing that a client sent.
    """
    context = make_context(settings)
    inner = Guard(Bodies(make_api(context), settings.limits), settings)
    return Measured(inner, context.metrics, log)
