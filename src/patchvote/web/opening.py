"""Open a model in a workspace: learning then adds to it."""

from __future__ import annotations

import shutil
from pathlib import Path

from ..utils.files import write_atomically
from .context import Context
from .records import State
from .workspaces import Workspace


def open_model(here: Context, workspace: Workspace, source: bytes | Path) -> None:
    """Make the model of a file, or of its content, the present one of a workspace, which gets its classes.

    Raises
    ------
    PatchvoteError
        The file is not a model, or not one that this server may run.
    Problem
        The workspace is learning, or was removed.
    """
    run = workspace.new_run()
    try:
        path = run / "model.patchvote"
        if isinstance(source, bytes):
            write_atomically(path, [source])
        else:
            shutil.copyfile(source, path)
        model = here.models.check_upload(path)
        with workspace.lock:
            here.jobs.check_free(workspace)  # a job may have begun while the file was read
            # It has learned from no photo of the workspace yet.
            workspace.commit_run(run, State("").fingerprint(), opened=True, classes=model.classes)
    except BaseException:
        workspace.discard_run(run)
        raise
