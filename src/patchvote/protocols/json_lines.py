"""Files of JSON lines: one record per line, each checked, and an error that says which line is none."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from ..errors import PatchvoteError
from ..utils.reading import read_text

Record = TypeVar("Record")


def read_lines(path: Path, parse: Callable[[dict[str, Any]], Record], what: str, max_bytes: int) -> list[Record]:
    """Read a file of JSON lines.

    Parameters
    ----------
    path : Path
        The file.
    parse : function
        Makes a record of what stands in a line; raises ValueError, KeyError or TypeError where it is none.
    what : str
        What a line is that is none, such as "no trial of adaptation".
    max_bytes : int
        The most that is read of the file.

    Raises
    ------
    PatchvoteError
        The file cannot be read, or a line is no record.
    FileNotFoundError
        There is no such file.
    """
    try:
        lines = read_text(path, max_bytes).splitlines()
    except FileNotFoundError:
        raise
    except (OSError, UnicodeDecodeError) as error:
        raise PatchvoteError(f"{path} is {what} ({error!r}). Move it away.") from None
    records = []
    for number, line in enumerate(lines, start=1):
        try:
            records.append(parse(json.loads(line)))
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise PatchvoteError(f"{path}, line {number}, is {what} ({error!r}). Move it away.") from None
    return records
