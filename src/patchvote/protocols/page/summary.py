"""Summaries of results: means and deviations, and the sign test of two voters."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from ..protocol import Protocol
from ..results import Results, Run

NETWORK = "efficientnet-lite0"  # of the main tables and plots


def summarise(protocol: Protocol, results: Results) -> list[dict[str, Any]]:
    """Return the mean over splits of every run and pair, with that of the paper.

    Returns
    -------
    list of dict
        Rows with the keys protocol, setting, pair, voter, recipe, network, splits, mean, deviation (sample standard
        deviation over splits; 0 for a single split) and paper (None where the paper has no such number).
    """
    rows = []
    for run, kept in results.all(protocol.name):
        for pair in dict.fromkeys(cell["pair"] for cell in kept["cells"]):
            values = [cell["accuracy"] for cell in kept["cells"] if cell["pair"] == pair]
            figure = protocol.figure(run.setting, run.voter, pair)
            rows.append(
                {
                    "protocol": run.protocol,
                    "setting": run.setting,
                    "pair": pair,
                    "voter": run.voter,
                    "recipe": run.recipe,
                    "network": run.network,
                    "splits": len(values),
                    "mean": round(float(np.mean(values)), 2),
                    "deviation": round(float(np.std(values, ddof=1)), 2) if len(values) > 1 else 0.0,
                    "paper": figure[0] if figure else None,
                }
            )
    return rows


def main_rows(protocol: Protocol, results: Results, recipe: str = "dense") -> list[dict[str, Any]]:
    """Return the rows of the main tables: those of one recipe with the default network."""
    return [row for row in summarise(protocol, results) if (row["recipe"], row["network"]) == (recipe, NETWORK)]


@dataclasses.dataclass(frozen=True)
class SignTest:
    """Sign test: whether two voters classify equally many photos correctly.

    Parameters
    ----------
    first, second : int
        Number of photos that only the first voter, or only the second, classified correctly.
    p : float
        Probability of a difference at least as large if both were equally good.
    """

    first: int
    second: int
    p: float


def sign_test(results: Results, first: Run, second: Run) -> SignTest | None:
    """Compare two runs photo by photo, over the splits that both have; None where there is no such split.

    A photo that is tested in several splits counts in each of them.
    """
    from scipy.stats import binomtest

    kept = [results.read(first), results.read(second)]
    if kept[0] is None or kept[1] is None:
        return None
    hits = [{(cell["pair"], cell["split"]): cell["hits"] for cell in run["cells"]} for run in kept if run is not None]
    both = sorted(hits[0].keys() & hits[1].keys(), key=str)
    if not both:
        return None
    pairs = [(one, other) for key in both for one, other in zip(hits[0][key], hits[1][key], strict=True)]
    only_first, only_second = pairs.count(("1", "0")), pairs.count(("0", "1"))
    total = only_first + only_second
    return SignTest(only_first, only_second, float(binomtest(only_first, total).pvalue) if total else 1.0)
