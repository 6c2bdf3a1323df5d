"""The paper's experiments as commands: a protocol is data, and running it fills a folder of results.

A protocol (`definitions/*.toml`, or a file of the user) defines the image set, splits, voters and recipes. A result is
one number with everything that is needed to reproduce it. Tables and plots are made from results alone.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from .protocol import PROTOCOLS, Protocol

if TYPE_CHECKING:
    from .experiment import Experiment, Outcome, Watch, run_protocol
    from .plan import Selection
    from .results import Results

# Imported on first access: reading a protocol needs no scikit-learn.
_HOME = {
    "Experiment": "experiment",
    "Outcome": "experiment",
    "Results": "results",
    "Selection": "plan",
    "Watch": "experiment",
    "run_protocol": "experiment",
}

__all__ = ["PROTOCOLS", "Experiment", "Outcome", "Protocol", "Results", "Selection", "Watch", "run_protocol"]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f".{_HOME[name]}", __name__), name)
