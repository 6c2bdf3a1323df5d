"""The documentation: its claims about the code hold, and the site is built strictly, offline, and fits a phone."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np
import pytest
from PIL import Image

import patchvote
from helpers.site import ROOT, broken, build, pages_of

pytestmark = pytest.mark.slow

DOCS = ROOT / "docs"
MARKDOWN = sorted([*ROOT.glob("*.md"), *DOCS.rglob("*.md")])
IMAGE = re.compile(r"<img [^>]*>")


def text_of(name: str) -> str:
    return (DOCS / name).read_text(encoding="utf-8")


def test_every_file_of_tests_that_the_page_of_security_names_exists():
    named = set(re.findall(r"`(test_\w+\.py)`", text_of("security.md")))
    assert len(named) > 10
    assert [file for file in sorted(named) if not (ROOT / "tests" / file).is_file()] == []


def test_every_module_that_the_architecture_and_the_method_name_exists():
    package = ROOT / "src" / "patchvote"
    method = re.findall(r"`((?!tools)\w+/[\w/]+\.py)`", text_of("method.md"))
    rooms = [name for name in re.findall(r"`([a-z_]+\.[a-z_.]+)\.\w+", text_of("architecture.md")) if name[0] != "."]
    assert [path for path in method if not (package / path).is_file()] == []
    modules = [
        name.replace(".", "/") for name in rooms if name.split(".")[0] in ("photos", "networks", "bags", "voters")
    ]
    assert len(modules) > 4
    assert [name for name in modules if not list(package.glob(f"{name}*"))] == []


def test_the_page_of_parts_mentions_every_public_name():
    assert [name for name in patchvote.__all__ if f"`{name}`" not in text_of("parts.md")] == []


def files_of_way(text: str) -> dict[str, set[str]]:
    """Return the files that a text names for each way, by room."""
    ways: dict[str, set[str]] = {}
    for title, rooms in re.findall(r"^(\w+): \d+ files[^\n]*\n((?:  .*(?:\n|$))+)", text, re.MULTILINE):
        lines = [(line[:14].strip(), line[14:].strip()) for line in rooms.splitlines()]
        ways[title] = {f"{room}/{file}" for room, files in lines for file in files.split(", ")}
    return ways


def test_the_way_of_the_data_is_short_and_the_architecture_shows_it():
    words = [sys.executable, ROOT / "tools" / "way.py"]
    printed = subprocess.run(words, capture_output=True, text=True, check=True, timeout=300).stdout
    ways = files_of_way(printed)
    assert len(ways["fit"]) <= 60
    assert len(ways["predict"]) <= 40
    assert files_of_way(text_of("architecture.md")) == ways


def test_the_figures_of_the_method_can_be_drawn_again_and_are_shown(tmp_path):
    pytest.importorskip("matplotlib")
    subprocess.run([sys.executable, ROOT / "tools" / "method_figures.py", tmp_path], check=True, timeout=600)
    assert {path.name for path in tmp_path.iterdir()} == set(re.findall(r"\]\(method/([\w.]+)\)", text_of("method.md")))
    for drawn in tmp_path.iterdir():
        new, kept = (np.asarray(Image.open(path).convert("L"), float) for path in (drawn, DOCS / "method" / drawn.name))
        assert new.shape == kept.shape
        assert np.abs(new - kept).mean() < 10  # fonts and rounding may differ a little


def without_code(page: Path) -> str:
    return re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)


def anchors_of(page: Path) -> set[str]:
    """Return the anchors that a forge gives to the headings of a page."""
    headings = re.findall(r"^#+ (.+)$", without_code(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


def test_links_between_the_pages_of_the_repository_work_without_the_site():
    faults = []
    for page in MARKDOWN:
        for link, anchor in re.findall(r"\]\((?![a-z]+:)([^)\s#]*)#?([^)\s]*)\)", without_code(page)):
            target = (page.parent / link).resolve() if link else page
            if not target.exists() or (anchor and target in MARKDOWN and anchor not in anchors_of(target)):
                faults.append(f"{page.relative_to(ROOT)}: {link}#{anchor}")
    assert faults == []


# --- the site ---------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    pytest.importorskip("material", reason="the site needs the extra docs")
    folder = tmp_path_factory.mktemp("site")
    built = build(folder)
    assert built.returncode == 0, built.stderr[-3000:]
    assert "WARNING" not in built.stderr
    return folder


@pytest.fixture(scope="module")
def pages(site):
    return pages_of(site)


def test_links_of_the_site_lead_somewhere_and_every_page_is_reached_from_the_first(site, pages):
    assert sum(len(page.links) for page in pages.values()) > 1_000
    assert broken(pages) == []
    links = pages[(site / "index.html").resolve()].links
    reached = {(site / urlsplit(link).path).resolve() for link in links if link[0] != "#"}
    assert {path.name for path in set(pages) - reached} <= {"index.html"}


def test_pages_load_nothing_from_other_hosts_and_every_picture_says_what_it_shows(site, pages):
    elsewhere = [(page.name, load) for page, parts in pages.items() for load in parts.loads if urlsplit(load).netloc]
    assert elsewhere == []
    styles = "".join(path.read_text(encoding="utf-8") for path in site.rglob("*.css"))
    assert re.findall(r"(?:@import|url\()\s*[\"']?(?:https?:)?//[^)\"']*", styles) == []
    pictures = [(page.name, picture) for page in site.rglob("*.html") for picture in IMAGE.findall(page.read_text())]
    assert [where for where, picture in pictures if not re.search(r'alt="[^"]{10,}"', picture)] == []


def test_the_reference_has_every_public_name(pages):
    anchors = set().union(*(parts.anchors for path, parts in pages.items() if path.parent.name == "api"))
    modules = {name: f"patchvote.{module}.{name}" for name, module in patchvote._MODULES.items()}
    assert [name for name, anchor in modules.items() if anchor not in anchors] == []


def test_formulas_options_and_files_of_the_repository_are_shown(site):
    source, page = text_of("method.md"), (site / "method.html").read_text(encoding="utf-8")
    assert page.count("<math") == source.count("\n$$\n") // 2 + source.count("$`") > 40
    assert re.findall(r"ALUMROF|\$`|\$\$|\\[a-z]+", re.sub(r"<script.*?</script>", "", page, flags=re.DOTALL)) == []
    page = (site / "sort.html").read_text(encoding="utf-8")
    assert '<code><span class="option">--link</span></code>' in page  # no line ends within its dashes
    record = "results/default/measured.json"
    assert (site / "repository" / record).read_bytes() == (ROOT / record).read_bytes()


# Parts of a page's text that end beyond the right edge of the window, though no box around them scrolls.
STICKING_OUT = """
[...document.querySelectorAll('.md-content *')].filter(part => {
  const box = part.getBoundingClientRect();
  if (!box.width || box.right <= innerWidth + 1) return false;
  for (let around = part.parentElement; !around.matches('.md-content'); around = around.parentElement)
    if (getComputedStyle(around).overflowX !== 'visible') return false;
  return true;
}).map(part => part.tagName + ' ' + part.textContent.slice(0, 40))
"""


def test_on_a_phone_no_page_is_wider_than_the_screen_and_none_asks_another_host(site, pages, browser):
    faults = []
    for page in pages:
        seen = browser.open(page, width=390, height=800)
        out = browser.evaluate(STICKING_OUT)
        out += [url for url in seen.requests if not url.startswith("file:")]
        wider = browser.evaluate("document.documentElement.scrollWidth - window.innerWidth")
        if out or wider > 0:
            faults.append((page.relative_to(site.resolve()).as_posix(), wider, out))
    assert faults == []
