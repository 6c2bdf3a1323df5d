"""Open a model in a workspace: learning then adds to it, and it can forget photos."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterable
from pathlib import Path

from ..utils.files import write_atomically
from .context import Context
from .problems import Problem
from .records import State
from .workspaces import Workspace

_MOST_PATTERNS = 100  # in one request to forget: each is compared with the names of all photos
_ONE = threading.Lock()  # forgetting solves all equations again: one request at a time


def open_model(here: Context, workspace: Workspace, source: bytes | Path) -> None:
    """Make the model of a file, or of its content, the present one of a workspace, which gets its classes.

    Raises
    ------
    PatchvoteError
        The file is not a model, or not one that this server may run.
    Problem
        The workspace is learning, was removed, or would have too many classes.
    """
    run = workspace.new_run()
    try:
        path = run / "model.patchvote"
        if isinstance(source, bytes):
            write_atomically(path, [source])
        else:
            shutil.copyfile(source, path)
        model = here.models.check_upload(path)
        _check_room(here, workspace, source, model.classes)
        with workspace.lock:
            here.jobs.check_free(workspace)  # a job may have begun while the file was read
            # It has learned from no photo of the workspace yet.
            workspace.commit_run(run, State("").fingerprint(), opened=True, classes=model.classes)
    except BaseException:
        workspace.discard_run(run)
        raise


def forget(here: Context, workspace: Workspace, photos: list[str]) -> None:
    """Let the opened model of a workspace forget photos; what was learned here since is learned again by the next job.

    Raises
    ------
    PatchvoteError
        The model cannot forget, has not learned one of these, or fewer than two classes would be left.
    Problem
        No model was opened in the workspace, it is learning, or was removed.
    """
    if len(photos := list(dict.fromkeys(photos))) > _MOST_PATTERNS:
        raise Problem(422, "invalid", f"at most {_MOST_PATTERNS} photos or patterns can be forgotten at once.")
    with _ONE:
        name = workspace.state.base
        base = workspace.run_folder(name)
        if base is None:
            message = "no model was opened here: to forget photos of a workspace, remove photos, and learn again."
            raise Problem(409, "conflict", message)
        run = workspace.new_run()
        try:
            classifier = here.models.loaded(base / "model.patchvote")
            classifier.forget(photos).save(run / "model.patchvote")
            with workspace.lock:
                here.jobs.check_free(workspace)
                if workspace.state.base != name:
                    raise Problem(409, "conflict", "another model was opened meanwhile: nothing was forgotten.")
                workspace.commit_run(run, State("").fingerprint(), opened=True)
        except BaseException:
            workspace.discard_run(run)
            raise


def _check_room(here: Context, workspace: Workspace, source: bytes | Path, classes: Iterable[str]) -> None:
    """Refuse a client's model whose classes find no room; the server's own may have as many as they like."""
    most = here.settings.limits.model_classes
    if isinstance(source, bytes) and len({*workspace.state.classes.values(), *classes}) > most:
        raise Problem(413, "full", f"with this model, the workspace would have more than {most:,} classes.")
