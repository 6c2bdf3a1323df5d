"""What patchvote writes for users, and how it recognises a file that it may write again."""

from __future__ import annotations

import enum
from pathlib import Path

from ..version import __version__
from .files import open_regular

NAME = "patchvote"
GENERATOR = f'<meta name="generator" content="{NAME} {__version__}">'
SETTINGS_HEAD = f"# Settings of a network, written by {NAME}"
# Near the beginning of every page, picture, graph, archive and table of settings; and the first columns of answers.
_MARKS = (NAME.encode(), b"file,label,probability,likeliest", b'{"file":')
_HEAD = 4096  # bytes that are read of a file


class Kind(enum.StrEnum):
    """Kinds of files that patchvote writes for users."""

    model = "a model"
    report = "a report"
    picture = "a picture"
    arrays = "arrays of evidence"
    graph = "an exported graph"
    settings = "settings of a network"
    answers = "a file of answers"
    suspects = "a list of suspects"


def is_made_again(path: Path) -> bool:
    """Return whether patchvote wrote a file and can write it again, as it can all but models and lists for people."""
    with open_regular(path) as file:
        head = file.read(_HEAD)
    return any(mark in head for mark in _MARKS) and not head[8:].startswith(b"{")
