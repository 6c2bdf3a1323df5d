"""The command that starts the page and its API."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Annotated

import typer

from ..errors import PatchvoteError
from ..utils.terminal import say, show
from .options import Machine


def serve(
    model: Annotated[list[Path] | None, typer.Argument(metavar="MODEL", help="Models to ask.")] = None,
    host: Annotated[str, typer.Option(help="Address to listen on; other machines need a token.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0 chooses a free one.")] = 8000,
    token_file: Annotated[Path | None, typer.Option(help="File with the token; $PATCHVOTE_TOKEN by default.")] = None,
    allow_host: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Name of the server for browsers.")
    ] = None,
    data: Annotated[Path | None, typer.Option(help="Folder of the workspaces.", show_default="your data")] = None,
    queue: Annotated[int, typer.Option(min=1, help="Photos that may wait; further ones are refused with 429.")] = 200,
    network: Annotated[str | None, typer.Option(help="Network of MODEL, as for predict.")] = None,
    open_page: Annotated[bool, typer.Option("--open", help="Open the page in the browser.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but errors.")] = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Print a line per request.")] = False,
    *,
    machine: Machine,
) -> None:
    """Start a page on this machine to teach a model and to ask it, and an HTTP API for programs (extra web)."""
    from ..networks.session import check_device

    try:
        from ..web.app import serve as run
        from ..web.settings import Limits, Settings, data_folder
    except ImportError as error:
        message = "the page needs some packages more. Install them with: pip install 'patchvote[web]'"
        raise PatchvoteError(message) from error
    check_device(machine.device)
    settings = Settings(
        data=data or data_folder(),
        models=tuple(model or ()),
        network=network,
        host=host,
        port=port,
        token=_token(token_file),
        hosts=tuple(allow_host or ()),
        limits=Limits(waiting_photos=queue, connections=queue + 400),
        **machine.settings,
    )

    def ready(address: str) -> None:
        if not quiet:
            show(f"the page is at {address}")
            say("Ctrl-C ends it; what was taught is kept.")
        if open_page:
            import webbrowser

            webbrowser.open(address)

    with contextlib.suppress(KeyboardInterrupt):  # that is how it ends
        run(settings, ready=ready, log=say if verbose else None)


def _token(path: Path | None) -> str:
    """Return the token of a file, or of the environment: a command line could be read by everybody on the machine."""
    if path is None:
        return os.environ.get("PATCHVOTE_TOKEN", "").strip()
    token = path.read_text("utf-8").strip()
    if not token:
        raise PatchvoteError(f"{path} is empty: put a token into it.")
    return token
