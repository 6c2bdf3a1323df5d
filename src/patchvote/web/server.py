"""Run the server: one process, one folder of workspaces, until Ctrl-C."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Callable

import uvicorn

from ..errors import PatchvoteError
from ..utils.files import lock_at_once, make_folder
from ..utils.machine import one_blas_thread
from .app import make_app
from .protocol import protocol
from .settings import Settings

_BACKLOG = 128  # connections that wait to be accepted
_KEEP_ALIVE = 5  # seconds between two requests; less than `Limits.header_seconds`, which run at the same time
_SHUTDOWN = 5  # seconds for requests that are being answered when the server ends


def serve(
    settings: Settings, *, ready: Callable[[str], None] | None = None, log: Callable[[str], None] | None = None
) -> None:
    """Serve until the process is told to end.

    Parameters
    ----------
    settings : Settings
        Settings of the server.
    ready : function, optional
        Called with the address of the page once requests are accepted.
    log : function, optional
        Called with a line per request.

    Raises
    ------
    PatchvoteError
        Another server uses the folder, or the port is taken.
    """
    make_folder(settings.data)
    with lock_at_once(settings.data / "server") as is_mine, contextlib.ExitStack() as stack:
        if not is_mine:
            raise PatchvoteError(f"another server uses {settings.data}. End it, or name another folder with --data.")
        listener = stack.enter_context(_listening(settings))
        app = make_app(settings, log)
        config = uvicorn.Config(
            app,
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
            ready(address(settings, listener.getsockname()[1]))
        # On one thread each: matrices of a single photo are small, and threads of BLAS spin while they wait for the
        # next one, which takes the cores from the network (a third of the processor time of a photo).
        with one_blas_thread():
            uvicorn.Server(config).run([listener])


def address(settings: Settings, port: int) -> str:
    """Return the address of the page for a browser on this machine.

    Examples
    --------
    >>> from pathlib import Path
    >>> address(Settings(Path("data")), 8000)
    'http://127.0.0.1:8000'
    """
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
