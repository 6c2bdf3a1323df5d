"""Uploads: files in the body of a request, as multipart/form-data or as base64 in JSON.

Parts of a form of more than 1 MB pass through a temporary file; nothing of them is kept there.
The name of a file is text that the client chose: it is shown, and never part of a path.
"""

from __future__ import annotations

import base64
import binascii
import dataclasses
import json
from typing import Any

from fastapi import Request
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import UploadFile
from starlette.exceptions import HTTPException
from starlette.formparsers import MultiPartException

from ..utils.terminal import printable
from .problems import Problem

_LONGEST_NAME = 200  # characters of a name that are kept
_FIELDS = 20  # fields besides the files
_FIELD_BYTES = 100_000  # size of one of them
# Commas and brackets in JSON, and so values: a photo needs four. Each of them can take sixty bytes of memory.
_MAX_MARKS = 100_000


@dataclasses.dataclass(frozen=True)
class Upload:
    """One file: the name to show, the folder that held it on the client's side, and its content."""

    name: str
    folder: str
    content: bytes = dataclasses.field(repr=False)


@dataclasses.dataclass(frozen=True)
class Sent:
    """What a request sent: files, and fields beside them."""

    files: list[Upload]
    fields: dict[str, Any]


def shown_name(name: object) -> tuple[str, str]:
    r"""Return the last part of a client's file name as text to show, and the folder before it.

    Examples
    --------
    >>> shown_name("pets/cat/1.jpg"), shown_name("..\\..\\x.png"), shown_name(None)
    (('1.jpg', 'cat'), ('x.png', ''), ('photo', ''))
    """
    text = name if isinstance(name, str) else ""
    parts = [part for part in text.replace("\\", "/").split("/") if part not in ("", ".", "..")]
    last, folder = (parts[-1] if parts else ""), (parts[-2] if len(parts) > 1 else "")
    return printable(last)[-_LONGEST_NAME:] or "photo", printable(folder)[:_LONGEST_NAME]


async def read_uploads(request: Request, most: int, part: str = "files") -> Sent:
    """Read the files of a request.

    Parameters
    ----------
    request : Request
        Request whose body is read.
    most : int
        Largest number of files.
    part : str
        Name of the parts that hold files.

    Raises
    ------
    Problem
        The body is neither of the two types, is malformed, or has too many files or none.
    """
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind == "multipart/form-data":
        sent = await _from_form(request, most, part)
    elif kind == "application/json" and part == "files":
        sent = await run_in_threadpool(_from_json, await request.body(), most)
    else:
        raise Problem(415, "media_type", "send multipart/form-data, or JSON with the photos as base64.")
    if not sent.files:
        raise Problem(422, "invalid", f"there is no file in the request. Send at least one part named {part!r}.")
    return sent


async def _from_form(request: Request, most: int, part: str) -> Sent:
    try:
        # One more than are allowed, so that too many are told apart from other faults.
        async with request.form(max_files=most + 1, max_fields=_FIELDS, max_part_size=_FIELD_BYTES) as form:
            files: list[Upload] = []
            fields: dict[str, Any] = {}
            for name, value in form.multi_items():
                if not isinstance(value, UploadFile):
                    fields[name] = value
                elif name == part:
                    if len(files) == most:
                        raise _too_many(most)
                    files.append(Upload(*shown_name(value.filename), await value.read()))
            return Sent(files, fields)
    except Problem:
        raise
    except (MultiPartException, HTTPException) as error:
        message = getattr(error, "message", None) or str(getattr(error, "detail", ""))
        if "Too many files" in message:
            raise _too_many(most) from None
        raise Problem(400, "bad_request", "the body is not valid multipart/form-data.") from None


def _from_json(body: bytes, most: int) -> Sent:
    if sum(body.count(mark) for mark in (b",", b"[", b"{")) > _MAX_MARKS:
        raise _too_many(most)
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        raise Problem(400, "bad_request", "the body is not valid JSON.") from None
    photos = value.pop("photos", None) if isinstance(value, dict) else None
    if not isinstance(photos, list):
        raise Problem(422, "invalid", 'expected {"photos": [{"name": "a.jpg", "content": "…base64…"}]}.')
    if len(photos) > most:
        raise _too_many(most)
    return Sent([_decoded(photo, index) for index, photo in enumerate(photos)], value)


def _decoded(photo: Any, index: int) -> Upload:
    content = photo.get("content") if isinstance(photo, dict) else None
    if not isinstance(content, str):
        raise Problem(422, "invalid", f"photos[{index}] has no content: expected base64 text.")
    try:
        return Upload(*shown_name(photo.get("name")), base64.b64decode(content, validate=True))
    except (ValueError, binascii.Error):
        raise Problem(422, "invalid", f"the content of photos[{index}] is not base64.") from None


def _too_many(most: int) -> Problem:
    return Problem(413, "too_many_files", f"at most {most:,} files are taken in one request. Send them in several.")
