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
    plots.plot_patches(Protocol.load("scene15-patches"), results, pictures / "scene15-patches")
    plots.plot_times(tables.budgets(Protocol.load("scene15-time"), results), pictures / "scene15-time")
    return page


def _domains(
    number: int, *, adapted: bool = False, recipe: str = "dense", name: str = "office-caltech"
) -> Callable[[Results], str]:
    protocol = Protocol.load(name)
    setting = protocol.settings[number]
    return lambda results: tables.domains(protocol, setting, results, adapted=adapted, recipe=recipe)


def _fair(name: str, number: int = 0) -> Callable[[Results], str]:
    protocol = Protocol.load(name)
    return lambda results: fair.table(protocol, protocol.settings[number], results)


def _scenes(name: str, whole: str | None = None) -> Callable[[Results], str]:
    protocols = Protocol.load(name), None if whole is None else Protocol.load(whole)
    return lambda results: tables.accuracies(protocols[0], results, protocols[1])


_VERSUS = (("nbnl", "snbnl-paper"), ("nbnl", "snbnl-rule"), ("nbnl", "snbnl"))
_TABLES: dict[str, Callable[[Results], str]] = {
    "default": lambda results: tables.default_voter(results.folder / "default" / "measured.json"),
    "scenes": _scenes("scene15"),
    "nbnl": lambda results: fair.versus(Protocol.load("scene15"), _VERSUS, results),
    "times": lambda results: tables.times(Protocol.load("scene15-time"), results),
    "indoor": _scenes("mit67-part", "mit67"),
    "sun": _scenes("sun397-part", "sun397"),
    "unsupervised": _domains(0),
    "unsupervised, patches": _domains(0, recipe="patch"),
    "unsupervised, adapted": _domains(0, adapted=True),
    "semi-supervised": _domains(1),
    "semi-supervised, adapted": _domains(1, adapted=True),
    "clutter": _domains(0, name="clutter"),
    "scenes, parts": _fair("scene15"),
    "unsupervised, parts": _fair("office-caltech", 0),
    "semi-supervised, parts": _fair("office-caltech", 1),
}
