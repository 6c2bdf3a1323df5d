"""The server: its parts, its routes with the guard before them, and one process that runs them until Ctrl-C."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

import uvicorn
from fastapi import FastAPI
from starlette.types import ASGIApp

from ..errors import PatchvoteError
from ..utils.files import lock_at_once, make_folder
from ..utils.machine import one_blas_thread, resident_memory
from ..version import __version__
from .context import Context
from .guard import Guard, protocol
from .jobs import Jobs
from .metrics import Metrics
from .models import Models
from .problems import add_handlers, private_folders
from .routes import asking, learning, models, photos, service, workspaces
from .settings import Settings
from .workspaces import Workspaces

# Later versions of FastAPI can send figures and errors of requests elsewhere, if the environment asks for it; earlier
# ones ignore the setting.
_NO_TELEMETRY: Any = {"tracing": False, "metrics": False, "logs": False, "auto_configure": False}
_ABOUT = "Teach a model with a few photos of each class, ask it about others, and see where its evidence is."
_BACKLOG = 128  # connections that wait to be accepted
_KEEP_ALIVE = 5  # seconds between two requests; less than `Limits.header_seconds`, which run at the same time
_SHUTDOWN = 5  # seconds for requests that are being answered when the server ends


def make_context(settings: Settings) -> Context:
    """Make the parts of a server: its workspaces, models and jobs."""
    limits, metrics = settings.limits, Metrics()
    everything = Workspaces(settings.data / "workspaces", limits)
    served = Models(settings, everything, metrics)
    jobs = Jobs(limits, metrics, private_folders(settings))
    context = Context(settings, metrics, everything, served, jobs, asyncio.Semaphore(limits.decoding_requests))
    metrics.gauge("patchvote_photos_waiting", "Photos that wait for the network.", lambda: served.waiting)
    metrics.gauge("patchvote_jobs_running", "Jobs that run.", lambda: jobs.running)
    metrics.gauge("patchvote_streams_open", "Open streams of events.", lambda: context.streams)
    metrics.gauge("patchvote_cpu_seconds", "Processor time that the server has used.", time.process_time)
    metrics.gauge("patchvote_memory_bytes", "Memory that the server uses.", lambda: float(resident_memory()))
    return context


def make_app(settings: Settings, log: Callable[[str], None] | None = None) -> ASGIApp:
    """Return the whole application, which ends its jobs when it ends.

    `log` is called with a line per request: method, route, status and duration, and nothing that a client sent.
    """
    context = make_context(settings)

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
    add_handlers(api, private_folders(settings))
    for routes in (service, asking, models, workspaces, photos, learning):
        api.include_router(routes.router)
    api.include_router(service.page_routes(settings.static))
    return Guard(api, settings, context.metrics, log)


def serve(
    settings: Settings, *, ready: Callable[[str], None] | None = None, log: Callable[[str], None] | None = None
) -> None:
    """Serve until the process is told to end; `ready` is called with the address once requests are accepted."""
    make_folder(settings.data)
    with lock_at_once(settings.data / "server") as is_mine, contextlib.ExitStack() as stack:
        if not is_mine:
            raise PatchvoteError(f"another server uses {settings.data}. End it, or name another folder with --data.")
        listener = stack.enter_context(_listening(settings))
        config = uvicorn.Config(
            make_app(settings, log),
            http=protocol(settings.limits),
            ws="none",
            lifespan="on",
            access_log=False,  # its lines hold ids; ours do not
            log_level="warning",
            server_header=False,
            limit_concurrency=settings.limits.connections,
            timeout_keep_alive=_KEEP_ALIVE,
            timeout_graceful_shutdown=_SHUTDOWN,
            h11_max_incomplete_event_size=1 << 16,
        )
        if ready is not None:
            ready(_address(settings, listener.getsockname()[1]))
        # On one thread each: matrices of a single photo are small, and threads of BLAS spin while they wait for the
        # next one, which takes the cores from the network (a third of the processor time of a photo).
        with one_blas_thread():
            uvicorn.Server(config).run([listener])


def _address(settings: Settings, port: int) -> str:
    """Return the address of the page for a browser on this machine."""
    host = "127.0.0.1" if settings.host in ("0.0.0.0", "::") else settings.host  # noqa: S104 - compared, not bound
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _listening(settings: Settings) -> socket.socket:
    """Return a socket that listens, before models are read: a taken port is told at once."""
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    # With the protocol named, asyncio switches off the delay of small packets, which would add 40 ms to a response.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((settings.host, settings.port))
        listener.listen(_BACKLOG)
    except OSError as error:
        listener.close()
        raise PatchvoteError(
            f"{settings.host} port {settings.port} cannot be used: {error.strerror or error}. Try another --port."
        ) from None
    return listener
