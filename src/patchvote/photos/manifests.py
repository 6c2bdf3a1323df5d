"""Manifests: lists of photos as CSV or JSON lines, read line by line.

A manifest may come from an untrusted source. Deep nesting, an endless line, or more rows than fit into memory raise an
error that names the line.
"""

from __future__ import annotations

import codecs
import csv
import io
import itertools
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, TextIO

from ..errors import PhotoError
from ..utils.reading import open_regular
from .columns import Columns

ENDINGS = (".csv", ".jsonl")
_MAX_LINE = 1 << 20  # characters per line; a path has at most 4,096
_MAX_ROWS = 10_000_000  # rows; a list of that many photos takes some gigabytes

_SHOWN = 80  # characters that a message quotes of a line
_SAVE = (
    'Save it again as UTF-8: in Excel, the type "CSV UTF-8"; in LibreOffice, the character set "Unicode (UTF-8)"; or '
    "`iconv -f WINDOWS-1252 -t UTF-8 OLD > NEW`."
)

Row = tuple[int, dict[str, Any]]


def read_manifest(path: Path, columns: Columns | None = None) -> Iterator[Row]:
    """Yield the line number of each row, and the row as a dictionary of its columns.

    Parameters
    ----------
    path : Path
        File of the manifest.
    columns : Columns, optional
        Columns that it must have.

    Raises
    ------
    PhotoError
        The file is not a manifest; the reason names the line.
    """
    try:
        is_csv = path.suffix.lower() == ".csv"
        newline = "" if is_csv else "\n"  # text in JSON may contain other line separators
        with open_regular(path) as file, io.TextIOWrapper(file, _encoding(path, file), newline=newline) as text:
            rows = _csv_rows(path, text, columns or Columns()) if is_csv else _jsonl_rows(path, text)
            for count, row in enumerate(rows, start=1):
                if count > _MAX_ROWS:
                    raise PhotoError(str(path), f"the manifest has more than {_MAX_ROWS:,} rows. Divide it.")
                yield row
    except UnicodeDecodeError:
        raise PhotoError(str(path), f"the manifest is not UTF-8 text: {_undecodable(path)}") from None
    except OSError as error:
        raise PhotoError(str(path), f"the manifest cannot be read: {error.strerror or error}.") from None


def _encoding(path: Path, file: io.BufferedReader) -> str:
    """Return the encoding that the first bytes of a manifest tell: UTF-8, unless a mark tells another.

    Raises
    ------
    PhotoError
        It is UTF-16 or UTF-32 without a mark.
    """
    head = file.peek(4)[:4]
    if head.startswith((codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE)):
        return "utf-32"
    if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16"
    if len(head) > 1 and (head[0] == 0) != (head[1] == 0):  # letters of ASCII have one byte that is zero
        raise PhotoError(str(path), f"the manifest looks like UTF-16 without a byte order mark. {_SAVE}")
    return "utf-8-sig"


def _undecodable(path: Path) -> str:
    """Return which line of a manifest is not text of its encoding, and what to do."""
    with open_regular(path) as file:
        if (encoding := _encoding(path, file)) != "utf-8-sig":
            return f"it begins like {encoding.upper()}, and what follows is damaged. {_SAVE}"
        for number in itertools.count(1):
            line = file.readline(_MAX_LINE)
            try:
                if not line or len(line) == _MAX_LINE:
                    return _SAVE  # the file has changed meanwhile, or has lines without end
                line.decode()
            except UnicodeDecodeError:
                # Western spreadsheets write this encoding, in which nearly every byte is a letter.
                guess = line.decode("cp1252", "replace").strip()[:_SHOWN]
                return f"line {number}, which would be {guess!r} in Windows-1252. {_SAVE}"
    return _SAVE


def lines(text: TextIO, name: str) -> Iterator[str]:
    """Yield the lines of the text `name`; a line that is far too long raises an error."""
    for number in itertools.count(1):
        line = text.readline(_MAX_LINE + 1)
        if len(line) > _MAX_LINE:
            raise PhotoError(
                name, f"line {number} has more than {_MAX_LINE:,} characters. Is it a list, with one line per photo?"
            )
        if not line:
            return
        yield line


def _csv_rows(path: Path, text: TextIO, columns: Columns) -> Iterator[Row]:
    rest = lines(text, str(path))
    first = next(rest, "")
    delimiter = max(",;\t", key=first.count)  # spreadsheets write any of these, depending on the locale
    reader = csv.DictReader(itertools.chain([first], rest), delimiter=delimiter, strict=True)
    try:
        if (missing := columns.missing(reader.fieldnames or [])) is not None:
            given, optional = first.rstrip("\r\n")[:200], "" if columns.label else " (and may name label)"
            raise PhotoError(
                str(path),
                f"the first line must name a column {missing}{optional}, got: {given!r}. "
                + _named(missing, reader.fieldnames),
            )
        for row in reader:
            yield reader.line_num, row
    except csv.Error as error:
        raise PhotoError(str(path), f"line {reader.line_num} is not CSV: {error}. Is a quote not closed?") from None


def _named(missing: str, present: Iterable[str] | None) -> str:
    """Return how to name the columns of a manifest; answers of `predict` name photos in the column `file`."""
    if missing == Columns().file and "file" in (present or ()):
        # Their column `label` has answers of a model, so they are not taken for a list of labelled photos unasked.
        return (
            "If its column file has the paths, as in answers of predict, say so: --columns file=file "
            "(in Python, columns={'file': 'file'}); its labels are then answers of a model, not the truth."
        )
    return (
        "If the columns have other names, say which they are: --columns file=COLUMN,label=COLUMN "
        "(in Python, columns={'file': …})."
    )


def _jsonl_rows(path: Path, text: TextIO) -> Iterator[Row]:
    for number, line in enumerate(lines(text, str(path)), start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except RecursionError:
            raise PhotoError(str(path), f"line {number} is nested too deeply.") from None
        except ValueError as error:
            raise PhotoError(str(path), f"line {number} is not JSON: {error}.") from None
        if not isinstance(row, dict):
            raise PhotoError(str(path), f"line {number} must be an object with a file_name, got {line[:60].strip()!r}.")
        yield number, row
