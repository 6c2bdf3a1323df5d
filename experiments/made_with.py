"""Record how a cell was made, to reproduce it: settings, networks, versions, machine and commit."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import importlib.metadata
import platform
import subprocess
from pathlib import Path
from typing import Any

import numpy as np

from patchvote.bags.store import Store
from patchvote.utils.machine import cores

# Packages whose versions matter, each with the names of builds that may be installed in its place.
_PACKAGES = (
    ("patchvote",),
    ("numpy",),
    ("scikit-learn",),
    ("faiss-cpu", "faiss-gpu", "faiss"),
    ("onnxruntime", "onnxruntime-gpu", "onnxruntime-silicon"),
    ("pillow",),
)
_ROOT = Path(__file__).resolve().parents[1]


def settings_and_bags(estimator: Any, store: Store) -> dict[str, Any]:
    """Return the part of the record that all cells of a run share: settings of the estimator, origin of its bags."""
    recipe = store.recipe
    return {
        "estimator": type(estimator).__name__,
        "settings": {key: _plain(value) for key, value in sorted(estimator.get_params().items())},
        "sampling": {"mode": recipe.mode, "activation": recipe.activation, **dataclasses.asdict(recipe.sampling)},
        "fingerprints": [store.fingerprint],
    }


def here() -> dict[str, Any]:
    """Return versions, machine and, where the code runs from its repository, the commit."""
    versions = {"python": platform.python_version()}
    for names in _PACKAGES:
        for name in names:
            with contextlib.suppress(importlib.metadata.PackageNotFoundError):
                versions[name] = importlib.metadata.version(name)
                break
    record = {"versions": versions, "machine": machine(), "commit": commit()}
    return {key: value for key, value in record.items() if value is not None}


def machine() -> dict[str, Any]:
    """Return processor, cores and system: they matter for times, and do not identify the machine."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        processor = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "unknown")
    except OSError:
        processor = platform.processor()
    return {"processor": processor, "cores": cores(), "system": f"{platform.system()} {platform.machine()}"}


@functools.cache
def commit(root: Path = _ROOT) -> str | None:
    """Return the short hash of the commit, with a plus sign where `src` or `experiments` has changed since.

    None where the code is not in a repository of its own, or there is no git.
    """
    if not (root / ".git").exists():
        return None
    git = ["git", "-C", str(root)]
    try:
        head = subprocess.run([*git, "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=True)
        changed = subprocess.run([*git, "diff", "--quiet", "HEAD", "--", "src", "experiments"], check=False).returncode
    except (OSError, subprocess.SubprocessError):
        return None
    return head.stdout.strip() + ("+" if changed else "")


def _plain(value: Any) -> Any:
    """Return a value that JSON can hold."""
    if isinstance(value, float) and np.isinf(value):
        return "inf"
    return value if value is None or isinstance(value, (bool, int, float, str)) else repr(value)
