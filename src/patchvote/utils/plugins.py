"""Parts that other packages add through entry points."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint


def plugins(group: str) -> list[EntryPoint]:
    """Return the entry points of a group, of all installed packages."""
    import importlib.metadata  # takes a twentieth of the start of a command, and is rarely needed

    return list(importlib.metadata.entry_points(group=group))
