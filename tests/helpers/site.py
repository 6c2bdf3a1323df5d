"""The documentation as a built site, and what its pages link to and load."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

ROOT = Path(__file__).resolve().parent.parent.parent

# A build that asks any other machine for anything ends with this error, wherever a library catches exceptions.
_OFFLINE = """
import os, sys

def refuse(event, arguments):
    if event in ("socket.connect", "socket.getaddrinfo", "socket.gethostbyname", "socket.sendto"):
        os.write(2, f"CONNECTION: {event} {arguments}\\n".encode())
        os._exit(70)

sys.addaudithook(refuse)
from mkdocs.__main__ import cli
cli(sys.argv[1:])
"""


def build(folder: Path) -> subprocess.CompletedProcess[str]:
    """Build the site strictly into a folder, in a process that may not connect anywhere."""
    words = ["build", "--strict", "--config-file", str(ROOT / "mkdocs.yml"), "--site-dir", str(folder)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run(
        [sys.executable, "-c", _OFFLINE, *words], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=600
    )


@dataclasses.dataclass
class PageLinks(HTMLParser):
    """Anchors of a page, what it links to, and what it loads."""

    text: dataclasses.InitVar[str]
    anchors: set[str] = dataclasses.field(default_factory=set)
    links: list[str] = dataclasses.field(default_factory=list)
    loads: list[str] = dataclasses.field(default_factory=list)

    def __post_init__(self, text: str) -> None:
        super().__init__()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note the anchor, link and source of an element."""
        found = dict(attrs)
        self.anchors.update(filter(None, [found.get("id"), found.get("name") if tag == "a" else None]))
        if tag == "a" and found.get("href"):
            self.links.append(str(found["href"]))
        self.loads += [value for key in ("src", "poster", "srcset") if (value := found.get(key))]
        if tag == "link" and found.get("href") and found.get("rel") not in ("next", "prev", "canonical"):
            self.loads.append(str(found["href"]))


def pages_of(site: Path) -> dict[Path, PageLinks]:
    """Return all pages of a site but the one for lost visitors, whose links depend on the server."""
    paths = (path for path in site.rglob("*.html") if path.name != "404.html")
    return {path.resolve(): PageLinks(path.read_text(encoding="utf-8")) for path in sorted(paths)}


def broken(pages: dict[Path, PageLinks]) -> list[str]:
    """Return links and sources inside the site that lead nowhere, each with its page."""
    faults = []
    for page, parts in pages.items():
        for link in parts.links + parts.loads:
            url = urlsplit(link)
            if url.scheme or url.netloc:
                continue
            target = (page.parent / unquote(url.path)).resolve() if url.path else page
            if not target.is_file():
                faults.append(f"{page.name}: {link} is no file")
            elif url.fragment and target in pages and unquote(url.fragment) not in pages[target].anchors:
                faults.append(f"{page.name}: {link} has no such anchor")
    return faults
