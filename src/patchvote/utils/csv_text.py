r"""Tables as CSV, for spreadsheets and terminals.

Text that a spreadsheet would take for a formula gets a leading apostrophe, as OWASP advises, also after a semicolon,
which is the separator in many locales. Control characters and bytes that are not UTF-8 are written as escapes such as
``\x1b`` and ``\udcff``, so that each row is one line.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from .terminal import printable

# Places where a spreadsheet may see a formula: a character that begins one, also in full width, at the start of a cell
# or after a semicolon, with the spaces and quotes that are skipped before it.
_FORMULA = re.compile('(^|;)(?=[\\s"]*[=+\\-@\uff1d\uff0b\uff0d\uff20])')
_QUOTED = re.compile('[,;"\\s]')  # characters that make quotes around a cell necessary, or safer


def csv_of(rows: Iterable[Mapping[str, Any]], header: list[str] | None = None) -> Iterator[str]:
    """Yield a header and one line per row; by default, the header has the columns of the first row."""
    if header is not None:
        yield _csv_row(header)
    for cells in rows:
        if header is None:
            header = list(cells)
            yield _csv_row([cell(name) for name in header])
        yield _csv_row([cell(value) for value in cells.values()])


def cell(value: Any) -> Any:
    r"""Return a value as a cell without formulas for a spreadsheet and without control codes for a terminal.

    Examples
    --------
    >>> cell('=HYPERLINK("http://example.com")'), cell("a=b"), cell(-0.5)
    ('\'=HYPERLINK("http://example.com")', 'a=b', -0.5)
    >>> cell("a;=1;b"), cell("a\x1b[2J")
    ("a;'=1;b", 'a\\x1b[2J')
    """
    value = "" if value is None else value
    return _FORMULA.sub(r"\1'", printable(value)) if isinstance(value, str) else value


def _csv_row(cells: list[Any]) -> str:
    texts = map(str, cells)
    return ",".join('"' + text.replace('"', '""') + '"' if _QUOTED.search(text) else text for text in texts)
