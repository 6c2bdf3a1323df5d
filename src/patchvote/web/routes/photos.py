"""Routes of the photos of a workspace: added, listed, moved, shown, and exported with their answers.

Photos are decoded by the safe code, and kept under their digests, each once. What a client sent is never shown as it
is: pictures are JPEGs that are made here.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import io
import tempfile
import zipfile
from typing import IO, Annotated, Any

from fastapi import APIRouter, Query, Request
from PIL import Image
from starlette.responses import FileResponse, Response, StreamingResponse

from ...errors import PhotoError
from ...photos.decode import SHOWN, within
from ...photos.find import Photo
from ...photos.placing import folder_name, folder_names
from ...utils.terminal import csv_of
from ...voters.votes import NONE
from .. import shapes
from ..learning import different
from ..problems import Problem
from ..shapes import ERRORS, Answer, Upload, files_body, read_uploads
from ..workspaces import PhotoRecord, State, Workspace
from . import Context, Found, Here, photo_view, reply

router = APIRouter(tags=["photos"], responses=ERRORS)
_WORKSPACE = "/v1/workspaces/{workspace}"
_ONE = f"{_WORKSPACE}/photos"
_TEXT = {"type": "string"}
# A photo of this id never changes; but one that was removed is not to stay in the browser for long.
_PRIVATE = {"Cache-Control": "private, max-age=3600, immutable"}
_THUMBNAIL = 256  # longest side in pixels
_QUALITY = 85
_CHUNK = 1 << 20  # bytes of an archive that are read at once


@router.post(
    _ONE,
    response_model=shapes.Added,
    openapi_extra=files_body(**{"class": _TEXT, "class_name": _TEXT, "folders": {"type": "boolean"}}),
)
async def add(found: Found, request: Request, here: Here) -> Response:
    """Add photos to a class, or to the unlabelled ones."""
    files, fields = await read_uploads(request, here.settings.limits.files)
    return await here.decoding(_add, here, found, files, fields)


@router.get(_ONE, response_model=shapes.Listed)
def list_photos(
    found: Found,
    label: Annotated[str | None, Query(alias="class", max_length=20, description='Id of a class, or "none".')] = None,
    answered: bool | None = None,
    offset: Annotated[int, Query(ge=0, le=1_000_000)] = 0,
    limit: Annotated[int, Query(ge=1, le=1000)] = 200,
) -> Response:
    """List photos in the order in which they came."""
    photos = list(found.state.photos.values())
    if label is not None and label != "none":
        found.state.name_of(label)
    if label is not None:
        photos = [photo for photo in photos if photo.label == (None if label == "none" else label)]
    if answered is not None:
        photos = [photo for photo in photos if (photo.answer is not None) == answered]
    shown = [photo_view(found, photo) for photo in photos[offset : offset + limit]]
    return reply({"photos": shown, "total": len(photos), "offset": offset})


@router.patch(_ONE, response_model=shapes.Moved)
def move(found: Found, body: shapes.MoveIn, here: Here) -> Response:
    """Give photos a class, which makes them training photos, or make them unlabelled."""
    with found.change() as state:
        photos = state.some(body.photos)
        label = _destination(state, body.label, body.class_name, here)
        for photo in photos:
            photo.label = label
    return here.changed(found, photos=[photo_view(found, photo) for photo in photos])


@router.post(f"{_ONE}/delete", response_model=shapes.Deleted)
def delete(found: Found, body: shapes.PhotosIn, here: Here) -> Response:
    """Remove photos."""
    with found.change() as state:
        ids = [photo.id for photo in state.some(body.photos)]
        for photo in ids:
            del state.photos[photo]
    found.remove_files(ids)
    return here.changed(found, deleted=len(ids))


@router.get(f"{_ONE}/{{photo}}/thumbnail", response_class=FileResponse)
def thumbnail(found: Found, photo: str) -> Response:
    """Return a small JPEG of a photo."""
    path = found.folder / "thumbnails" / found.state.photo(photo).id
    return Response(path.read_bytes(), media_type="image/jpeg", headers=_PRIVATE)


@router.get(f"{_ONE}/{{photo}}/image", response_class=Response)
async def image(found: Found, photo: str, here: Here) -> Response:
    """Return a photo as an upright JPEG of at most 1,024 pixels."""
    record = found.state.photo(photo)
    content = await here.decoding(lambda: _jpeg(_shown(here, found.photo(record))))
    return Response(content, media_type="image/jpeg", headers=_PRIVATE)


@router.get(f"{_WORKSPACE}/answers.csv", response_class=Response)
def answers_csv(found: Found) -> Response:
    """Return the answers as CSV, without formulas for a spreadsheet."""
    state = found.state
    columns = [name for name in Answer.model_fields if name != "rejected"]  # of `patchvote predict`
    rows = []
    for photo in state.answered:
        answer = photo.answer or {}
        corrected = "" if photo.label is None else state.classes[photo.label]
        rows.append({name: answer.get(name) for name in columns} | {"corrected": corrected})
    content = "".join(f"{line}\r\n" for line in csv_of(rows, [*columns, "corrected"]))
    return Response(content, headers=_attachment("answers.csv"), media_type="text/csv; charset=utf-8")


@router.get(f"{_WORKSPACE}/answers.zip", response_class=StreamingResponse)
def answers_zip(found: Found) -> Response:
    """Return the answered photos in a folder per class."""
    archive = _zip_of_answers(found)
    chunks = iter(lambda: archive.read(_CHUNK), b"")
    return StreamingResponse(chunks, headers=_attachment("answers.zip"), media_type="application/zip")


def _attachment(name: str) -> dict[str, str]:
    return {"Content-Disposition": f'attachment; filename="{name}"'}


def _add(here: Context, workspace: Workspace, files: list[Upload], fields: dict[str, Any]) -> Response:
    """Add the photos of a request, and reply which were added, which were there, and which cannot be read."""
    by_folder = str(fields.get("folders", "")).lower() in ("true", "1", "on")
    label, name = fields.get("class"), fields.get("class_name")
    uploads: dict[str, Upload] = {}  # of each content the first, in the order in which they came
    for upload in files:
        uploads.setdefault(hashlib.sha256(upload.content).hexdigest(), upload)
    pictures: dict[str, tuple[tuple[int, int], bytes]] = {}  # size and small JPEG of each
    added, known, refused = [], [], []
    for digest, upload in uploads.items():
        try:
            picture = _shown(here, Photo(upload.name, upload.content))
        except PhotoError as error:
            refused.append({"name": upload.name, "reason": error.reason})
            continue
        size = picture.size
        picture.thumbnail((_THUMBNAIL, _THUMBNAIL), Image.Resampling.BICUBIC)
        pictures[digest] = size, _jpeg(picture)
    with workspace.change() as state:
        _check_room(state, {digest: uploads[digest] for digest in pictures}, here)
        for digest, ((width, height), small) in pictures.items():
            upload = uploads[digest]
            try:
                target = _destination(state, label, upload.folder if by_folder else name, here)
            except Problem as problem:
                if not by_folder:
                    raise
                refused.append({"name": upload.name, "reason": problem.message})  # its folder cannot be a class
                continue
            photo = state.photos.get(digest)
            workspace.put(digest, upload.content, small)  # also of a known photo, whose file may be damaged
            if photo is None:
                photo = PhotoRecord(digest, upload.name, target, width, height, len(upload.content))
                state.photos[digest] = photo
                added.append(photo)
            else:
                photo.label = photo.label or target
                known.append(photo)
    return here.changed(
        workspace,
        added=[photo_view(workspace, photo) for photo in added],
        known=[photo_view(workspace, photo) for photo in known],
        refused=refused,
    )


def _destination(state: State, label: Any, name: Any, here: Context) -> str | None:
    """Return the id of the class that is meant, by its id or by its name; None for unlabelled photos."""
    if name:
        known = (label for label, own in state.classes.items() if own == str(name).strip())
        return next(known, None) or state.make_class(str(name), here.settings.limits.classes)
    if label:
        state.name_of(str(label))
    return str(label) if label else None


def _check_room(state: State, uploads: dict[str, Upload], here: Context) -> None:
    """Refuse uploads, by their digests, that a workspace has no room for; photos that it has need none."""
    limits = here.settings.limits
    sizes = [len(upload.content) for digest, upload in uploads.items() if digest not in state.photos]
    if sizes and len(state.photos) + len(sizes) > limits.workspace_photos:
        raise Problem(413, "full", f"a workspace has at most {limits.workspace_photos:,} photos.")
    if sizes and sum(photo.bytes for photo in state.photos.values()) + sum(sizes) > limits.workspace_bytes:
        raise Problem(413, "full", f"a workspace has at most {limits.workspace_bytes / 1e9:.1f} GB of photos.")


def _shown(here: Context, photo: Photo) -> Image.Image:
    """Return an upright photo whose longest side has at most 1,024 pixels."""
    (picture,), _ = here.decode(photo, functools.partial(within, SHOWN))
    return Image.fromarray(picture)


def _jpeg(picture: Image.Image) -> bytes:
    data = io.BytesIO()
    picture.save(data, "JPEG", quality=_QUALITY)
    return data.getvalue()


def _zip_of_answers(workspace: Workspace) -> IO[bytes]:
    """Return an archive of the answered photos, in a folder per class, as a temporary file on the workspace's disk.

    A photo is in the folder of the class that a user gave it, and otherwise in that of its answer. Names of folders and
    photos are made safe on every system.
    """
    state = workspace.state
    photos = [
        (photo, str((photo.answer or {}).get("label", "")) if photo.label is None else state.classes[photo.label])
        for photo in state.answered
    ]
    photos = [(photo, label) for photo, label in photos if label]  # not those that could not be read
    # "None of these" is an answer, not a class, and keeps its name.
    folders = {NONE: NONE, **folder_names([label for _, label in photos if label != NONE], [NONE])}
    names = different([f"{folders[label]}/{folder_name(photo.name)}" for photo, label in photos])
    file = tempfile.TemporaryFile(dir=workspace.folder)  # noqa: SIM115 - the response closes it
    with zipfile.ZipFile(file, "w") as archive:
        for (photo, _), name in zip(photos, names, strict=True):
            with contextlib.suppress(FileNotFoundError):  # it was removed meanwhile
                archive.write(workspace.folder / "photos" / photo.id, name)
    file.seek(0)
    return file
