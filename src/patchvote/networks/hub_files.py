"""Which files of the hub a name means, and where they are on this machine.

A name with a commit whose files are in the cache needs no connection, nor the hub's library. For a branch, a tag or no
revision at all, the hub is asked which commit it has now; without a connection or the library, the commit of the last
time counts.
"""

from __future__ import annotations

import dataclasses
import posixpath
from collections.abc import Collection, Iterator
from pathlib import Path

from ..errors import NetworkError
from .hub_cache import SETTINGS, Snapshot, is_offline, remember, repository_folder, snapshot_of
from .hub_names import HubName, is_plain_file

# Files that a name without a file means, in this order: an image tower comes before a graph that also takes text.
_USUAL = ("onnx/vision_model.onnx", "vision_model.onnx", "onnx/model.onnx", "model.onnx")


@dataclasses.dataclass(frozen=True)
class HubFiles:
    """Files of a network in the hub's cache.

    Parameters
    ----------
    name : HubName
        Name with commit and file.
    graph : path
        ONNX file.
    """

    name: HubName
    graph: Path

    def settings(self, file: str) -> Path | None:
        """Return the path of a file of settings, or None where the repository has none."""
        return self._snapshot.file(file)

    @property
    def _snapshot(self) -> Snapshot:
        return Snapshot(self.name.repository, self.name.revision)

    def weights(self, location: str, *, local: bool) -> Path:
        """Return the path of a file of weights, named relative to the graph; download it where it is not there.

        Raises
        ------
        NetworkError
            It is not in the cache, and no connection may be made, or the hub does not have it.
        """
        file = posixpath.normpath(posixpath.join(posixpath.dirname(self.name.file), location))
        path = self._snapshot.file(file)
        if path is not None:
            return path
        if not is_plain_file(file):
            raise NetworkError(f"{self.graph} has weights in {location[:80]!r}, which is not a file in its folder.")
        if local or is_offline():
            raise NetworkError(
                f"{self.name} has weights in {file}, which is not in the hub's cache, and no connection may be made. "
                "Download it once with a connection."
            )
        from .hub_download import download

        return download(self.name.repository, self.name.revision, file)


def files_of(name: HubName, *, local: bool = False) -> HubFiles:
    """Find the files of a network; download those that are not in the cache.

    Parameters
    ----------
    name : HubName
        Name of the network.
    local : bool, default False
        Whether no connection may be made; the user's variable ``HF_HUB_OFFLINE`` says the same.

    Raises
    ------
    NetworkError
        The files are not there; the message says what to do.
    """
    cached = snapshot_of(name.repository, name.revision)
    if cached is not None and name.has_commit and cached.has(name):
        return _located(name, cached)
    if local or is_offline():
        return _cached(name, cached)
    from .hub_download import NoConnectionError, commit_and_files, download

    try:
        commit, listed = commit_and_files(name.repository, name.revision)
    except NoConnectionError:
        if cached is not None and (chosen := usual_graph(name, cached.graphs())) is not None and cached.has(chosen):
            return _located(chosen, cached)
        raise
    chosen = usual_graph(name, [file for file in listed if is_plain_file(file, ".onnx")])
    if chosen is None or (name.file and name.file not in listed):
        raise NetworkError(_no_graph(name, listed))
    for file in (*(settings for settings in SETTINGS if settings in listed), chosen.file):
        download(name.repository, commit, file)
    remember(name.repository, name.revision, commit)
    return _located(chosen, Snapshot(name.repository, commit))


def cached_files(name: str) -> Iterator[Path]:
    """Yield the files in the cache of the commit that a name means; none where it is not cached. Nothing is asked."""
    parsed = HubName.parse(name)
    snapshot = snapshot_of(parsed.repository, parsed.revision)
    if snapshot is not None and snapshot.folder.is_dir():
        yield from (path for path in sorted(snapshot.folder.rglob("*")) if path.is_file())


def _located(name: HubName, snapshot: Snapshot) -> HubFiles:
    return HubFiles(dataclasses.replace(name, revision=snapshot.commit), snapshot.folder / name.file)


def _cached(name: HubName, snapshot: Snapshot | None) -> HubFiles:
    """Return the files that the cache has, without a connection."""
    chosen = None if snapshot is None else usual_graph(name, snapshot.graphs())
    if snapshot is None or chosen is None or not snapshot.has(chosen):
        raise NetworkError(
            f"{name} is not in the hub's cache ({repository_folder(name.repository).parent}), and no connection may be "
            "made. Download it once with a connection: unset HF_HUB_OFFLINE, and run the same command."
        )
    return _located(chosen, snapshot)


def usual_graph(name: HubName, graphs: Collection[str]) -> HubName | None:
    """Return a name with the file that it means among the ONNX files of a repository, or None where none is usual."""
    if name.file:
        return name
    usual = [file for file in _USUAL if file in graphs]
    only = list(graphs) if len(graphs) == 1 else []
    return dataclasses.replace(name, file=(usual or only)[0]) if usual or only else None


def _no_graph(name: HubName, listed: Collection[str]) -> str:
    graphs = sorted(file for file in listed if file.lower().endswith(".onnx"))
    if not graphs:
        return f"{name.repository} has no ONNX file. Look for one that has: many are by onnx-community and Xenova."
    shown = ", ".join(graphs)[:500]
    missing = f"has no file {name.file}" if name.file else f"has {len(graphs)} ONNX files, and none has a usual name"
    example = HubName(name.repository, name.revision, graphs[0])
    return f"{name.repository} {missing}: name one of {shown}, as in {example}."
