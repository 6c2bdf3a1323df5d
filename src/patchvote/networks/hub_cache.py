"""The cache of the Hugging Face hub on this machine, read without its library and without a connection.

The library keeps one folder per repository: ``snapshots/COMMIT/FILE`` are links to ``blobs/ETAG``, and
``refs/REVISION`` holds the commit that a branch or tag had when it was last asked for. A blob of a large file has the
file's SHA-256 as its name.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import re
from pathlib import Path

from ..errors import NetworkError
from ..utils.files import write_atomically
from ..utils.reading import read_text
from .hub_names import HubName, is_commit

SETTINGS = ("preprocessor_config.json", "config.json")  # files that describe the network's input, where they exist

_TRUE = ("1", "ON", "YES", "TRUE")  # values of the library's own variables
_SHA256 = re.compile(r"[0-9a-f]{64}")


def cache_folder() -> Path:
    """Return the folder of the hub's cache, by the variables that the library reads."""
    for name in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"):
        if folder := os.environ.get(name):
            return Path(folder).expanduser()
    home = os.environ.get("XDG_CACHE_HOME") or Path("~", ".cache")
    return Path(os.environ.get("HF_HOME") or Path(home, "huggingface")).expanduser() / "hub"


def is_offline() -> bool:
    """Whether the user has forbidden connections to the hub."""
    return any(os.environ.get(name, "").upper() in _TRUE for name in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"))


@dataclasses.dataclass(frozen=True)
class Snapshot:
    """One commit of a repository in the cache.

    Parameters
    ----------
    repository : str
        Owner and name of the repository.
    commit : str
        The commit.
    """

    repository: str
    commit: str

    @property
    def folder(self) -> Path:
        """Folder of the files of this commit."""
        return repository_folder(self.repository) / "snapshots" / self.commit

    def file(self, name: str) -> Path | None:
        """Return the path of a file, or None where it is not in the cache."""
        path = self.folder / name
        with contextlib.suppress(OSError):
            if path.is_file():
                return path
        return None

    def graphs(self) -> list[str]:
        """Return the names of the ONNX files of this commit that are in the cache, sorted."""
        return sorted(path.relative_to(self.folder).as_posix() for path in self.folder.rglob("*.onnx"))

    def has(self, name: HubName) -> bool:
        """Whether the graph that a name means, and a description of its input, are in the cache."""
        described = "pixels" in name.options or any(self.file(settings) for settings in SETTINGS)
        return bool(name.file) and self.file(name.file) is not None and described


def repository_folder(repository: str) -> Path:
    """Return the folder of a repository in the cache."""
    return cache_folder() / f"models--{repository.replace('/', '--')}"


def cached_repositories() -> list[str]:
    """Return the repositories of networks that the cache has files of, sorted."""
    names = [path.name.removeprefix("models--") for path in sorted(cache_folder().glob("models--*--*"))]
    return [name.replace("--", "/", 1) for name in names]


def snapshot_of(repository: str, revision: str) -> Snapshot | None:
    """Return the snapshot that a revision had when it was last asked for, or None where the cache does not know it."""
    if is_commit(revision):
        return Snapshot(repository, revision)
    with contextlib.suppress(OSError, ValueError):
        commit = read_text(_reference(repository, revision), 200).strip()
        return Snapshot(repository, commit) if is_commit(commit) else None
    return None


def remember(repository: str, revision: str, commit: str) -> None:
    """Write down which commit a branch or tag has now, where the library would, so that it works offline later."""
    if not is_commit(revision):
        with contextlib.suppress(OSError):  # the cache may be read-only
            path = _reference(repository, revision)
            path.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(path, [commit.encode()])


def _reference(repository: str, revision: str) -> Path:
    return repository_folder(repository) / "refs" / (revision or "main")


def is_cached(name: str) -> bool:
    """Whether a name is pinned and all that it needs is in the cache; no connection is made."""
    try:
        parsed = HubName.parse(name)
    except NetworkError:
        return False
    return parsed.is_pinned and Snapshot(parsed.repository, parsed.revision).has(parsed)


def announced_digest(path: Path) -> str | None:
    """Return the SHA-256 that the hub announced for a file in the cache; None for small files, and without links."""
    try:
        target = path.readlink().name
    except OSError:
        return None
    return target if _SHA256.fullmatch(target) else None
