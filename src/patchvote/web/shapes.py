"""Shapes of requests and responses: what the OpenAPI document says, with examples, and what requests are checked by."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

Id = Annotated[str, Field(pattern=r"^[0-9a-f]{32}$", examples=["0123456789abcdef0123456789abcdef"])]
PhotoId = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$", examples=["5f" * 32])]
Ids = Annotated[list[PhotoId], Field(max_length=5000)]
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

    photos: Annotated[list[Annotated[str, Field(max_length=1000)]], Field(min_length=1, max_length=1000)]
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


class Answers(BaseModel):
    """Answers for photos, in their order."""

    model: str = Field(examples=["pets"])
    answers: list[Answer]


class Part(BaseModel):
    """A part of a photo: left, top, right and bottom in 0 to 1, and its votes in the order of the classes."""

    box: list[float] = Field(examples=[[0.0, 0.0, 0.5, 0.5]])
    votes: list[float] = Field(examples=[[1.5, -1.0]])


class Map(BaseModel):
    """The evidence for one class: rows of numbers."""

    label: str = Field(examples=["cat"])
    votes: list[list[float]] = Field(examples=[[[0.1, 0.2], [0.0, 0.1]]])
    contrast: list[list[float]] = Field(examples=[[[0.2, 0.3], [-0.1, 0.1]]])


class Match(BaseModel):
    """A part of the photo, and the part of a training photo that is most alike."""

    box: list[float]
    photo: str
    there: list[float]
    distance: float
    image: str | None


class Pull(BaseModel):
    """A training photo that pulled the photo towards the class, and its share of what all of them did."""

    photo: str
    label: str
    share: float
    image: str | None


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


class ModelsOut(BaseModel):
    """The models that the server was started with."""

    models: list[ModelOut]


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


class ClassOut(BaseModel):
    """A class of a workspace."""

    id: str = Field(examples=["c1"])
    name: str = Field(examples=["cat"])
    photos: int
    learned: int


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


class Refused(BaseModel):
    """A file that was not taken, and why."""

    name: str
    reason: str


class Changed(BaseModel):
    """The workspace after a change."""

    workspace: WorkspaceOut


class ClassChanged(Changed):
    """A class that was made or renamed."""

    label: ClassOut = Field(alias="class")


class Added(Changed):
    """Photos that were added."""

    added: list[PhotoOut]
    known: list[PhotoOut]
    refused: list[Refused]


class Moved(Changed):
    """Photos that were moved."""

    photos: list[PhotoOut]


class Deleted(Changed):
    """Number of photos that were removed."""

    deleted: int


class Listed(BaseModel):
    """Photos of a workspace."""

    photos: list[PhotoOut]
    total: int
    offset: int


class Asked(Changed):
    """Photos with their answers, and the number of unlabelled photos that have none yet."""

    answers: list[PhotoOut]
    remaining: int


class ErrorDetail(BaseModel):
    """What went wrong."""

    code: str = Field(examples=["not_found"])
    message: str = Field(examples=["there is no such workspace."])


class ErrorOut(BaseModel):
    """An error."""

    error: ErrorDetail


ERRORS: dict[int | str, dict[str, Any]] = {
    status: {"model": ErrorOut, "description": words}
    for status, words in {
        400: "The body is not what it claims to be.",
        401: "The token is missing or wrong.",
        403: "The request comes from a page of another origin.",
        404: "There is no such thing.",
        408: "The body took too long to arrive.",
        409: "It contradicts what is there.",
        413: "Something is beyond its limit.",
        415: "A body of another type.",
        421: "The Host is not the server's.",
        422: "A value is missing, out of range or not what it should be.",
        429: "The queue is full; see Retry-After.",
        503: "The answer took too long.",
    }.items()
}

_FILES = {"type": "array", "items": {"type": "string", "format": "binary"}, "minItems": 1}
_ENCODED = {
    "type": "array",
    "minItems": 1,
    "items": {
        "type": "object",
        "required": ["content"],
        "properties": {"name": {"type": "string"}, "content": {"type": "string", "format": "byte"}},
    },
}


def files_body(**fields: dict[str, Any]) -> dict[str, Any]:
    """Return the description of a body with photos, as multipart/form-data or as JSON, and further fields."""
    form = {"type": "object", "required": ["files"], "properties": {"files": _FILES, **fields}}
    plain = {"type": "object", "required": ["photos"], "properties": {"photos": _ENCODED, **fields}}
    example = {"photos": [{"name": "a.jpg", "content": "/9j/4AAQSkZJRg=="}]}
    content = {"multipart/form-data": {"schema": form}, "application/json": {"schema": plain, "example": example}}
    return {"requestBody": {"required": True, "content": content}}


MODEL_BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {
            "multipart/form-data": {
                "schema": {
                    "type": "object",
                    "required": ["file"],
                    "properties": {"file": {"type": "string", "format": "binary"}},
                }
            }
        },
    }
}
