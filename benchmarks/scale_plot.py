"""Plot of time and peak memory against descriptors and classes, from the records of `scale.py`.

python benchmarks/scale_plot.py results/bench/scale.json docs/scale
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np

from common import save_plot

# What the names of records begin with, by panel, and the word behind the size.
_PANELS = (
    ("time of one pass", "peak memory of one pass", "descriptors"),
    ("time of a step", "peak memory of a step", "classes"),
)


def curve(records: list[dict[str, Any]], begin: str, by: str) -> tuple[list[int], list[float]]:
    """Return sizes and values of the records whose names begin so.

    Examples
    --------
    >>> curve([{"name": "time of a step, 1,000 classes", "value": 0.9}], "time of a step", "classes")
    ([1000], [0.9])
    """
    form = re.compile(rf"{begin}, ([\d,]+) {by}")
    found = [(form.fullmatch(record["name"]), record["value"]) for record in records]
    points = [(int(match[1].replace(",", "")), float(value)) for match, value in found if match]
    return [size for size, _ in points], [value for _, value in points]


def draw(records: list[dict[str, Any]], file: Path) -> None:
    """Draw times beside a line of exponent 1, and peaks, as PNG and SVG."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 6), layout="constrained")
    panels = figure.subplots(2, 2, sharex="col")
    for (times, peaks), (time, memory, by) in zip(panels.T, _PANELS, strict=True):
        sizes, seconds = curve(records, time, by)
        times.loglog(sizes, seconds, "o-", label=f"{time} of sNBNL")
        times.loglog(sizes, seconds[-1] * np.array(sizes) / sizes[-1], ":", color="gray", label="exponent 1")
        times.set_ylabel("seconds")
        peaks.semilogx(*curve(records, memory, by), "o-", label=memory)
        peaks.set_ylabel("peak memory, GB")
        peaks.set_ylim(bottom=0)
        peaks.set_xlabel(by)
        for panel in (times, peaks):
            panel.grid(alpha=0.3)
            panel.legend(fontsize=8)
    save_plot(figure, file)


if __name__ == "__main__":
    draw(json.loads(Path(sys.argv[1]).read_text()), Path(sys.argv[2]))
