"""Views: models, workspaces and photos as the plain values that clients see."""

from __future__ import annotations

from typing import Any

from ..errors import PatchvoteError
from ..models.answers import Answer
from ..models.model import Model
from ..models.report.card import accuracy_of
from ..models.rows import row
from .context import Context
from .exporting import answered_photos
from .records import PhotoRecord
from .served import Served
from .workspaces import Workspace


def model_view(name: str, model: Model, size: int) -> dict[str, Any]:
    """Return what a model is, and how accurate."""
    about = model.about
    return {
        "name": name,
        "kind": model.kind,
        "classes": list(model.classes),
        "photos": {label: about.images.get(label, 0) for label in model.classes},
        "made": about.made.get("date", ""),
        "network": model.recipe.network,
        "mode": model.recipe.mode,
        "bytes": size,
        "remembers": model.scorer.remembers and bool(model.names),
        "accuracy": accuracy_of(about),
        "held_out": about.held_out,
        "card": model.card,
    }


def workspace_view(context: Context, workspace: Workspace) -> dict[str, Any]:
    """Return the state of a workspace."""
    state, job = workspace.state, context.jobs.of(workspace)
    model = None
    learned: dict[str, int] = {}
    served = _model_of(context, workspace)
    if served is not None:
        learned = served.model.about.images
        model = model_view(workspace.id, served.model, served.size)
        model |= {"opened": state.base is not None, "stale": state.taught != state.fingerprint()}
    counts = dict.fromkeys(state.classes, 0)
    for photo in state.labelled:
        counts[str(photo.label)] += 1
    return {
        "id": workspace.id,
        "title": state.title,
        "version": state.version,
        "classes": [class_view(label, name, counts[label], learned) for label, name in state.classes.items()],
        "photos": len(state.photos),
        "unlabelled": len(state.unlabelled),
        "answered": len(answered_photos(state)),
        "bytes": sum(photo.bytes for photo in state.photos.values()),
        "model": model,
        "job": None if job is None else context.jobs.plain(job),
        "has_report": workspace.has_report,
    }


def _model_of(context: Context, workspace: Workspace) -> Served | None:
    """Return the model of a workspace; one whose file is damaged is as good as none, and keeps nobody from the rest."""
    try:
        return None if workspace.state.run is None else context.models.of_workspace(workspace)
    except (OSError, PatchvoteError):
        return None


def class_view(label: str, name: str, photos: int, learned: dict[str, int]) -> dict[str, Any]:
    """Return a class of a workspace."""
    return {"id": label, "name": name, "photos": photos, "learned": learned.get(name, 0)}


def photo_view(workspace: Workspace, photo: PhotoRecord) -> dict[str, Any]:
    """Return a photo of a workspace."""
    address = f"/v1/workspaces/{workspace.id}/photos/{photo.id}"
    answer = None
    if photo.answer is not None:
        answer = {name: value for name, value in photo.answer.items() if name != "run"}
        answer["current"] = photo.answer.get("run") == workspace.state.run
    return {
        "id": photo.id,
        "name": photo.name,
        "class": photo.label,
        "width": photo.width,
        "height": photo.height,
        "bytes": photo.bytes,
        "thumbnail": f"{address}/thumbnail",
        "image": f"{address}/image",
        "answer": answer,
    }


def answer_view(answer: Answer) -> dict[str, Any]:
    """Return an answer with the fields of `patchvote predict --json`, and whether it was rejected."""
    return row(answer) | {"rejected": answer.rejected}
