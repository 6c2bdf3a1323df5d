"""Marks by which patchvote recognises the files that it wrote, whatever their names: near the beginning of each."""

from __future__ import annotations

import enum
import hashlib
import json
import os
import re
from collections.abc import Sequence
from pathlib import Path

from ..version import __version__
from .files import open_regular
from .remote import RemotePath

NAME = "patchvote"
GENERATOR = f'<meta name="generator" content="{NAME} {__version__}">'
SETTINGS_HEAD = f"# Settings of a network, written by {NAME}"

_ORIGIN = "patchvote-origin"  # name of the field of a page that says what the page is of
_HEAD = 1 << 16  # bytes that are read of a file; marks are in the first few hundred
_MAX_MODEL_HEADER = 1 << 27  # bytes; twice the longest header that a model may have


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


_BEGINNINGS = (  # of a file, and the mark that has to be in its head
    (b"\x89PNG\r\n\x1a\n", f"tEXtSoftware\0{NAME}".encode(), Kind.picture),
    (b"<!doctype html>", f'<meta name="generator" content="{NAME} '.encode(), Kind.report),
    (b"PK\x03\x04", f"{NAME}.npy".encode(), Kind.arrays),  # zip: the name of the first array
    (SETTINGS_HEAD.encode(), b"", Kind.settings),
)
_COLUMNS = {  # the first columns of files that are lists
    Kind.answers: ["file", "label", "probability", "likeliest"],
    Kind.suspects: ["file_name", "label", "finding", "probability"],
}


def kind_of(path: Path) -> Kind | None:
    """Return which kind of file patchvote wrote; None where patchvote did not write it."""
    with open_regular(path) as file:
        head = file.read(_HEAD)
        if head[8:9] == b"{":  # safetensors: the length of the header, then the header
            length = int.from_bytes(head[:8], "little")
            file.seek(8)
            return Kind.model if b'"patchvote_model"' in file.read(min(length, _MAX_MODEL_HEADER)) else None
    for beginning, mark, kind in _BEGINNINGS:
        if head.startswith(beginning):
            return kind if mark in head[:4096] else None
    if b"\x12\x09patchvote" in head[:16]:  # ONNX: ModelProto.producer_name, after ir_version
        return Kind.graph
    columns = _columns(head.partition(b"\n")[0])
    return next((kind for kind, first in _COLUMNS.items() if columns[: len(first)] == first), None)


def _columns(line: bytes) -> list[str]:
    """Return the names of the columns, from the first line of a .csv or .jsonl file."""
    if line.startswith(b"{"):
        try:
            return list(json.loads(line))
        except (ValueError, RecursionError):
            return []
    return line.decode("utf-8", "replace").split(",")


def origin_of(inputs: Sequence[Path]) -> str:
    """Return a digest of the places of a model and of photos: a page may be shown to others, who need not see them."""
    places = [str(path) if isinstance(path, RemotePath) else os.path.realpath(path) for path in inputs]
    return hashlib.sha256("\0".join(places).encode("utf-8", "surrogateescape")).hexdigest()[:32]


def origin_mark(origin: str) -> str:
    """Return the line of a page that says what the page is of (`origin_of`)."""
    return f'<meta name="{_ORIGIN}" content="{origin}">'


def origin_in(path: Path) -> str | None:
    """Return what a page is of; None where it does not say so."""
    with open_regular(path) as file:
        found = re.search(f'<meta name="{_ORIGIN}" content="([0-9a-f]+)">'.encode(), file.read(_HEAD))
    return None if found is None else found[1].decode()
