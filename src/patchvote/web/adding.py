"""Add uploaded photos to a workspace: decoded by the safe code, kept under their digests, each once."""

from __future__ import annotations

import hashlib
from typing import Any

from ..errors import PhotoError
from ..photos.find import Photo
from .context import Context
from .pictures import thumbnail
from .problems import Problem
from .records import PhotoRecord, State
from .uploads import Sent, Upload
from .views import photo_view
from .workspaces import Workspace


def destination(state: State, label: Any, name: Any, most: int) -> str | None:
    """Return the id of the class that is meant, by its id or by its name; None for unlabelled photos.

    Raises
    ------
    Problem
        There is no such class, or both were given.
    """
    if label and name:
        raise Problem(422, "invalid", "give the class by its id or by its name, not by both.")
    if name:
        return state.class_named(str(name), most)
    if label:
        state.name_of(str(label))
        return str(label)
    return None


def add_photos(here: Context, workspace: Workspace, sent: Sent) -> dict[str, Any]:
    """Add the photos of a request, and return which were added, which were there, and which cannot be read.

    Raises
    ------
    Problem
        There is no such class, or the workspace is full.
    """
    limits = here.settings.limits
    by_folder = str(sent.fields.get("folders", "")).lower() in ("true", "1", "on")
    label, name = sent.fields.get("class"), sent.fields.get("class_name")
    digests = [hashlib.sha256(upload.content).hexdigest() for upload in sent.files]
    with workspace.lock:  # refuse what is wrong before anything is written
        destination(State.from_plain(workspace.state.to_plain()), label, name, limits.classes)
        _check_room(workspace.state, dict(zip(digests, sent.files, strict=True)), here)
    read: dict[str, tuple[Upload, bytes, tuple[int, int]]] = {}
    refused = []
    for digest, upload in zip(digests, sent.files, strict=True):
        if digest not in read:
            try:
                read[digest] = upload, *thumbnail(Photo(upload.name, upload.content))
            except PhotoError as error:
                refused.append({"name": upload.name, "reason": error.reason})
    added, known = [], []
    with workspace.change() as state:
        for digest, (upload, small, (width, height)) in read.items():
            try:
                target = destination(state, label, upload.folder if by_folder else name, limits.classes)
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


def _check_room(state: State, uploads: dict[str, Upload], here: Context) -> None:
    """Refuse uploads, by their digests, that a workspace has no room for; photos that it has need none."""
    limits = here.settings.limits
    sizes = [len(upload.content) for digest, upload in uploads.items() if digest not in state.photos]
    if not sizes:
        return
    if len(state.photos) + len(sizes) > limits.workspace_photos:
        raise Problem(413, "full", f"a workspace has at most {limits.workspace_photos:,} photos.")
    if sum(photo.bytes for photo in state.photos.values()) + sum(sizes) > limits.workspace_bytes:
        raise Problem(413, "full", f"a workspace has at most {limits.workspace_bytes / 1e9:.1f} GB of photos.")
