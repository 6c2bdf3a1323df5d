r"""Text for people and spreadsheets: everything that is printed goes through here, one line at a time.

Names of files, classes and networks, and messages of libraries, are untrusted. Characters that control a terminal are
printed as escapes such as ``\x1b``. On a terminal, sentences are wrapped between words.
"""

from __future__ import annotations

import contextlib
import csv
import io
import json
import os
import re
import sys
import textwrap
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TextIO

from ..errors import PatchvoteError

Progress = Callable[[str, int, int], None]  # called with the current step, the number of finished items, and the total

# Control characters of ASCII and Latin-1 (C0, DEL, C1), invisible characters that change the reading order or separate
# lines, and lone surrogates, with which Python represents bytes of file names that are not UTF-8. Joiners (U+200C,
# U+200D) stay: scripts and emoji need them.
_CONTROL = re.compile(
    "[\x00-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\ud800-\udfff"
    "\U000e0000-\U000e007f]"
)
# Where a spreadsheet may see a formula: at the start of a cell or after a semicolon (which separates in many locales),
# behind spaces and quotes that it skips.
_FORMULA = re.compile('(^|;)(?=[\\s"]*[=+\\-@\uff1d\uff0b\uff0d\uff20])')

# Files are renamed when they are complete, so this holds whenever Ctrl-C comes.
INTERRUPTION = "interrupted. Files that were written are complete, all others are as they were."


class ReaderGone(Exception):  # noqa: N818 - no error: `patchvote predict … | head` has all that it needs
    """The process that read standard output has ended."""


def counted(count: int, noun: str, plural: str = "") -> str:
    """Return a count with its noun, such as "1 photo"."""
    return f"{count:,} {noun if count == 1 else plural or noun + 's'}"


def some(names: Sequence[str], most: int = 5) -> str:
    """Join names; of many, only the first few: "a, b and 3 more"."""
    return ", ".join(names[:most]) + (f" and {len(names) - most:,} more" if len(names) > most else "")


def none_readable(count: int) -> str:
    """Return the sentence that no photo can be read."""
    return "the only photo cannot be read." if count == 1 else f"not one of the {count:,} photos can be read."


def nearest(name: str, known: Iterable[str]) -> str:
    """Return the end of an error message: the name that was probably meant, or all known names."""
    import difflib  # only a mistake needs it

    known = list(known)
    close = difflib.get_close_matches(name, known, n=1)
    return f" Did you mean {close[0]!r}?" if close else f" Known are: {', '.join(known)}."


def printable(text: object) -> str:
    r"""Return text that a terminal shows as it is, on one line."""
    return _CONTROL.sub(lambda match: match[0].encode("unicode_escape").decode("ascii"), str(text))


def printable_json(value: Any) -> str:
    """Return one line of JSON that a terminal shows as it is; parsing it restores the exact value."""
    text = json.dumps(value, ensure_ascii=False)
    return _CONTROL.sub(lambda match: json.dumps(match[0])[1:-1], text)


def csv_of(rows: Iterable[Mapping[str, Any]], header: list[str] | None = None) -> Iterator[str]:
    """Yield a header and one line per row; by default, the header has the columns of the first row."""
    if header is not None:
        yield _csv_line(header)
    for number, row in enumerate(rows):
        if header is None and number == 0:
            yield _csv_line(row)
        yield _csv_line(row.values())


def _csv_line(values: Iterable[Any]) -> str:
    line = io.StringIO()
    csv.writer(line, lineterminator="").writerow(map(cell, values))
    return line.getvalue()


def cell(value: Any) -> Any:
    """Return a value without formulas for a spreadsheet (as OWASP advises), or control codes for a terminal."""
    value = "" if value is None else value
    return _FORMULA.sub(r"\1'", printable(value)) if isinstance(value, str) else value


def width(text: str) -> int:
    """Return the number of columns that a text takes: two per Chinese character, none per combining accent."""
    from rich.cells import cell_len

    return cell_len(text)


def padded(text: str, columns: int) -> str:
    """Return a text with spaces behind it up to a number of columns."""
    return text + " " * (columns - width(text))


def shortened(text: str, columns: int, *, keep_start: bool = False) -> str:
    """Return the end of a text that is too long, where paths are most informative, or its start."""
    if width(text) <= columns:
        return text
    while text and width(text) >= columns:
        text = text[:-1] if keep_start else text[1:]
    return text + "…" if keep_start else "…" + text


def columns_of(stream: TextIO) -> int | None:
    """Return the number of columns of the terminal that a stream leads to; None where it leads elsewhere."""
    with contextlib.suppress(OSError, ValueError):  # a terminal of unknown size, or a stream without a file descriptor
        if stream.isatty():
            columns = int(os.environ.get("COLUMNS", 0)) or os.get_terminal_size(stream.fileno()).columns
            return columns if columns >= 20 else None  # one that claims fewer does not know its size
    return None


def _fitted(line: str, stream: TextIO, indent: int) -> list[str]:
    """Return the lines of a sentence; rows of tables, and commands, are indented and stay as they are."""
    columns = columns_of(stream)
    if columns is None or len(line) <= columns or (line.startswith(" ") and not indent):
        return [line]
    return textwrap.wrap(line, columns, subsequent_indent=" " * indent, break_long_words=False, break_on_hyphens=False)


def show(*lines: object, indent: int = 0) -> None:
    """Print lines of the result to standard output; on a terminal, long ones are wrapped, and `indent` what follows.

    Lines that are themselves indented are wrapped only if `indent` is set: others are rows of tables, and commands.
    """
    for line in lines:
        for part in _fitted(printable(line), sys.stdout, indent):
            emit(part)


def show_json(value: Any, indent: int | None = None) -> None:
    """Print the result to standard output as JSON in ASCII."""
    emit(json.dumps(value, indent=indent))


def emit(text: str, *, flush: bool = False) -> None:
    """Print text to standard output unchanged; the caller has escaped it, or only programs read it."""
    with _standard_output():
        print(text, file=sys.stdout, flush=flush)  # noqa: T201


def flush_output() -> None:
    """Flush standard output."""
    with _standard_output():
        sys.stdout.flush()


@contextlib.contextmanager
def _standard_output() -> Iterator[None]:
    try:
        yield
    except BrokenPipeError:
        raise ReaderGone from None
    except OSError as error:
        raise PatchvoteError(f"standard output cannot be written: {error.strerror or error}.") from error


def say(*lines: object) -> None:
    """Print messages to standard error, which are not the result; they are dropped where it is closed or full."""
    with contextlib.suppress(OSError, ValueError):
        for line in lines:
            print(*_fitted(printable(line), sys.stderr, 0), sep="\n", file=sys.stderr, flush=True)  # noqa: T201


@contextlib.contextmanager
def timed(seconds: dict[str, float], what: str) -> Iterator[None]:
    """Add the seconds that the block takes to ``seconds[what]``."""
    start = time.perf_counter()
    yield
    seconds[what] = seconds.get(what, 0.0) + time.perf_counter() - start


def as_progress(progress: Progress | bool | None) -> Progress | None:
    """Return the function that reports progress; for True, one that overwrites a line of standard error."""
    if not isinstance(progress, bool):
        return progress

    def show_progress(stage: str, done: int, total: int) -> None:
        text = f"{stage}: {done:,} of {total:,}"
        print(f"\r{text:<79}", end="\n" * (done >= total), file=sys.stderr, flush=True)  # noqa: T201

    return show_progress if progress else None
