"""Pages of HTML: one self-contained file each, in which everything that comes from data is text.

Photos are embedded, and a content security policy forbids the browser to load anything else or to run any script but
the one below. Whoever writes a page puts data into it through `escaped`, `isolated` or `prose` alone (`elements`).
"""

from __future__ import annotations

import base64
import hashlib
from importlib import resources
from pathlib import Path

from ...utils.files import write_file
from ...utils.marks import GENERATOR, origin_mark
from .elements import escaped

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


def write_page(path: str | Path, title: str, body: str, origin: str = "") -> None:
    """Write a page, atomically.

    Parameters
    ----------
    path : path
        File to write.
    title : str
        Title of the page.
    body : str
        HTML below the title.
    origin : str
        What the page is of (`marks.origin_of`): a later page of the same may replace it.

    Raises
    ------
    PatchvoteError
        The file cannot be written.
    """
    # File names that are not valid Unicode lose the characters that cannot be displayed.
    write_file(Path(path), [_page(title, body, origin).encode("utf-8", "replace")])


def _page(title: str, body: str, origin: str) -> str:
    digest = base64.b64encode(hashlib.sha256(_SCRIPT.encode()).digest()).decode()
    policy = f"default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"
    mark = f"{origin_mark(origin)}\n" if origin else ""
    style = resources.files(__package__).joinpath("page.css").read_text("utf-8")
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'{GENERATOR}\n{mark}<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">\n<title>{escaped(title)}</title>\n'
        f"<style>\n{style}</style>\n</head>\n<body>\n<main>\n<h1>{escaped(title)}</h1>\n{body}</main>\n"
        f"<script>{_SCRIPT}</script>\n</body>\n</html>\n"
    )
