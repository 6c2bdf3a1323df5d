"""Routes of the service itself: the page, its session, health and metrics."""

from __future__ import annotations

from pathlib import Path

from fastapi import APIRouter, Request
from starlette.responses import Response
from starlette.staticfiles import StaticFiles

from ...photos.formats import endings
from ...version import __version__
from ..context import Here, reply
from ..guard import COOKIE, same, session_of
from ..problems import Problem
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
            "models": list(here.models.own),
        }
    )


@router.post("/v1/session", status_code=204, summary="Exchange the token for a cookie", responses=ERRORS)
def begin_session(here: Here, body: SessionIn, request: Request) -> Response:
    """Set the cookie by which the page is known, if the token is right."""
    token = here.settings.token
    if token and not same(body.token, token):
        raise Problem(401, "token", "the token is wrong.")
    response = Response(status_code=204)
    if token:
        secure = request.url.scheme == "https"
        response.set_cookie(COOKIE, session_of(token), _YEAR, secure=secure, httponly=True, samesite="strict")
    return response


@router.delete("/v1/session", status_code=204, summary="Forget the cookie", responses=ERRORS)
def end_session() -> Response:
    """Remove the cookie."""
    response = Response(status_code=204)
    response.delete_cookie(COOKIE, httponly=True, samesite="strict")
    return response


def page_routes(folder: Path) -> APIRouter:
    """Return the routes of the page and its files, which browsers ask for again with their ETags."""
    pages, files = APIRouter(include_in_schema=False), StaticFiles(directory=folder)

    @pages.get("/")
    @pages.get("/static/{name:path}")
    async def page(request: Request) -> Response:
        response = await files.get_response(request.path_params.get("name", "index.html"), request.scope)
        response.headers["Cache-Control"] = "no-cache"
        return response

    return pages
