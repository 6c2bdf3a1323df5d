"""Read lists of photos, in CSV or JSON lines, line by line, whatever a stranger wrote into them."""

from __future__ import annotations

import codecs
import csv
import dataclasses
import io
import itertools
import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, TextIO

from ..errors import PatchvoteError, PhotoError
from ..utils.files import open_regular
from ..utils.schema import brief

ENDINGS = (".csv", ".jsonl")
_MAX_LINE = 1 << 20  # characters per line; a path has at most 4,096
_KEYS = ("file", "label")

Row = tuple[int, dict[str, Any]]


@dataclasses.dataclass(frozen=True)
class Columns:
    """The columns of a manifest that hold the paths of photos and, optionally unless it is named, their classes."""

    file: str = "file_name"
    label: str | None = None

    @classmethod
    def of(cls, given: Columns | Mapping[str, str] | None) -> Columns:
        """Return columns that were given as such, as a dictionary with `file` and `label`, or not at all."""
        if given is None or isinstance(given, Columns):
            return given or cls()
        names = isinstance(given, Mapping) and all(isinstance(name, str) and name for name in given.values())
        if not names or not set(given) <= set(_KEYS):
            how = "columns={'file': COLUMN, 'label': COLUMN}"
            raise PatchvoteError(f"columns are named as in file=COLUMN,label=COLUMN or {how}, got {brief(given)}.")
        return cls(**given)

    @classmethod
    def parse(cls, text: str) -> Columns:
        """Return the columns that a text such as ``file=path,label=species`` names."""
        pairs = [part.partition("=") for part in text.split(",")]
        return cls.of({key.strip(): name.strip() for key, _, name in pairs})

    @property
    def label_column(self) -> str:
        """Name of the column of classes, which is there if it was named."""
        return self.label or "label"

    def missing(self, present: Iterable[Any]) -> str | None:
        """Return the name of a column that has to be among those present and is not, if there is one."""
        present = set(present)
        return next((name for name in (self.file, self.label) if name and name not in present), None)


def read_manifest(path: Path, columns: Columns | None = None) -> Iterator[Row]:
    """Yield the line number of each row, and the row as a dictionary; a `PhotoError` names the line that is wrong."""
    is_csv = path.suffix.lower() == ".csv"
    newline = "" if is_csv else "\n"  # text in JSON may contain other line separators
    try:
        with open_regular(path) as file, io.TextIOWrapper(file, _encoding(file), newline=newline) as text:
            yield from _csv_rows(path, text, columns or Columns()) if is_csv else _jsonl_rows(path, text)
    except UnicodeError:
        how = 'Save it as UTF-8: in Excel, the type "CSV UTF-8"; in LibreOffice, the character set "Unicode (UTF-8)".'
        raise PhotoError(str(path), f"the manifest is not UTF-8 text. {how}") from None
    except OSError as error:
        raise PhotoError(str(path), f"the manifest cannot be read: {error.strerror or error}.") from None


def _encoding(file: io.BufferedReader) -> str:
    """Return UTF-8, unless the byte order mark that spreadsheets write is that of another encoding."""
    return "utf-16" if file.peek(2)[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE) else "utf-8-sig"


def lines(text: TextIO, name: str) -> Iterator[str]:
    """Yield the lines of the text `name`; a line that is far too long raises an error."""
    for number in itertools.count(1):
        line = text.readline(_MAX_LINE + 1)
        if len(line) > _MAX_LINE:
            what = f"line {number} has more than {_MAX_LINE:,} characters"
            raise PhotoError(name, f"{what}. Is it a list, with one line per photo?")
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
            raise PhotoError(
                str(path),
                f"the first line must name a column {missing}, got: {first.rstrip()[:200]!r}. If others have paths and "
                "classes: --columns file=COLUMN,label=COLUMN (in Python, columns={'file': …}).",
            )
        for row in reader:
            yield reader.line_num, row
    except csv.Error as error:
        raise PhotoError(str(path), f"line {reader.line_num} is not CSV: {error}. Is a quote not closed?") from None


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
