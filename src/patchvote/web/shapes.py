"""Shapes of requests and responses: what the OpenAPI document says, what requests are checked by, and files in bodies.

The name of a file is text that the client chose: it is shown, and never part of a path.
"""

from __future__ import annotations

import dataclasses
from http import HTTPStatus
from typing import Annotated, Any, Literal

from fastapi import Request
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import UploadFile
from starlette.exceptions import HTTPException
from typing_extensions import TypedDict  # pydantic needs it before Python 3.12

from ..utils.terminal import printable
from .problems import Problem

Id = Annotated[str, Field(pattern=r"^[0-9a-f]{32}$", examples=["0123456789abcdef0123456789abcdef"])]
PhotoId = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$", examples=["5f" * 32])]
Ids = Annotated[list[PhotoId], Field(max_length=5000)]
_MAX_NAME = 200  # characters of a name that are kept
_FIELDS = 20  # fields of a form besides the files
_FIELD_BYTES = 100_000  # size of one of them
# Commas and brackets in JSON, and so values: a photo needs four. Each of them can take sixty bytes of memory.
_MAX_MARKS = 100_000
_ANSWER: dict[str, Any] = {
    "file": "a.jpg",
    "label": "cat",
    "probability": 0.9312,
    "likeliest": "cat",
    "likeliest_probability": 0.9312,
    "runner_up": "dog",
    "runner_up_probability": 0.0521,
    "error": "",
    "familiarity": 0.6123,
    "rejected": False,
}


class _Request(BaseModel):
    model_config = ConfigDict(extra="forbid", populate_by_name=True)


class SessionIn(_Request):
    """The token, which the page exchanges for a cookie."""

    token: str = Field(max_length=1000)


class WorkspaceIn(_Request):
    """A new workspace."""

    title: str = Field("", max_length=200, examples=["Pets"])
    model: str | None = Field(None, max_length=300, description="Model of the server to open in it.")


class ClassIn(_Request):
    """The name of a class."""

    name: str = Field(max_length=1000, examples=["cat"])


class MoveIn(_Request):
    """Photos, and the class that they are to have."""

    photos: Ids
    label: str | None = Field(None, alias="class", max_length=20, description="Id of a class; null: unlabelled.")
    class_name: str | None = Field(None, max_length=1000, description="Name of a class, made if it is missing.")


class PhotosIn(_Request):
    """Photos."""

    photos: Ids


class ForgetIn(_Request):
    """Training photos of an opened model: names, patterns of names, digests, or classes followed by a slash."""

    # At most a hundred patterns: each is compared with the names of all photos.
    photos: Annotated[list[Annotated[str, Field(max_length=1000)]], Field(min_length=1, max_length=100)]
    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"photos": ["cat/1.jpg", "dog/2019*"]}]})


class AskIn(_Request):
    """Photos of a workspace to be asked about."""

    photos: Annotated[list[PhotoId], Field(max_length=100)] | None = None


class LearnIn(_Request):
    """How to learn."""

    voter: str = Field("auto", max_length=100, examples=["auto", "nbnn"])
    budget: float = Field(60.0, ge=0, le=600)
    suggest: int = Field(12, ge=0, le=200)


class Answer(BaseModel):
    """The answer for one photo; a rejected one has the label "none of these", which has no probability."""

    file: str
    label: str
    probability: float | None
    likeliest: str
    likeliest_probability: float | None
    runner_up: str
    runner_up_probability: float | None
    error: str
    familiarity: float | None
    rejected: bool
    model_config = ConfigDict(json_schema_extra={"examples": [_ANSWER]})


# A box is left, top, right and bottom in 0 to 1; votes of a part are in the order of the classes, those of a map are
# rows of numbers. A match is a part and the most similar part of a training photo; a pull is a training photo that
# pulled the photo towards the class, and its share of what all of them did.
Part = TypedDict("Part", {"box": list[float], "votes": list[float]})
Map = TypedDict("Map", {"label": str, "votes": list[list[float]], "contrast": list[list[float]]})
Match = TypedDict(
    "Match", {"box": list[float], "photo": str, "there": list[float], "distance": float, "image": str | None}
)
Pull = TypedDict("Pull", {"photo": str, "label": str, "share": float, "image": str | None})


class Explained(BaseModel):
    """The evidence of one photo."""

    model: str
    answer: Answer
    classes: list[str]
    probability: list[float]
    decision: list[float]
    parts: list[Part]
    width: int
    height: int
    maps: list[Map]
    matched: str
    matches: list[Match]
    pulls: list[Pull]


class ModelOut(BaseModel):
    """What a model is, and how accurate."""

    name: str
    kind: str
    classes: list[str]
    photos: dict[str, int]
    made: str
    network: str
    mode: str
    bytes: int
    remembers: bool
    accuracy: str
    held_out: dict[str, Any] | None
    card: str
    opened: bool | None = None
    stale: bool | None = None


class JobOut(BaseModel):
    """The state of a job."""

    id: Id
    workspace: Id
    status: Literal["waiting", "running", "done", "failed", "cancelled"]
    mode: Literal["fit", "add"]
    stage: str = Field(examples=["extract"])
    done: int
    total: int
    position: int
    seconds: float
    message: str


ClassOut = TypedDict("ClassOut", {"id": str, "name": str, "photos": int, "learned": int})


class WorkspaceOut(BaseModel):
    """The state of a workspace."""

    id: Id
    title: str
    version: int
    classes: list[ClassOut]
    photos: int
    unlabelled: int
    answered: int
    bytes: int
    model: ModelOut | None
    job: JobOut | None
    has_report: bool


class PhotoAnswer(Answer):
    """The answer for a photo of a workspace, and whether the present model gave it."""

    current: bool


class PhotoOut(BaseModel):
    """A photo of a workspace."""

    id: PhotoId
    name: str
    label: str | None = Field(alias="class")
    width: int
    height: int
    bytes: int
    thumbnail: str
    image: str
    answer: PhotoAnswer | None


Answers = TypedDict("Answers", {"model": str, "answers": list[Answer]})
ModelsOut = TypedDict("ModelsOut", {"models": list[ModelOut]})
Listed = TypedDict("Listed", {"photos": list[PhotoOut], "total": int, "offset": int})

# After a change, the reply has the new state of the workspace.
Changed = TypedDict("Changed", {"workspace": WorkspaceOut})
ClassChanged = TypedDict("ClassChanged", {"workspace": WorkspaceOut, "class": ClassOut})
Refused = TypedDict("Refused", {"name": str, "reason": str})
Added = TypedDict(
    "Added", {"workspace": WorkspaceOut, "added": list[PhotoOut], "known": list[PhotoOut], "refused": list[Refused]}
)
Moved = TypedDict("Moved", {"workspace": WorkspaceOut, "photos": list[PhotoOut]})
Deleted = TypedDict("Deleted", {"workspace": WorkspaceOut, "deleted": int})
Asked = TypedDict("Asked", {"workspace": WorkspaceOut, "answers": list[PhotoOut], "remaining": int})

ErrorDetail = TypedDict("ErrorDetail", {"code": str, "message": str})
ErrorOut = TypedDict("ErrorOut", {"error": ErrorDetail})
ERRORS: dict[int | str, dict[str, Any]] = {  # what each means is in docs/serve.md
    status: {"model": ErrorOut, "description": HTTPStatus(status).phrase}
    for status in (400, 401, 403, 404, 408, 409, 413, 415, 421, 422, 429, 503)
}


def _body(**contents: Any) -> dict[str, Any]:
    return {"requestBody": {"required": True, "content": contents}}


def _object(required: str, value: Any, **more: Any) -> dict[str, Any]:
    return {"type": "object", "required": [required], "properties": {required: value, **more}}


_BINARY = {"type": "string", "format": "binary"}
_ENCODED = _object("content", {"type": "string", "format": "byte"}, name={"type": "string"})


def files_body(**fields: dict[str, Any]) -> dict[str, Any]:
    """Return the description of a body with photos, as multipart/form-data or as JSON, and further fields."""
    files, photos = ({"type": "array", "items": items, "minItems": 1} for items in (_BINARY, _ENCODED))
    example = {"photos": [{"name": "a.jpg", "content": "/9j/4AAQSkZJRg=="}]}
    return _body(
        **{
            "multipart/form-data": {"schema": _object("files", files, **fields)},
            "application/json": {"schema": _object("photos", photos, **fields), "example": example},
        }
    )


MODEL_BODY = _body(**{"multipart/form-data": {"schema": _object("file", _BINARY)}})


@dataclasses.dataclass(frozen=True)
class Upload:
    """One file: the name to show, the folder that held it on the client's side, and its content."""

    name: str
    folder: str
    content: bytes = dataclasses.field(repr=False)


class _Encoded(BaseModel):
    name: Any = None
    content: Annotated[bytes, Field(strict=True)]
    model_config = ConfigDict(val_json_bytes="base64")


class _Photos(BaseModel):
    photos: list[_Encoded]
    model_config = ConfigDict(extra="allow")


async def read_uploads(request: Request, most: int, part: str = "files") -> tuple[list[Upload], dict[str, Any]]:
    """Read the files of a request, `most` at most, from a form or from base64 in JSON, and its other fields."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind == "multipart/form-data":
        files, fields = await _from_form(request, most, part)
    elif kind == "application/json" and part == "files":
        files, fields = await run_in_threadpool(_from_json, await request.body(), most)
    else:
        raise Problem(415, "media_type", "send multipart/form-data, or JSON with the photos as base64.")
    if not files:
        raise Problem(422, "invalid", f"there is no file in the request. Send at least one part named {part!r}.")
    if len(files) > most:
        raise _too_many(most)
    return files, fields


def shown_name(name: object) -> tuple[str, str]:
    """Return the last part of a client's file name as text to show, and the folder before it."""
    text = name if isinstance(name, str) else ""
    parts = ["", "", *(part for part in text.replace("\\", "/").split("/") if part not in ("", ".", ".."))]
    return printable(parts[-1])[-_MAX_NAME:] or "photo", printable(parts[-2])[:_MAX_NAME]


async def _from_form(request: Request, most: int, part: str) -> tuple[list[Upload], dict[str, Any]]:
    try:
        # One more than are allowed, so that too many are told apart from other faults.
        async with request.form(max_files=most + 1, max_fields=_FIELDS, max_part_size=_FIELD_BYTES) as form:
            values = form.multi_items()
            files = [value for name, value in values if isinstance(value, UploadFile) and name == part]
            fields = {name: value for name, value in values if not isinstance(value, UploadFile)}
            return [Upload(*shown_name(file.filename), await file.read()) for file in files], fields
    except Problem:  # of the guard, while the body is read
        raise
    except HTTPException as error:
        if "Too many files" in error.detail:
            raise _too_many(most) from None
        raise Problem(400, "bad_request", "the body is not valid multipart/form-data.") from None


def _from_json(body: bytes, most: int) -> tuple[list[Upload], dict[str, Any]]:
    if sum(body.count(mark) for mark in (b",", b"[", b"{")) > _MAX_MARKS:
        raise _too_many(most)
    try:
        sent = _Photos.model_validate_json(body)
    except ValidationError as error:
        raise RequestValidationError(error.errors(include_url=False, include_input=False)) from None
    return [Upload(*shown_name(one.name), one.content) for one in sent.photos], sent.model_extra or {}


def _too_many(most: int) -> Problem:
    return Problem(413, "too_many_files", f"at most {most:,} files are taken in one request. Send them in several.")
