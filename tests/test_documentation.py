"""The documentation as a site: built strictly and offline, with no broken link, and the same on a phone."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

import pytest

import patchvote
from helpers.browser import start_browser
from helpers.site import ROOT, PageLinks, broken, build, pages_of

pytest.importorskip("material", reason="the site needs the extra docs")

MARKDOWN = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
IMAGE = re.compile(r"<img [^>]*>")

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


def without_code(page):
    """Return the text of a page without its blocks of code."""
    return re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)


def anchors_of(page):
    """Return the anchors that a forge gives to the headings of a page."""
    headings = re.findall(r"^#+ (.+)$", without_code(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    built = build(folder)
    assert built.returncode == 0, built.stderr[-3000:]
    assert "WARNING" not in built.stderr
    return folder


@pytest.fixture(scope="module")
def pages(site):
    return pages_of(site)


def test_every_link_and_anchor_of_the_site_leads_somewhere(pages):
    assert sum(len(page.links) for page in pages.values()) > 1_000
    assert broken(pages) == []


def test_a_link_that_leads_nowhere_is_found(tmp_path):
    (tmp_path / "b.html").write_text('<p id="here">')
    text = '<a href="b.html#here"></a><a href="b.html#there"></a><img src="c.png"><a href="https://example.org/c"></a>'
    (tmp_path / "a.html").write_text(text)
    assert broken(pages_of(tmp_path)) == ["a.html: b.html#there has no such anchor", "a.html: c.png is no file"]


def test_pages_load_nothing_from_other_hosts(site, pages):
    elsewhere = [(page.name, load) for page, parts in pages.items() for load in parts.loads if urlsplit(load).netloc]
    assert elsewhere == []
    styles = "".join(path.read_text(encoding="utf-8") for path in site.rglob("*.css"))
    assert re.findall(r"(?:@import|url\()\s*[\"']?(?:https?:)?//[^)\"']*", styles) == []


def test_every_page_of_the_folder_is_in_the_navigation_and_reached_from_the_first(site, pages):
    reached = {
        (site / urlsplit(link).path).resolve()
        for link in pages[(site / "index.html").resolve()].links
        if link[0] != "#"
    }
    assert {path.name for path in set(pages) - reached} <= {"index.html"}


def test_the_reference_has_every_public_name(site, pages):
    anchors = set().union(*(parts.anchors for path, parts in pages.items() if path.parent.name == "api"))
    modules = {name: f"patchvote.{module}.{name}" for name, module in patchvote._MODULES.items()}
    assert [name for name, anchor in modules.items() if anchor not in anchors] == []


def test_formulas_are_markup_that_browsers_draw_themselves(site):
    source = (ROOT / "docs" / "method.md").read_text(encoding="utf-8")
    page = (site / "method.html").read_text(encoding="utf-8")
    assert page.count("<math") == source.count("\n$$\n") // 2 + source.count("$`") > 40
    assert re.findall(r"ALUMROF|\$`|\$\$|\\[a-z]+", re.sub(r"<script.*?</script>", "", page, flags=re.DOTALL)) == []


def test_no_line_ends_within_the_dashes_of_an_option(site):
    page = (site / "sort.html").read_text(encoding="utf-8")
    assert '<code><span class="option">--link</span></code>' in page
    assert "<code>%2Dy</code>" in page


def test_files_outside_of_the_folder_that_pages_link_to_come_along(site):
    assert (site / "repository/results/check/suggest.jsonl").read_bytes() == (
        ROOT / "results/check/suggest.jsonl"
    ).read_bytes()
    assert "0.2.0" in (site / "changelog.html").read_text(encoding="utf-8")


def test_a_browser_shows_it_at_every_width_and_asks_no_other_host(site):
    with start_browser() as browser:
        for name in ("index", "tutorial", "method", "results", "api/voters", "architecture"):
            for width in (1280, 390):
                seen = browser.open(site / f"{name}.html", width=width, height=800)
                assert [url for url in seen.requests if not url.startswith("file:")] == [], name
                wider = browser.evaluate("document.documentElement.scrollWidth - window.innerWidth")
                assert wider <= 0, f"{name} is {wider} pixels wider than a window of {width}"


def test_on_a_phone_no_page_is_wider_than_the_screen_and_nothing_sticks_out_that_does_not_scroll(site, pages):
    with start_browser() as browser:
        faults = []
        for page in pages:
            browser.open(page, width=390, height=800)
            out = browser.evaluate(STICKING_OUT)
            wider = browser.evaluate("document.documentElement.scrollWidth - window.innerWidth")
            if out or wider > 0:
                faults.append((page.relative_to(site.resolve()).as_posix(), wider, out))
    assert faults == []


def test_what_sticks_out_is_found_and_what_scrolls_is_not(tmp_path):
    wide = '<p style="width: 600px">'
    for name, text in (("out", wide), ("scrolls", f'<div style="overflow-x: auto">{wide}</div>')):
        (tmp_path / f"{name}.html").write_text(f'<div class="md-content"><div>{text}</div></div>')
    with start_browser() as browser:
        found = []
        for name in ("out", "scrolls"):
            browser.open(tmp_path / f"{name}.html", width=390)
            found.append(browser.evaluate(STICKING_OUT))
    assert list(map(len, found)) == [1, 0]


def test_every_picture_says_what_it_shows(site):
    pictures = [(page.name, picture) for page in site.rglob("*.html") for picture in IMAGE.findall(page.read_text())]
    assert len(pictures) > 20
    assert [where for where, picture in pictures if not re.search(r'alt="[^"]{10,}"', picture)] == []


def test_links_between_the_pages_of_the_repository_work_without_the_site():
    faults = []
    anchors = {page: anchors_of(page) for page in MARKDOWN}
    for page in MARKDOWN:
        for link, anchor in re.findall(r"\]\((?![a-z]+:)([^)\s#]*)#?([^)\s]*)\)", without_code(page)):
            target = (page.parent / link).resolve() if link else page
            if not target.exists() or (anchor and target in anchors and anchor not in anchors[target]):
                faults.append(f"{page.relative_to(ROOT)}: {link}#{anchor}")
    assert faults == []


def test_anchors_are_those_of_a_forge(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("# Office+Caltech-10, `dense`: what & how\n\n```\n# no heading\n```\n## From few images\n")
    assert anchors_of(page) == {"officecaltech-10-dense-what--how", "from-few-images"}


def test_links_of_a_page_are_read_from_its_markup():
    page = PageLinks('<link rel="stylesheet" href="a.css"><a id="x" href="#y">z</a><script src="b.js"></script>')
    assert (page.anchors, page.links, page.loads) == ({"x"}, ["#y"], ["a.css", "b.js"])
