"""Read JSON lines: one record per line, each checked; errors name the line."""

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
        File to read.
    parse : function
        Makes a record of the value of a line; raises ValueError, KeyError or TypeError where that is not possible.
    what : str
        Description of an invalid line, such as "no trial of adaptation", for messages.
    max_bytes : int
        Largest size of the file.

    Raises
    ------
    PatchvoteError
        The file cannot be read, or a line is not a record.
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
