"""Routes of the photos of a workspace: added, listed, moved, shown, and exported with their answers.

Photos are decoded by the safe code, and kept under their digests, each once. What a client sent is never shown as it
is: pictures are JPEGs that are made here.
"""

from __future__ import annotations

import hashlib
import io
import zipfile
from collections.abc import Iterator
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from PIL import Image
from starlette.concurrency import run_in_threadpool
from starlette.responses import FileResponse, Response, StreamingResponse

from ...errors import PhotoError
from ...photos.decode import SHOWN, load_image
from ...photos.find import Photo
from ...photos.folder_names import folder_name, folder_names
from ...utils.terminal import csv_of
from ...voters.votes import NONE
from ..context import Context, Here, photo_view, reply
from ..learning import different
from ..problems import Problem, missing
from ..shapes import (
    ERRORS,
    Added,
    Answer,
    Deleted,
    Listed,
    Moved,
    MoveIn,
    PhotosIn,
    Sent,
    Upload,
    files_body,
    read_uploads,
)
from ..workspaces import PhotoRecord, State, Workspace

router = APIRouter(tags=["photos"], responses=ERRORS)
_WORKSPACE = "/v1/workspaces/{workspace}"
_ONE = f"{_WORKSPACE}/photos"
_TEXT = {"type": "string"}
# A photo of this id never changes; but one that was removed is not to stay in the browser for long.
_PRIVATE = {"Cache-Control": "private, max-age=3600, immutable"}
_THUMBNAIL = 256  # longest side in pixels
_QUALITY = 85
_CHUNK = 1 << 20  # bytes that are read of a photo at once
_DATE = (1980, 1, 1, 0, 0, 0)  # of files in an archive: the oldest that the format knows
_COLUMNS = [
    *(name for name in Answer.model_fields if name != "rejected"),
    "corrected",
]  # of `patchvote predict`, and one more


@router.post(
    _ONE,
    response_model=Added,
    openapi_extra=files_body(**{"class": _TEXT, "class_name": _TEXT, "folders": {"type": "boolean"}}),
    summary="Add photos",
)
async def add(workspace: str, request: Request, here: Here) -> Response:
    """Add photos to a class, or to the unlabelled ones."""
    found = await run_in_threadpool(here.workspaces.get, workspace)
    sent = await read_uploads(request, here.settings.limits.files)
    added = await here.decoding(_added, here, found, sent)
    return await run_in_threadpool(lambda: reply(added | {"workspace": here.state(found)}))


@router.get(_ONE, response_model=Listed, summary="List photos")
def list_photos(
    workspace: str,
    here: Here,
    label: Annotated[str | None, Query(alias="class", max_length=20, description='Id of a class, or "none".')] = None,
    answered: bool | None = None,
    offset: Annotated[int, Query(ge=0, le=1_000_000)] = 0,
    limit: Annotated[int, Query(ge=1, le=1000)] = 200,
) -> Response:
    """List photos in the order in which they came."""
    found = here.workspaces.get(workspace)
    photos = list(found.state.photos.values())
    if label is not None and label != "none":
        found.state.name_of(label)
    if label is not None:
        photos = [photo for photo in photos if photo.label == (None if label == "none" else label)]
    if answered is not None:
        photos = [photo for photo in photos if (photo.answer is not None) == answered]
    shown = [photo_view(found, photo) for photo in photos[offset : offset + limit]]
    return reply({"photos": shown, "total": len(photos), "offset": offset})


@router.patch(_ONE, response_model=Moved, summary="Move photos, or correct answers")
def move(workspace: str, body: MoveIn, here: Here) -> Response:
    """Give photos a class, which makes them training photos, or make them unlabelled."""
    found = here.workspaces.get(workspace)
    with found.change() as state:
        photos = state.some(body.photos)
        label = _destination(state, body.label, body.class_name, here.settings.limits.classes)
        for photo in photos:
            photo.label = label
    return reply({"photos": [photo_view(found, photo) for photo in photos], "workspace": here.state(found)})


@router.post(f"{_ONE}/delete", response_model=Deleted, summary="Remove photos")
def delete(workspace: str, body: PhotosIn, here: Here) -> Response:
    """Remove photos."""
    found = here.workspaces.get(workspace)
    with found.change() as state:
        ids = [photo.id for photo in state.some(body.photos)]
        for photo in ids:
            del state.photos[photo]
    found.remove_files(ids)
    return reply({"deleted": len(ids), "workspace": here.state(found)})


@router.get(f"{_ONE}/{{photo}}/thumbnail", response_class=FileResponse, summary="Small picture of a photo")
def thumbnail(workspace: str, photo: str, here: Here) -> Response:
    """Return a small JPEG of a photo."""
    found = here.workspaces.get(workspace)
    path = found.folder / "thumbnails" / found.state.photo(photo).id
    if not path.is_file():
        raise missing("photo")
    return Response(path.read_bytes(), media_type="image/jpeg", headers=_PRIVATE)


@router.get(f"{_ONE}/{{photo}}/image", response_class=Response, summary="Picture of a photo")
async def image(workspace: str, photo: str, here: Here) -> Response:
    """Return a photo as an upright JPEG of at most 1,024 pixels."""
    found = await run_in_threadpool(here.workspaces.get, workspace)
    record = found.state.photo(photo)
    content = await here.decoding(lambda: _jpeg(_shown(found.photo(record))))
    return Response(content, media_type="image/jpeg", headers=_PRIVATE)


@router.get(f"{_WORKSPACE}/answers.csv", response_class=Response, summary="Answers as a table")
def answers_csv(workspace: str, here: Here) -> Response:
    """Return the answers as CSV, without formulas for a spreadsheet."""
    state = here.workspaces.get(workspace).state
    rows = [
        {**(photo.answer or {}), "corrected": "" if photo.label is None else state.classes[photo.label]}
        for photo in state.answered
    ]
    lines = csv_of([{name: row.get(name) for name in _COLUMNS} for row in rows], _COLUMNS)
    headers = {"Content-Disposition": 'attachment; filename="answers.csv"'}
    return Response("".join(f"{line}\r\n" for line in lines), headers=headers, media_type="text/csv; charset=utf-8")


@router.get(f"{_WORKSPACE}/answers.zip", response_class=StreamingResponse, summary="A folder per class")
def answers_zip(workspace: str, here: Here) -> Response:
    """Return the answered photos in a folder per class."""
    headers = {"Content-Disposition": 'attachment; filename="answers.zip"'}
    content = zip_of_answers(here.workspaces.get(workspace))
    return StreamingResponse(content, headers=headers, media_type="application/zip")


def _added(here: Context, workspace: Workspace, sent: Sent) -> dict[str, Any]:
    """Add the photos of a request, and return which were added, which were there, and which cannot be read."""
    most = here.settings.limits.classes
    by_folder = str(sent.fields.get("folders", "")).lower() in ("true", "1", "on")
    label, name = sent.fields.get("class"), sent.fields.get("class_name")
    uploads = {hashlib.sha256(upload.content).hexdigest(): upload for upload in reversed(sent.files)}
    uploads = dict(reversed(uploads.items()))  # of each content the first, in the order in which they came
    with workspace.lock:  # refuse what is wrong before anything is written
        _destination(State.from_plain(workspace.state.to_plain()), label, name, most)
        _check_room(workspace.state, uploads, here)
    pictures, refused = {}, []
    for digest, upload in uploads.items():
        try:
            picture = _shown(Photo(upload.name, upload.content))
        except PhotoError as error:
            refused.append({"name": upload.name, "reason": error.reason})
            continue
        size = picture.size
        picture.thumbnail((_THUMBNAIL, _THUMBNAIL), Image.Resampling.BICUBIC)
        pictures[digest] = size, _jpeg(picture)
    added, known = [], []
    with workspace.change() as state:
        for digest, ((width, height), small) in pictures.items():
            upload = uploads[digest]
            try:
                target = _destination(state, label, upload.folder if by_folder else name, most)
            except Problem as problem:
                if not by_folder:
                    raise
                refused.append({"name": upload.name, "reason": problem.message})  # its folder cannot be a class
                continue
            photo = state.photos.get(digest)
            if photo is None:
                _check_room(state, {digest: upload}, here)  # others may have come meanwhile
                photo = PhotoRecord(digest, upload.name, target, width, height, len(upload.content))
                state.photos[digest] = photo
                workspace.put(digest, upload.content, small)
                added.append(photo)
            else:
                photo.label = photo.label or target
                known.append(photo)
    return {
        "added": [photo_view(workspace, photo) for photo in added],
        "known": [photo_view(workspace, photo) for photo in known],
        "refused": refused,
    }


def _destination(state: State, label: Any, name: Any, most: int) -> str | None:
    """Return the id of the class that is meant, by its id or by its name; None for unlabelled photos."""
    if label and name:
        raise Problem(422, "invalid", "give the class by its id or by its name, not by both.")
    if name:
        return state.class_named(str(name), most)
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


def _shown(photo: Photo) -> Image.Image:
    """Return an upright photo whose longest side has at most 1,024 pixels."""
    picture = load_image(photo, SHOWN)
    picture.thumbnail((SHOWN, SHOWN), Image.Resampling.BICUBIC)
    return picture


def _jpeg(picture: Image.Image) -> bytes:
    data = io.BytesIO()
    picture.save(data, "JPEG", quality=_QUALITY)
    return data.getvalue()


def zip_of_answers(workspace: Workspace) -> Iterator[bytes]:
    """Yield an archive of the answered photos, in a folder per class, in bounded memory.

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
    names = different(f"{folders[label]}/{folder_name(photo.name)}" for photo, label in photos)
    stream = _Stream()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_STORED) as archive:
        for (photo, _), name in zip(photos, names, strict=True):
            path = workspace.folder / "photos" / photo.id
            if not path.is_file():
                continue
            entry = zipfile.ZipInfo(name, _DATE)
            entry.external_attr = 0o644 << 16
            with path.open("rb") as file, archive.open(entry, "w") as target:
                while chunk := file.read(_CHUNK):
                    target.write(chunk)
                    yield stream.taken()
    yield stream.taken()


class _Stream(io.RawIOBase):
    """Collects what an archive writes until it is taken; it cannot seek, so nothing is written twice."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self._parts.append(bytes(data))
        return len(data)

    def taken(self) -> bytes:
        """Return what was written since the last call."""
        data = b"".join(self._parts)
        self._parts.clear()
        return data
