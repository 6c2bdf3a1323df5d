"""Routes that ask a model about photos that are not kept, and those of models."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import FileResponse, Response

from ...photos.find import Photo
from ..context import Here, reply
from ..explaining import MAX_MAPS, MAX_SIDE, Wanted, explained
from ..opening import open_model
from ..served import answered, asked, named
from ..shapes import ERRORS, MODEL_BODY, Answers, Explained, ModelOut, ModelsOut, WorkspaceOut, files_body
from ..uploads import read_uploads
from ..views import answer_view, model_view, workspace_view

router = APIRouter(tags=["ask"], responses=ERRORS)

ModelName = Annotated[str | None, Query(max_length=300, description="Name of a model, or id of a workspace.")]
Label = Annotated[str | None, Query(max_length=1000, description="Class to find matching training parts for.")]
Labels = Annotated[list[str] | None, Query(max_length=MAX_MAPS, description="Classes to return maps of.")]
Side = Annotated[int, Query(ge=1, le=MAX_SIDE, description="Cells of the maps.")]


@router.post("/v1/predict", response_model=Answers, openapi_extra=files_body(), summary="Name photos")
async def predict(
    request: Request,
    here: Here,
    model: ModelName = None,
    threshold: Annotated[float | None, Query(ge=0, le=0.999)] = None,
) -> Response:
    """Name photos, in their order; nothing is kept."""
    served = await asked(here.models, model)
    sent = await read_uploads(request, here.settings.limits.files)
    photos = [Photo(upload.name, upload.content) for upload in sent.files]
    answers = await answered(served, photos, here.settings.limits.answer_seconds, threshold)
    return reply({"model": served.name, "answers": [answer_view(answer) for answer in answers]})


@router.post("/v1/explain", response_model=Explained, openapi_extra=files_body(), summary="Explain a photo")
async def explain(
    request: Request,
    here: Here,
    model: ModelName = None,
    label: Label = None,
    labels: Labels = None,
    width: Side = 64,
    height: Side = 64,
) -> Response:
    """Return where in one photo the votes for each class come from; nothing is kept."""
    served = await asked(here.models, model)
    sent = await read_uploads(request, 1)
    photo = Photo(sent.files[0].name, sent.files[0].content)
    wanted = Wanted(label or None, tuple(labels or ()), width, height)
    value = await explained(served, photo, wanted, here.settings.limits.answer_seconds)
    return await run_in_threadpool(reply, value)


@router.get("/v1/models", response_model=ModelsOut, tags=["models"], summary="Models of the server")
def models(here: Here) -> Response:
    """List the models that the server was started with; those of workspaces are not listed."""
    return reply({"models": [model_view(one.name, one.model, one.size) for one in here.models.own]})


@router.post(
    "/v1/models",
    response_model=WorkspaceOut,
    status_code=201,
    tags=["models"],
    openapi_extra=MODEL_BODY,
    summary="Upload a model",
)
async def upload(request: Request, here: Here) -> Response:
    """Make a workspace that holds a model file."""
    sent = await read_uploads(request, 1, "file")

    def make() -> Response:
        workspace = here.workspaces.create()
        try:
            open_model(here, workspace, sent.files[0].content)
        except BaseException:
            here.workspaces.remove(workspace)
            raise
        return reply(workspace_view(here, workspace), 201)

    return await run_in_threadpool(make)


@router.get("/v1/models/{name}", response_model=ModelOut, tags=["models"], summary="What a model is")
def model(name: str, here: Here) -> Response:
    """Return what a model is, and how accurate."""
    served = named(here.models, name)
    return reply(model_view(served.name, served.model, served.size))


@router.get("/v1/models/{name}/file", tags=["models"], response_class=FileResponse, summary="Download a model")
def download(name: str, here: Here) -> Response:
    """Return the file of a model."""
    served = named(here.models, name)
    title = "model" if served.workspace is not None else served.name
    return FileResponse(served.path, media_type="application/octet-stream", filename=f"{title}.patchvote")
