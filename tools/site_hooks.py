"""Hooks of MkDocs: what the site shows beyond the folder `docs`, and formulas without scripts.

- Pages link to records, benchmarks and other files of the repository (``../results/…``). The site gets a copy of each
  file that is linked to, below ``repository/``, so that every link works without a forge.
- CONTRIBUTING.md, CHANGELOG.md and experiments/README.md stand where forges look for them, and are pages of the site.
- Formulas are LaTeX between ``$$`` lines, or between ``$` `` and `` `$`` in a sentence, as forges read it. They become
  MathML, which browsers draw themselves: no script, no font, no other host.
- Names of options (``--sort-into``) are marked, so that no line ends within their dashes.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable
from pathlib import Path

from latex2mathml.converter import convert
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parent.parent
PAGES = {
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "experiments/README.md": "experiments.md",
}
PLACES = {**PAGES, "README.md": "index.md"}  # where links to files at the top lead to
SOURCES = {page: source for source, page in PAGES.items()}
COPIES = "repository"  # folder of the site for files outside of docs/

_LINK = re.compile(r"(?<=\]\()(?![a-z]+:|#|/)([^)\s#]+)(#[^)\s]*)?(?=\))")
# Formulas in a sentence are found here, too: their backticks would be taken for those of code.
_CODE = re.compile(r"^(`{3,}|~{3,}).*?^\1|(?P<formula>\$`[^`]+`\$)|`[^`\n]+`", re.MULTILINE | re.DOTALL)
_OPTION = re.compile(r"(?<![\w-])--?[a-z][\w-]*")
_FORMULA = re.compile(r"^\$\$\n(?P<block>.+?)\n\$\$$|\$`(?P<inline>[^`]+)`\$", re.MULTILINE | re.DOTALL)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that stand at the top of the repository, and the files that pages link to."""
    for source, page in PAGES.items():
        files.append(File.generated(config, page, abs_src_path=str(ROOT / source)))
    wanted = {
        target
        for file in files.documentation_pages()
        for target in _outside(_text_of(file), _source_of(file))
        if target not in PLACES
    }
    for target in sorted(wanted):
        if not (ROOT / target).is_file():
            raise PluginError(f"a page links to {target}, which is no file of the repository")
        files.append(File.generated(config, f"{COPIES}/{target}", abs_src_path=str(ROOT / target)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Point links to files outside of docs/ at their copies, and set formulas aside, which are not Markdown."""
    source = _source_of(page.file)
    markdown = _outside_code(markdown, lambda text: _LINK.sub(lambda found: _target(found, source), text))
    page.meta["formulas"] = formulas = []

    def set_aside(found: re.Match[str]) -> str:
        block = found["block"]
        formulas.append(convert(block or found["inline"], display="block" if block else "inline"))
        return f"FORMULA{len(formulas) - 1}ALUMROF"

    return _outside_code(markdown, lambda text: _FORMULA.sub(set_aside, text))


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Put the formulas into the finished page, and mark the names of options in its sentences."""
    formulas = page.meta.get("formulas", [])
    html = re.sub(
        r"(?<=<code>)[^<]*(?=</code>)", lambda code: _OPTION.sub(r'<span class="option">\g<0></span>', code[0]), html
    )
    return re.sub(r"FORMULA(\d+)ALUMROF", lambda found: formulas[int(found[1])], html)


def _source_of(file: File) -> str:
    """Return the path of a page in the repository."""
    return SOURCES.get(file.src_uri, f"docs/{file.src_uri}")


def _text_of(file: File) -> str:
    return (ROOT / _source_of(file)).read_text(encoding="utf-8")


def _outside(markdown: str, source: str) -> set[str]:
    """Return the paths in the repository, outside of docs/, that a page links to."""
    found: set[str] = set()

    def note(link: re.Match[str]) -> str:
        path = _path(link[1], source)
        if not path.startswith("docs/"):
            found.add(path)
        return link[0]

    _outside_code(markdown, lambda text: _LINK.sub(note, text))
    return found


def _path(link: str, source: str) -> str:
    """Return the path in the repository that a link of a page means.

    >>> _path("../results/check/suggest.jsonl", "docs/check.md"), _path("docs/check.md", "CHANGELOG.md")
    ('results/check/suggest.jsonl', 'docs/check.md')
    """
    return posixpath.normpath(posixpath.join(posixpath.dirname(source), link))


def _target(found: re.Match[str], source: str) -> str:
    """Return a link as it is in the site."""
    path = _path(found[1], source)
    place = PLACES.get(path) or (path.removeprefix("docs/") if path.startswith("docs/") else f"{COPIES}/{path}")
    start = posixpath.dirname(source.removeprefix("docs/")) if source.startswith("docs/") else "."
    return posixpath.relpath(place, start or ".") + (found[2] or "")


def _outside_code(markdown: str, change: Callable[[str], str]) -> str:
    """Change a text except for its code."""
    pieces, end = [], 0
    for code in _CODE.finditer(markdown):
        if code["formula"]:
            continue
        pieces += [change(markdown[end : code.start()]), code[0]]
        end = code.end()
    return "".join([*pieces, change(markdown[end:])])
