"""Routes of the service itself: the page, its session, health and metrics."""

from __future__ import annotations

import hashlib
import mimetypes
from pathlib import Path
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response

from ...photos.formats import endings
from ...version import __version__
from ..context import Here, reply
from ..guard import COOKIE, same, session_of
from ..problems import Problem, missing
from ..settings import Settings
from ..shapes import ERRORS, SessionIn

router = APIRouter(tags=["service"])
_YEAR = 365 * 86_400


@router.get("/healthz", summary="Whether the server answers")
def healthz() -> Response:
    """Say that the server answers, and its version."""
    return reply({"status": "ok", "version": __version__})


@router.get("/metrics", summary="Figures for Prometheus", responses=ERRORS)
def metrics(here: Here) -> Response:
    """Return the figures of the server, as text."""
    return Response(here.metrics.text(), media_type="text/plain; version=0.0.4")


@router.get("/v1/settings", summary="What the page has to know", responses=ERRORS)
def settings(here: Here) -> Response:
    """Return limits, formats, and whether a token is needed."""
    limits = here.settings.limits
    return reply(
        {
            "version": __version__,
            "token": bool(here.settings.token),
            "endings": list(endings()),
            "body_bytes": limits.body_bytes,
            "model_bytes": limits.model_bytes,
            "files": limits.files,
            "workspace_photos": limits.workspace_photos,
            "models": [served.name for served in here.models.own],
        }
    )


@router.post("/v1/session", status_code=204, summary="Exchange the token for a cookie", responses=ERRORS)
def begin_session(here: Here, body: SessionIn, request: Request) -> Response:
    """Set the cookie by which the page is known, if the token is right."""
    token = here.settings.token
    if not token:
        return Response(status_code=204)
    if not same(body.token, token):
        raise Problem(401, "token", "the token is wrong.")
    response = Response(status_code=204)
    secure = request.url.scheme == "https"
    response.set_cookie(COOKIE, session_of(token), _YEAR, path="/", secure=secure, httponly=True, samesite="strict")
    return response


@router.delete("/v1/session", status_code=204, summary="Forget the cookie", responses=ERRORS)
def end_session() -> Response:
    """Remove the cookie."""
    response = Response(status_code=204)
    response.delete_cookie(COOKIE, path="/", httponly=True, samesite="strict")
    return response


class Page:
    """The files of the page, read once, each with an ETag of its content.

    Parameters
    ----------
    folder : Path
        Folder of the files; its `index.html` is the page.
    """

    def __init__(self, folder: Path) -> None:
        self._files: dict[str, tuple[bytes, str, str]] = {}
        for path in sorted(folder.rglob("*")) if folder.is_dir() else []:
            if path.is_file() and not path.name.startswith("."):
                content = path.read_bytes()
                kind = mimetypes.guess_type(path.name)[0] or "application/octet-stream"
                kind += "; charset=utf-8" if kind.startswith("text/") or kind.endswith("javascript") else ""
                etag = f'"{hashlib.sha256(content).hexdigest()[:32]}"'
                self._files[path.relative_to(folder).as_posix()] = content, kind, etag

    def response(self, name: str, request: Request) -> Response:
        """Return a file, or 304 where the client has it.

        Raises
        ------
        Problem
            There is no such file.
        """
        if name not in self._files:
            raise missing("page")
        content, kind, etag = self._files[name]
        headers = {"ETag": etag, "Cache-Control": "no-cache"}
        known = [tag.strip().removeprefix("W/") for tag in request.headers.get("if-none-match", "").split(",")]
        if etag in known or "*" in known:
            return Response(status_code=304, headers=headers)
        return Response(content, headers=headers, media_type=kind)


def page_routes(settings: Settings) -> APIRouter:
    """Return the routes of the page and its files."""
    pages, page = APIRouter(include_in_schema=False), Page(settings.static)

    @pages.get("/")
    def index(request: Request) -> Any:
        return page.response("index.html", request)

    @pages.get("/static/{name:path}")
    def static(name: str, request: Request) -> Any:
        return page.response(name, request)

    return pages
