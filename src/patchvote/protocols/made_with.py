"""Record how a cell was made, to reproduce it: settings, networks, versions, machine and commit."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import importlib.metadata
import platform
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..bags.store import Store
from ..utils.machine import describe

# Packages whose versions matter, each with the names of builds that may be installed in its place.
_PACKAGES = (
    ("patchvote",),
    ("numpy",),
    ("scikit-learn",),
    ("faiss-cpu", "faiss-gpu", "faiss"),
    ("onnxruntime", "onnxruntime-gpu", "onnxruntime-silicon"),
    ("pillow",),
)
_SOURCE = Path(__file__).resolve().parents[1]


def settings_and_bags(estimator: Any, stores: Sequence[Store]) -> dict[str, Any]:
    """Return the part of the record that all cells of a run share: settings of the estimator, origin of its bags."""
    recipe = stores[0].recipe
    return {
        "estimator": type(estimator).__name__,
        "settings": {key: _plain(value) for key, value in sorted(estimator.get_params().items())},
        "sampling": {"mode": recipe.mode, "activation": recipe.activation, **dataclasses.asdict(recipe.sampling)},
        "fingerprints": [store.fingerprint for store in stores],
    }


def here() -> dict[str, Any]:
    """Return versions, machine and, where the code runs from its repository, the commit."""
    versions = {"python": platform.python_version()}
    for names in _PACKAGES:
        versions |= _version(names)
    record = {"versions": versions, "machine": describe(), "commit": commit()}
    return {key: value for key, value in record.items() if value is not None}


def _version(names: Sequence[str]) -> dict[str, str]:
    """Return the first of these packages that is installed, and its version; nothing where none is."""
    for name in names:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            return {name: importlib.metadata.version(name)}
    return {}


@functools.cache
def commit(source: Path = _SOURCE) -> str | None:
    """Return the short hash of the commit of the code, with a plus sign where files were changed since.

    None where the code is installed, or there is no git. Another repository around the code does not count: the code
    must be in `src` of the repository's root.
    """
    git = shutil.which("git")
    if git is None or not (source.parents[1] / ".git").exists() or source.parent.name != "src":
        return None
    try:
        commit_hash = _git(git, source, "rev-parse", "--short", "HEAD")
        changed = _git(git, source, "status", "--porcelain", "--untracked-files=no", "--", str(source))
    except (OSError, subprocess.SubprocessError):
        return None
    return commit_hash + ("+" if changed else "")


def _git(git: str, folder: Path, *arguments: str) -> str:
    done = subprocess.run(  # noqa: S603 - fixed arguments, in the folder of the code
        [git, "-C", str(folder), *arguments], capture_output=True, text=True, timeout=10, check=True
    )
    return done.stdout.strip()


def _plain(value: Any) -> Any:
    """Return a value that JSON can hold."""
    if isinstance(value, float) and np.isinf(value):
        return "inf"
    return value if value is None or isinstance(value, (bool, int, float, str)) else repr(value)
