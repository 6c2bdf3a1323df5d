"""Open a model in a workspace: learning then adds to it."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from pathlib import Path

from ..utils.files import write_atomically
from .context import Context
from .problems import Problem
from .records import State
from .workspaces import Workspace


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


def _check_room(here: Context, workspace: Workspace, source: bytes | Path, classes: Iterable[str]) -> None:
    """Refuse a client's model whose classes find no room; the server's own may have as many as they like."""
    most = here.settings.limits.model_classes
    if isinstance(source, bytes) and len({*workspace.state.classes.values(), *classes}) > most:
        raise Problem(413, "full", f"with this model, the workspace would have more than {most:,} classes.")
