"""Fill the tables of `docs/results.md`, and draw its plots, from results alone.

A table stands between `<!-- name -->` and `<!-- end of name -->`; the text around it is written by hand.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from patchvote.errors import PatchvoteError

from ..protocol import Protocol
from ..results import Results
from . import fair, plots, tables


def write_results(results: Results, docs: Path) -> Path:
    """Fill the tables of `results.md` in `docs`, and draw its plots beside it; return the page's path."""
    page, pictures = docs / "results.md", docs / "results"
    pictures.mkdir(exist_ok=True)
    text = page.read_text(encoding="utf-8")
    for name, make in _TABLES.items():
        start, end = f"<!-- {name} -->", f"<!-- end of {name} -->"
        if text.count(start) != 1 or text.count(end) != 1:
            raise PatchvoteError(f"{page} needs {start} and {end} once each.")
        text = text[: text.index(start)] + f"{start}\n{make(results)}\n" + text[text.index(end) :]
    page.write_text(text, encoding="utf-8")
    few = [Protocol.load(name) for name in ("amazon-few", "scene15-few")]
    plots.plot_few(few, results, pictures / "few")
    plots.plot_patches(Protocol.load("scene15-patches"), results, pictures / "scene15-patches")
    plots.plot_times(tables.budgets(Protocol.load("scene15-time"), results), pictures / "scene15-time")
    return page


def _domains(number: int) -> Callable[[Results], str]:
    office = Protocol.load("office-caltech")
    return lambda results: tables.domains(office, office.settings[number], results)


def _fair(name: str, number: int = 0) -> Callable[[Results], str]:
    protocol = Protocol.load(name)
    return lambda results: fair.table(protocol, protocol.settings[number], results)


_TABLES: dict[str, Callable[[Results], str]] = {
    "default": lambda results: tables.default_voter(results.folder / "default" / "measured.json"),
    "scenes": lambda results: tables.scenes(Protocol.load("scene15"), results),
    "times": lambda results: tables.times(Protocol.load("scene15-time"), results),
    "unsupervised": _domains(0),
    "semi-supervised": _domains(1),
    "scene15-parts": _fair("scene15-parts"),
    "office-parts, unsupervised": _fair("office-parts", 0),
    "office-parts, semi-supervised": _fair("office-parts", 1),
    "scene15-few": lambda results: tables.few(Protocol.load("scene15-few"), results),
}
