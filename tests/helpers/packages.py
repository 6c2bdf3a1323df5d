"""A package of somebody else's, as an installer would leave it: a module, and metadata with its entry points."""

from __future__ import annotations

from pathlib import Path


def install(folder: Path, module: str, source: str, entry_points: str) -> Path:
    """Write a package into a folder, which has to be on Python's path for others to see it."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{module}.py").write_text(source)
    info = folder / f"{module}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {module}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(entry_points)
    return folder
