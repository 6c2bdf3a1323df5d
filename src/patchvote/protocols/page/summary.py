"""Summaries of results: means and deviations over splits."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..protocol import Protocol
from ..results import Results

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
