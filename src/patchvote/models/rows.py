"""Answers as rows of plain values, the same wherever they are written: CSV, JSON, or a response of the server."""

from __future__ import annotations

from typing import Any

from ..voters.votes import NONE
from .answers import Answer


def row(answer: Answer) -> dict[str, Any]:
    """Return an answer as a dictionary from column to plain value."""
    return {
        "file": answer.name,
        "label": NONE if answer.rejected else answer.label or "",
        "probability": _rounded(answer, answer.probability),
        "likeliest": answer.label or "",
        "runner_up": answer.runner_up or "",
        "runner_up_probability": _rounded(answer, answer.runner_up_probability),
        "error": answer.error.reason if answer.error else "",
        "familiarity": None if answer.familiarity is None else round(answer.familiarity, 4),
    }


def _rounded(answer: Answer, probability: float) -> float | None:
    return None if answer.error is not None else round(probability, 4)
