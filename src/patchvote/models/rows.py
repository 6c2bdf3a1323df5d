"""Answers as rows of plain values, the same wherever they are written: CSV, JSON, or a response of the server."""

from __future__ import annotations

from typing import Any

from .answers import Answer


def row(answer: Answer) -> dict[str, Any]:
    """Return an answer as a dictionary from column to plain value; a rejected photo has no probability of its label."""
    return {
        "file": answer.name,
        "label": answer.label or "",
        "probability": _rounded(answer.probability),
        "likeliest": answer.likeliest or "",
        "likeliest_probability": None if answer.error else _rounded(answer.likeliest_probability),
        "runner_up": answer.runner_up or "",
        "runner_up_probability": None if answer.error else _rounded(answer.runner_up_probability),
        "error": answer.error.reason if answer.error else "",
        "familiarity": _rounded(answer.familiarity),
    }


def _rounded(share: float | None) -> float | None:
    return None if share is None else round(share, 4)
