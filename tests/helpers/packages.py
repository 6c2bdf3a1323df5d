"""A package of somebody else's, as an installer would leave it: a module, and metadata with its entry points."""

from __future__ import annotations

import shutil
import tomllib
from pathlib import Path


def install(folder: Path, module: str, source: str, entry_points: str) -> Path:
    """Write a package into a folder, which has to be on Python's path for others to see it."""
    info = folder / f"{module}-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {module}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(entry_points)
    if source:
        (folder / f"{module}.py").write_text(source)
    return folder


def install_project(folder: Path, project: Path) -> Path:
    """Install the package of a project folder, as its pyproject.toml describes it, into a folder on Python's path."""
    described = tomllib.loads((project / "pyproject.toml").read_text(encoding="utf-8"))
    (package,) = described["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    lines = [
        line
        for group, entries in described["project"]["entry-points"].items()
        for line in [f"[{group}]", *(f"{name} = {place}" for name, place in entries.items())]
    ]
    shutil.copytree(project / package, folder / package, ignore=shutil.ignore_patterns("__pycache__"))
    return install(folder, package, "", "\n".join(lines) + "\n")
