"""Pages of HTML, one self-contained file each, and their elements: tables, bars, figures, numbers.

Photos are embedded, and a content security policy forbids the browser to load anything else or to run any script but
the one below. Whoever writes a page puts data into it through `escaped`, `isolated` or `prose` alone.
"""

from __future__ import annotations

import base64
import hashlib
import io
import math
import re
from collections.abc import Iterable, Sequence
from html import escape
from importlib import resources
from pathlib import Path

from PIL import Image

from ...utils.files import write_file
from ...utils.terminal import counted
from ...version import __version__

_MAX_ROWS, _FIRST_ROWS = 25, 20  # rows of a table that is shown whole (a screen), and that are shown of a larger one


def section(heading: str, body: str) -> str:
    """Return a section with its heading."""
    return f"<section>\n<h2>{heading}</h2>\n{body}</section>\n"


def table(header: str, rows: Iterable[str], kind: str = "plain") -> str:
    """Return a table. The header is words, with "=" before columns of numbers and "^" before the sorted column."""
    marks = {"=": ' class="number"', "^": ' aria-sort="ascending"'}
    cells = "".join(f'<th scope="col"{marks.get(head[0], "")}>{head.lstrip("=^")}</th>' for head in header.split())
    return f'<table class="{kind}">\n<thead><tr>{cells}</tr></thead>\n<tbody>\n{"".join(rows)}</tbody>\n</table>\n'


def folded(header: str, rows: Sequence[str], words: str) -> str:
    """Return a table that can be sorted; of one with many rows, the first, and below them all, folded away."""
    if len(rows) <= _MAX_ROWS:
        return table(header, rows, "sortable")
    first = table(header, rows[:_FIRST_ROWS], "sortable")
    return (
        f"{first}<details>\n<summary>All {len(rows):,} {words}</summary>\n{table(header, rows, 'sortable')}</details>\n"
    )


def row(name: object, *cells: str) -> str:
    """Return a row of a table that begins with a name from the data."""
    return f'<tr><th scope="row">{isolated(name)}</th>{"".join(cells)}</tr>\n'


def bullets(items: Iterable[str]) -> str:
    """Return a list of items, which are HTML."""
    return "<ul>\n" + "".join(f"<li>{item}</li>\n" for item in items) + "</ul>\n"


def number(value: float, form: str = ",", unit: str = "") -> str:
    """Return a cell with a number."""
    return f'<td class="number">{value:{form}}{unit}</td>'


def bar(share: float, low: float = 0, high: float = 0, digits: int = 0) -> str:
    """Return a cell with a share as a number and a bar, with a thin line from `low` to `high`."""
    bar = "" if math.isnan(share) else f'<i class="bar" style="{places(share, low, high)}"><i></i><b></b></i>'
    return f'<td class="share"><div><span>{percent(share, digits)}</span>{bar}</div></td>'


def places(share: float, low: float, high: float) -> str:
    """Return the style that places a bar and its interval."""
    return f"--v:{share:.3f};--low:{low:.3f};--high:{high:.3f}"


def photos(count: int) -> str:
    """Return a number of photos in words."""
    return counted(count, "photo")


def percent(share: float, digits: int = 0) -> str:
    """Return a share as percent; a dash for a share of nothing."""
    return "&ndash;" if math.isnan(share) else f"{100 * share:.{digits}f}&nbsp;%"


def escaped(value: object) -> str:
    """Return text from the data, escaped."""
    return escape(str(value))


def isolated(value: object) -> str:
    """Return a name from the data, isolated so that right-to-left text does not reorder the words around it."""
    return f"<bdi>{escaped(value)}</bdi>"


def prose(words: str) -> str:
    """Return text as HTML, with commands in backquotes as code."""
    return re.sub("`([^`]*)`", r"<code>\1</code>", escaped(words)).replace(" %", "&nbsp;%")


def figure(image: Image.Image, alt: str, caption: str) -> str:
    """Return a picture, whose address holds it, with its caption, which is HTML."""
    file = io.BytesIO()
    image.convert("RGB").save(file, "JPEG", quality=82, optimize=True)
    address = f"data:image/jpeg;base64,{base64.b64encode(file.getvalue()).decode()}"
    return (
        f'<figure><img src="{address}" width="{image.width}" height="{image.height}" alt="{escaped(alt)}" '
        f'loading="lazy"><figcaption>{caption}</figcaption></figure>\n'
    )


# Sorts a table by a column when its header is pressed: ascending, then descending.
_SCRIPT = """
for (const head of document.querySelectorAll(".sortable th[scope=col]")) {
  const button = document.createElement("button"), body = head.closest("table").tBodies[0];
  button.append(...head.childNodes);
  head.append(button);
  button.onclick = () => {
    const way = head.ariaSort === "ascending" ? -1 : 1;
    const key = row => row.cells[head.cellIndex].textContent.replaceAll(",", "");
    const compare = (a, b) => way * key(a).localeCompare(key(b), undefined, {numeric: true});
    body.append(...[...body.rows].sort(compare));
    for (const other of head.parentNode.cells) other.ariaSort = null;
    head.ariaSort = way > 0 ? "ascending" : "descending";
  };
}
"""


def write_page(path: str | Path, title: str, body: str) -> None:
    """Write a page, atomically."""
    # File names that are not valid Unicode lose the characters that cannot be displayed.
    write_file(Path(path), [_page(title, body).encode("utf-8", "replace")])


def _page(title: str, body: str) -> str:
    digest = base64.b64encode(hashlib.sha256(_SCRIPT.encode()).digest()).decode()
    policy = f"default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"
    style = resources.files(__package__).joinpath("page.css").read_text("utf-8")
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta name="generator" content="patchvote {__version__}">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">\n<title>{escaped(title)}</title>\n'
        f"<style>\n{style}</style>\n</head>\n<body>\n<main>\n<h1>{escaped(title)}</h1>\n{body}</main>\n"
        f"<script>{_SCRIPT}</script>\n</body>\n</html>\n"
    )
