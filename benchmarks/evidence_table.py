"""Tables of how good evidence maps are: where they point in collages, and what deleting and inserting cells does.

`benchmarks/evidence.py` measures and writes one line of JSON per set of photos, classifier and map.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from common import ROOT  # noqa: F401 - makes `experiments` importable
from experiments.page.tables import markdown

Trial = dict[str, Any]

MEASURES = {"collages": ("share", "pointing", "smoothed"), "photos": ("deletion", "insertion")}
_TITLES = {
    "share": "in its own quarter",
    "pointing": "points right",
    "smoothed": "points right, smoothed",
    "deletion": "deletion (less is better)",
    "insertion": "insertion (more is better)",
}
_SETS = {"scene15": "Scene-15", "amazon": "Amazon of Office+Caltech-10", "shipped": "photos of scikit-image"}


def read_trials(path: Path) -> list[Trial]:
    """Read the lines of a file; none where there is no such file."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []


def section(trials: Sequence[Trial]) -> str:
    """Return the tables of all sets as Markdown: collages, single photos, and other maps of the same votes."""
    parts = []
    for name in dict.fromkeys(trial["set"] for trial in trials):
        title, same = _SETS.get(name, name), [trial for trial in trials if trial["set"] == name]
        collages = [trial for trial in same if trial["part"] == "collages" and _is_main(trial)]
        photos = [trial for trial in same if trial["part"] == "photos" and _is_main(trial)]
        if collages:
            parts += [f"**{title}: collages of four photos** (per cent; chance is 25)", _table("collages", collages)]
        if photos:
            parts += [f"**{title}: single photos** (mean probability in per cent)", _table("photos", photos)]
        if others := _candidates(same):
            parts += [f"**{title}: leads of other maps over the map in bold** (points)", others]
    return "\n\n".join(parts)


def _is_default(trial: Trial) -> bool:
    """Whether a trial is of the map with which the others of its classifier are compared: its lead is exactly 0."""
    return all(trial[f"{measure}_lead"] == 0 == trial[f"{measure}_lead_error"] for measure in MEASURES[trial["part"]])


def _is_main(trial: Trial) -> bool:
    return _is_default(trial) or trial["map"] in ("less the strongest other", "occlusion", "random", "centre")


def _table(part: str, trials: Sequence[Trial]) -> str:
    """Return one row per classifier and map, compared with the classifier's default map, which is in bold.

    Random maps of collages, which no classifier changes, are one row, the last.
    """
    header = ["classifier and map", *(_TITLES[measure] for measure in MEASURES[part]), part]
    header += ["predictions that are right"] if part == "photos" else []
    rows: dict[str, list[str]] = {}
    for trial in trials:
        is_shared = part == "collages" and trial["map"] == "random"
        name = "any classifier: random" if is_shared else f"{trial['classifier']}: {trial['map']}"
        rows.pop(name, None)  # a name that comes again moves to the end
        cell = _number if is_shared or _is_default(trial) else _compared
        cells = [*(cell(trial, measure) for measure in MEASURES[part]), str(trial["count"])]
        cells += [f"{100 * trial['right']:.0f}"] if part == "photos" else []
        rows[name] = [f"**{name}**" if _is_default(trial) else name, *cells]
    return markdown(header, rows.values())


def _candidates(trials: Sequence[Trial]) -> str:
    """Return the leads of the other maps over the default one; empty if there are none."""
    measures = [(part, measure) for part, names in MEASURES.items() for measure in names]
    by_key = {(trial["part"], trial["classifier"], trial["map"]): trial for trial in trials}
    names = dict.fromkeys(
        (trial["classifier"], trial["map"]) for trial in trials if trial["part"] == "photos" and not _is_main(trial)
    )
    rows = []
    for classifier, kind in names:
        found = [(by_key.get((part, classifier, kind)), measure) for part, measure in measures]
        cells = ["" if trial is None else _number(trial, f"{measure}_lead", sign="+") for trial, measure in found]
        rows.append([f"{classifier}: {kind}", *cells])
    return markdown(["classifier and map", *(_TITLES[measure] for _, measure in measures)], rows) if rows else ""


def _number(trial: Trial, name: str, sign: str = "") -> str:
    return f"{100 * trial[name]:{sign}.1f} ± {100 * trial[f'{name}_error']:.1f}"


def _compared(trial: Trial, name: str) -> str:
    """Return a mean, and in brackets its lead over the default map on the same collages or photos."""
    return f"{100 * trial[name]:.1f} ({_number(trial, f'{name}_lead', sign='+')})"
