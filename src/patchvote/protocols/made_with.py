"""What a cell was made with: settings, networks, versions, machine and commit; all that is needed to make it again."""

from __future__ import annotations

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

_PACKAGES = ("patchvote", "numpy", "scikit-learn", "faiss-cpu", "onnxruntime", "pillow")
_SOURCE = Path(__file__).resolve().parents[1]


def settings_and_bags(estimator: Any, stores: Sequence[Store]) -> dict[str, Any]:
    """Return what all cells of a run have in common: the estimator's settings, and how its bags were made."""
    recipe = stores[0].recipe
    return {
        "estimator": type(estimator).__name__,
        "settings": {key: _plain(value) for key, value in sorted(estimator.get_params().items())},
        "sampling": {"mode": recipe.mode, "activation": recipe.activation, **dataclasses.asdict(recipe.sampling)},
        "fingerprints": [store.fingerprint for store in stores],
    }


def here() -> dict[str, Any]:
    """Return the versions, the machine and, where the code stands in its repository, the commit of this process."""
    versions = {"python": platform.python_version()}
    versions |= {name: importlib.metadata.version(name) for name in _PACKAGES}
    known = {"versions": versions, "machine": describe(), "commit": commit()}
    return {key: value for key, value in known.items() if value is not None}


@functools.cache
def commit(source: Path = _SOURCE) -> str | None:
    """Return the commit of the code by its short hash, with a plus sign where files were changed since.

    None where the code is installed, or git is not at hand. A repository around it that is not its own does not count:
    the code must stand in `src` of the repository's root.
    """
    git = shutil.which("git")
    if git is None or not (source.parents[1] / ".git").exists() or source.parent.name != "src":
        return None
    try:
        found = _git(git, source, "rev-parse", "--short", "HEAD")
        changed = _git(git, source, "status", "--porcelain", "--untracked-files=no", "--", str(source))
    except (OSError, subprocess.SubprocessError):
        return None
    return found + ("+" if changed else "")


def _git(git: str, folder: Path, *words: str) -> str:
    answer = subprocess.run(  # noqa: S603 - our own words, in our own folder
        [git, "-C", str(folder), *words], capture_output=True, text=True, timeout=10, check=True
    )
    return answer.stdout.strip()


def _plain(value: Any) -> Any:
    if isinstance(value, float) and np.isinf(value):
        return "inf"  # JSON has no infinity
    return value if value is None or isinstance(value, (bool, int, float, str)) else repr(value)
