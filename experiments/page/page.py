"""The page of results: `docs/results.md` with its tables and plots, made from results alone.

Explanations are in `notes.md` beside the results of a protocol, and are included below its tables.
"""

from __future__ import annotations

from pathlib import Path

from patchvote.errors import PatchvoteError

from ..protocol import PROTOCOLS, Protocol
from ..results import Results
from . import fair, plots, speed, tables

_HEAD = """# Results

Every number in a table comes from a file in `results/`, which holds the raw numbers of every split, the settings,
versions, machine, time and peak memory (the trials of adapting and of evidence: numbers and counts alone). This page is
made from them by `python -m experiments report`. To compute a cell again: `python -m experiments run scene15 --data
DIR --splits 1 --voters snbnl --recipes dense --results elsewhere`. The
photos of every split are listed in `results/*/splits.jsonl`. "Paper" is Kuzborskij, Carlucci and Caputo, "When Naive
Bayes Nearest Neighbours Meet Convolutional Neural Networks", CVPR 2016, with the Hybrid-CNN of Zhou et al.; ours is
with EfficientNet-Lite0 unless a table says otherwise. Accuracy is in per cent, with the deviation over splits.

`dense` and `patch` are the two ways of taking bags: all cells of the feature map at 224 and 448 px, and the paper's
patches of 32, 64 and 128 px, each through the network at 224 px.

What is not as in the paper: descriptors are read after the network's last activation, where the paper reads fc7 before
it (below, "Patches" compares both); NBNN compares descriptors less their mean, of length 1, without positions, and
searches, as LocalNBNN does, in a PCA of 128 features and compares full distances of the few best (`search="pca"`; the
result files have its recall); NBNL and sNBNL have positions everywhere, in the paper with scenes only; sNBNL has a
lambda of 1e-4, in the paper 1; on Office+Caltech NBNL makes 10 of its 30 rounds. "MOP-CNN" assigns every
descriptor to its nearest centre; "MOP-CNN (soft=5)" to the five nearest, as its authors' code does, with weights
scaled to the network's features, and both without the last PCA of that code. The paper's numbers, and how much a
network or recipe costs beside the default, stand in the TOML files of the protocols; the cost is the time per photo of
extraction, from reading to descriptors (`results/bench/accuracy.json`). Numbers in the text about held-out photos
were taken while choosing settings, and are not in `results/`.
"""


# Tables that benchmarks write into folders of the results.
_MEASURED = {"adaptation": "Adapting, where it helps and where it must not", "evidence": "Evidence, measured"}


def write_results(results: Results, docs: Path) -> Path:
    """Write the page and its plots into `docs`; return its path."""
    protocols = [Protocol.load(name) for name in PROTOCOLS]
    with_results = [protocol for protocol in protocols if any(results.all(protocol.name))]
    if not with_results:
        raise PatchvoteError(f"there are no results in {results.folder}. Run a protocol first.")
    path, pictures = docs / "results.md", docs / "results"
    pictures.mkdir(parents=True, exist_ok=True)
    parts = [_HEAD]
    scenes = [protocol for protocol in protocols if protocol.report == "scenes"]
    scenes.sort(key=lambda protocol: protocol not in with_results)
    if any(protocol in with_results for protocol in scenes):
        parts += ["## Scene recognition", tables.scenes(scenes, results)]
        parts += ["### NBNL against sNBNL", speed.speed(scenes, results)]
        parts += [_notes(results, protocol) for protocol in scenes]
    for protocol in with_results:
        if protocol.report in _PARTS:
            parts += _PARTS[protocol.report](protocol, results, pictures)
    parts += _published(Results(results.folder / "published"), protocols)
    for name, title in _MEASURED.items():
        if table := _text(results.folder / name / "table.md"):
            parts += [f"## {title}", table, _text(results.folder / name / "notes.md")]
    if few := [protocol for protocol in with_results if protocol.report == "few"]:
        plots.plot_few(few, results, pictures / "few")
        parts += ["## Few images", "![Accuracy by the number of training images](results/few.png)"]
        for protocol in few:
            parts += [f"### {protocol.title}", tables.few(protocol, results), _notes(results, protocol)]
    gains = [(protocol, table) for protocol in with_results if (table := tables.gains(protocol, results))]
    parts += ["## What each change adds"] if gains else []
    for protocol, table in gains:
        parts += [f"### {protocol.title}", table, _notes(results, protocol, "gains.md")]
    parts.append("## Duplicates that straddle a split")
    parts += [f"- {tables.duplicates(protocol, results)}" for protocol in with_results]
    path.write_text("\n\n".join(part.strip() for part in parts if part.strip()) + "\n", encoding="utf-8")
    return path


def _at_equal_resolution(protocol: Protocol, results: Results, pictures: Path) -> list[str]:
    title = f"## {protocol.title}: at equal resolution"
    return [title, fair.table(protocol, results), _notes(results, protocol)]


def _settings(protocol: Protocol, results: Results, pictures: Path) -> list[str]:
    return [f"## {protocol.title}", _notes(results, protocol), _all_numbers(protocol, results)]


def _patches(protocol: Protocol, results: Results, pictures: Path) -> list[str]:
    plots.plot_patches(protocol, results, pictures / protocol.name)
    parts = ["## Patches: the paper's figures", f"![NBNN by patch size and levels](results/{protocol.name}.png)"]
    return [*parts, _notes(results, protocol), _all_numbers(protocol, results)]


def _domains(protocol: Protocol, results: Results, pictures: Path) -> list[str]:
    parts = ["## Domain adaptation", *_pairs(protocol, results, notes=True)]
    plots.plot_domains(protocol, results, pictures / protocol.name)
    parts.append(f"![The paper's pairs](results/{protocol.name}.png)")
    if compared := speed.speed([protocol], results):
        parts += ["### NBNL against sNBNL with other cameras", compared]
    return [*parts, _notes(results, protocol)]


def _pairs(protocol: Protocol, results: Results, notes: bool = False) -> list[str]:
    parts = []
    for setting in protocol.settings:
        parts += [f"### {protocol.title}, {setting.name}", tables.domains(protocol, setting, results)]
        parts += [protocol.paper_notes.get(setting.name, "")] if notes else []
    return parts


def _times(protocol: Protocol, results: Results, pictures: Path) -> list[str]:
    found = speed.budgets(protocol, results)
    plots.plot_times(found, pictures / protocol.name)
    parts = [f"## {protocol.title}", f"![Accuracy against seconds of training](results/{protocol.name}.png)"]
    return [*parts, speed.sentence(found), speed.budget_table(found), _notes(results, protocol)]


# The part of the page of a protocol that has one of its own, by `report`; the others share a part.
_PARTS = {
    "domains": _domains,
    "patches": _patches,
    "parts": _at_equal_resolution,
    "time": _times,
    "settings": _settings,
}


def _published(results: Results, protocols: list[Protocol]) -> list[str]:
    """Return the tables of a later run on other versions of the same image sets, which may be incomplete."""
    parts = []
    for protocol in protocols:
        if protocol.report == "scenes" and any(results.all(protocol.name)):
            parts += [f"### {protocol.title}", tables.scenes([protocol], results)]
        elif protocol.report == "domains" and any(results.all(protocol.name)):
            parts += _pairs(protocol, results)
    return ["## The photos as published", _text(results.folder / "notes.md"), *parts] if parts else []


def _all_numbers(protocol: Protocol, results: Results) -> str:
    return f"<details><summary>All numbers</summary>\n\n{tables.settings(protocol, results)}\n\n</details>"


def _notes(results: Results, protocol: Protocol, name: str = "notes.md") -> str:
    return _text(results.folder / protocol.name / name)


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8") if path.exists() else ""
