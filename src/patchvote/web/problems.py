"""Problems: errors as clients see them. They say what to try, and never show a path, a traceback or a content."""

from __future__ import annotations

import errno
import json
import re
import secrets
import tempfile
import traceback
from collections.abc import Iterable
from pathlib import Path

from fastapi import FastAPI, HTTPException, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException as StarletteHTTPException
from starlette.responses import Response

from ..errors import PatchvoteError
from ..utils.terminal import say
from .settings import Settings

_CODES = {400: "bad_request", 404: "not_found", 405: "method", 413: "too_large", 415: "media_type", 422: "invalid"}
_UNREAD = (408, 413)  # statuses after which the rest of a body is not read
_LONGEST = 600  # characters of a message
# What follows the name of a folder in a path, up to a character that ends a path in our messages.
_REST = r"""(?:[/\\][^\s'",;:)]*)*"""


class Problem(HTTPException):
    """An error with its status, the code that a client receives (docs/serve.md), and what to try."""

    def __init__(self, status: int, code: str, message: str, retry_after: int | None = None) -> None:
        headers = {} if retry_after is None else {"Retry-After": str(retry_after)}
        if status == 401:
            headers["WWW-Authenticate"] = "Bearer"
        if status in _UNREAD:
            headers["Connection"] = "close"
        super().__init__(status, message, headers)
        self.code, self.message, self.retry_after = code, message, retry_after

    def response(self) -> Response:
        """Return the response that reports it."""
        body = json.dumps({"error": {"code": self.code, "message": self.message}})
        return Response(body, self.status_code, self.headers, media_type="application/json")


def missing(what: str) -> Problem:
    """Return the problem that something does not exist."""
    return Problem(404, "not_found", f"there is no such {what}.")


def private_folders(settings: Settings) -> list[Path]:
    """Return the folders whose paths tell something about the machine."""
    typed = [*settings.models, *([] if settings.network is None else [Path(settings.network)])]
    others = [Path(__file__).parent.parent, Path.home(), Path(tempfile.gettempdir()), Path.cwd()]
    return [settings.data, *(path.absolute().parent for path in typed), *others]


def without_paths(message: str, folders: Iterable[Path]) -> str:
    """Return a message in which every path into one of the folders reads "the file"."""
    spellings = {str(spelling) for folder in folders for spelling in (folder, folder.absolute(), folder.resolve())}
    for folder in sorted(spellings - {"/", "."}, key=len, reverse=True):
        message = re.sub(re.escape(folder) + _REST, "the file", message)
    return message if len(message) <= _LONGEST else message[:_LONGEST] + "…"


def add_handlers(app: FastAPI, folders: list[Path]) -> None:
    """Turn every error of a request into a response, without the paths of these folders."""

    async def handle(request: Request, error: Exception) -> Response:
        problem = problem_of(error)
        problem.message = without_paths(problem.message, folders)
        return problem.response()

    # OSError besides Exception: errors that only the handler of Exception takes are raised again after the response.
    for kind in (PatchvoteError, RequestValidationError, StarletteHTTPException, OSError, Exception):
        app.add_exception_handler(kind, handle)


def problem_of(error: Exception) -> Problem:
    """Return an error as clients see it."""
    match error:
        case Problem():
            return error
        case PatchvoteError():
            return Problem(422, "invalid", str(error))
        case RequestValidationError():
            first = error.errors()[0]
            where = " ".join(map(str, first["loc"]))[:100]
            return Problem(422, "invalid", f"{where}: {first['msg']}")
        case StarletteHTTPException():
            unknown = error.status_code == 404  # no route: the framework says "Not Found" and nothing else
            message = "there is nothing at this address. GET /openapi.json lists all." if unknown else str(error.detail)
            problem = Problem(error.status_code, _CODES.get(error.status_code, "bad_request"), message)
            problem.headers = {**(problem.headers or {}), **(error.headers or {})}
            return problem
        case OSError(errno=errno.ENOSPC | errno.EDQUOT):
            return Problem(413, "full", "there is no room on the disk of the server.")
    return unforeseen(error)


def unforeseen(error: BaseException) -> Problem:
    """Log a fault of ours under a number, without its message, and return the problem that names the number."""
    number = secrets.token_hex(4)
    frames = traceback.extract_tb(error.__traceback__)
    where = " < ".join(f"{Path(frame.filename).name}:{frame.lineno} {frame.name}" for frame in reversed(frames[-8:]))
    say(f"fault {number}: {type(error).__name__} at {where}")  # its message may hold what a client sent
    return Problem(500, "internal", f"a fault of the server; its log calls it {number}.")
