"""Files that are no files, or never end: every reader says so instead of waiting."""

from __future__ import annotations

import io
import os
from pathlib import Path

import pytest

from patchvote import ModelError, NetworkError, PatchvoteError, PhotoError, find_photos
from patchvote.cli.photos import listed_paths
from patchvote.models.file import read_model
from patchvote.networks.onnx_file import load as open_onnx
from patchvote.networks.session import within
from patchvote.photos.decode import load_image
from patchvote.photos.find import Photo
from patchvote.utils.files import file_digest

SECONDS = 60  # generous: each of these calls takes some milliseconds, or for ever


def at_once(function, *arguments):
    """Call a function, and fail where it has not come back after a minute."""
    return within(SECONDS, lambda: function(*arguments), lambda: None, "it")


def endless(path: Path) -> Path:
    """A link to a device that never ends, under a name that looks like a file's."""
    path.symlink_to("/dev/zero")
    return path


def pipe(path: Path) -> Path:
    """A pipe that nobody writes to."""
    os.mkfifo(path)
    return path


@pytest.mark.parametrize("make", [pipe, endless])
@pytest.mark.parametrize(
    ("name", "read", "kind"),
    [
        ("list.csv", find_photos, PhotoError),
        ("list.jsonl", find_photos, PhotoError),
        ("x.jpg", lambda path: load_image(Photo("x.jpg", path)), PhotoError),
        ("m.patchvote", read_model, ModelError),
        ("net.onnx", file_digest, OSError),
        ("net.onnx", open_onnx, NetworkError),
    ],
)
def test_what_is_no_ordinary_file_is_refused_at_once(tmp_path, make, name, read, kind):
    with pytest.raises(kind, match=r"it is a (pipe|device), not an ordinary file"):
        at_once(read, make(tmp_path / name))


def test_a_line_of_standard_input_that_does_not_end_is_refused():
    class Endless(io.TextIOBase):
        def readline(self, size: int = -1) -> str:
            assert size >= 0, "this would read for ever"
            return "x" * size

        def __next__(self) -> str:
            raise AssertionError("this would read for ever")

    with pytest.raises(PatchvoteError, match="standard input: line 1 has more than"):
        listed_paths(Endless())
