"""Marks: by what stands in a file, patchvote knows what it wrote itself, whatever the file is called.

Every writer puts a mark near the beginning of its file, where the format has a place for such a thing. Nothing here
keeps a list of files, and nothing is decoded.
"""

from __future__ import annotations

import enum
import json
from pathlib import Path

from ..version import __version__
from .reading import open_regular

NAME = "patchvote"
GENERATOR = f'<meta name="generator" content="{NAME} {__version__}">'
RESULTS_HEAD = "# Results\n\nEvery number in a table comes from a file in `results/`"

_HEAD = 1 << 16  # bytes of a file that are looked at; marks stand in the first few hundred
_MAX_MODEL_HEADER = 1 << 27  # bytes; twice the longest header that a model may have
_PNG = b"\x89PNG\r\n\x1a\n"
_OLD_REPORT = (  # as reports began before they had a mark
    b'<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n<meta http-equiv="Content-Security-Policy" '
    b"content=\"default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'sha256-"
)


class Kind(enum.StrEnum):
    """What patchvote writes for people."""

    model = "a model"
    report = "a report"
    picture = "a picture"
    arrays = "arrays of evidence"
    graph = "an exported graph"
    answers = "a file of answers"
    results = "a page of results"
    plot = "a plot"


def kind_of(path: Path) -> Kind | None:
    """Return what patchvote wrote into a file; None where it is of somebody else.

    Raises
    ------
    OSError
        The file cannot be read.
    """
    with open_regular(path) as file:
        head = file.read(_HEAD)
        if head[8:9] == b"{":  # safetensors: the length of the header, then the header
            length = int.from_bytes(head[:8], "little")
            file.seek(8)
            return Kind.model if b'"patchvote_model"' in file.read(min(length, _MAX_MODEL_HEADER)) else None
    if head.startswith(_PNG):
        return Kind.picture if f"tEXtSoftware\0{NAME}".encode() in head else None
    if head.startswith(b"<!doctype html>"):
        return (
            Kind.report
            if b'<meta name="generator" content="patchvote ' in head[:4096] or head.startswith(_OLD_REPORT)
            else None
        )
    if head.startswith(b"PK\x03\x04"):  # the name of the first array follows the 30 bytes of its entry
        return Kind.arrays if head[30:].startswith(f"{NAME}.npy".encode()) else None
    if b"\x12\x09patchvote" in head[:16]:  # ModelProto.producer_name, behind ir_version
        return Kind.graph
    if head.startswith(RESULTS_HEAD.encode()):
        return Kind.results
    if head.startswith(b"<?xml"):
        return Kind.plot if f"<dc:title>{NAME}</dc:title>".encode() in head else None
    return Kind.answers if _are_answers(head.partition(b"\n")[0]) else None


def _are_answers(line: bytes) -> bool:
    columns = ["file", "label", "probability", "likeliest"]
    if line.startswith(b"{"):
        try:
            record = json.loads(line)
        except (ValueError, RecursionError):
            return False
        return list(record)[: len(columns)] == columns
    return line.decode("utf-8", "replace").split(",")[: len(columns)] == columns
