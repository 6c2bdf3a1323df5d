"""Open a model in a workspace: learning then adds to it."""

from __future__ import annotations

import shutil

from ..utils.files import write_atomically
from .context import Context
from .records import State
from .workspaces import Workspace


def open_model(here: Context, workspace: Workspace, content: bytes) -> None:
    """Make the model of a file the present one of a workspace; its classes become classes of the workspace.

    Raises
    ------
    PatchvoteError
        The file is not a model, or not one that this server may run.
    """
    run = workspace.new_run()
    try:
        path = run / "model.patchvote"
        write_atomically(path, [content])
        model = here.models.check_upload(path)
        # It has learned from no photo of the workspace yet.
        workspace.commit_run(run, State("").fingerprint(), opened=True, classes=model.classes)
    except BaseException:
        shutil.rmtree(run, ignore_errors=True)
        raise
