"""The server: its routes with the guard before them, and one process that runs them until Ctrl-C."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import uvicorn
from fastapi import APIRouter, FastAPI, Request
from prometheus_client import disable_created_metrics, generate_latest
from starlette.responses import Response
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp

from ..errors import PatchvoteError
from ..photos.formats import endings
from ..utils.files import lock_at_once, make_folder
from ..utils.machine import one_blas_thread
from ..version import __version__
from .guard import COOKIE, Guard, protocol, refuse_guess, same
from .problems import add_handlers, private_folders
from .routes import Context, Here, asking, photos, reply, teaching
from .settings import Settings
from .shapes import ERRORS, SessionIn

# Later versions of FastAPI can send figures and errors of requests elsewhere, if the environment asks for it; earlier
# ones ignore the setting.
_NO_TELEMETRY: Any = {"tracing": False, "metrics": False, "logs": False, "auto_configure": False}
_ABOUT = "Teach a model with a few photos of each class, ask it about others, and see where its evidence is."
_BACKLOG = 128  # connections that wait to be accepted
_KEEP_ALIVE = 5  # seconds between two requests; less than `Limits.header_seconds`, which run at the same time
_SHUTDOWN = 5  # seconds for requests that are being answered when the server ends
_YEAR = 365 * 86_400

disable_created_metrics()  # type: ignore[no-untyped-call]

service = APIRouter(tags=["service"])


def make_app(settings: Settings, log: Callable[[str], None] | None = None) -> ASGIApp:
    """Return the whole application, which ends its jobs when it ends.

    `log` is called with a line per request: method, route, status and duration, and nothing that a client sent.
    """
    context = Context(settings)

    @contextlib.asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        yield
        context.jobs.close()
        context.models.close()
        context.decode.close()

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
    for router in (service, asking.router, *teaching.routers, photos.router, _page_routes(settings.static)):
        api.include_router(router)
    return Guard(api, settings, context.sessions, context.registry, log)


@service.get("/healthz")
def healthz() -> Response:
    """Say that the server answers, and its version."""
    return reply({"status": "ok", "version": __version__})


@service.get("/metrics", responses=ERRORS)
def metrics(here: Here) -> Response:
    """Return the figures of the server, as text."""
    return Response(generate_latest(here.registry), media_type="text/plain; version=0.0.4")


@service.get("/v1/settings", responses=ERRORS)
def settings(here: Here) -> Response:
    """Return limits, formats, and whether a token is needed."""
    limits = here.settings.limits
    shown = {name: getattr(limits, name) for name in ("body_bytes", "model_bytes", "files", "workspace_photos")}
    needs_token = bool(here.settings.token)
    models = list(here.models.own)
    return reply(shown | {"version": __version__, "token": needs_token, "endings": list(endings()), "models": models})


@service.post("/v1/session", status_code=204, responses=ERRORS)
async def begin_session(here: Here, body: SessionIn, request: Request) -> Response:
    """Set the cookie by which the page is known, if the token is right."""
    token = here.settings.token
    if token and not same(body.token, token):
        await refuse_guess()
    response = Response(status_code=204)
    if token:
        secure = request.url.scheme == "https"
        response.set_cookie(COOKIE, here.sessions.begin(), _YEAR, secure=secure, httponly=True, samesite="strict")
    return response


@service.delete("/v1/session", status_code=204, responses=ERRORS)
def end_session(here: Here, request: Request) -> Response:
    """End the session, and remove the cookie."""
    here.sessions.end(request.headers)
    response = Response(status_code=204)
    response.delete_cookie(COOKIE, httponly=True, samesite="strict")
    return response


def _page_routes(folder: Path) -> APIRouter:
    """Return the routes of the page and its files, which browsers ask for again with their ETags."""
    pages, files = APIRouter(include_in_schema=False), StaticFiles(directory=folder)

    @pages.get("/")
    @pages.get("/static/{name:path}")
    async def page(request: Request) -> Response:
        response = await files.get_response(request.path_params.get("name", "index.html"), request.scope)
        response.headers["Cache-Control"] = "no-cache"
        return response

    return pages


def serve(
    settings: Settings, *, ready: Callable[[str], None] | None = None, log: Callable[[str], None] | None = None
) -> None:
    """Serve until the process is told to end; `ready` is called with the address once requests are accepted."""
    make_folder(settings.data / "workspaces")
    with lock_at_once(settings.data / "workspaces") as is_mine, contextlib.ExitStack() as stack:
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
            host, port = settings.host, listener.getsockname()[1]
            host = "127.0.0.1" if host in ("0.0.0.0", "::") else host  # noqa: S104 - for a browser on this machine
            ready(f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}")
        # On one thread each: matrices of a single photo are small, and threads of BLAS spin while they wait for the
        # next one, which takes the cores from the network (a third of the processor time of a photo).
        with one_blas_thread():
            uvicorn.Server(config).run([listener])


def _listening(settings: Settings) -> socket.socket:
    """Return a socket that listens, before models are read: a taken port is told at once."""
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    try:
        address, both = (settings.host, settings.port), settings.host == "::"
        listener = socket.create_server(address, family=family, backlog=_BACKLOG, dualstack_ipv6=both)
    except OSError as error:
        raise PatchvoteError(
            f"{settings.host} port {settings.port} cannot be used: {error.strerror or error}. Try another --port."
        ) from None
    # With the protocol named, asyncio switches off the delay of small packets, which would add 40 ms to a response.
    return socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP, listener.detach())
