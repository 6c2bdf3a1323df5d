"""Short names of networks on the Hugging Face hub: a table in networks.toml, and tables of other packages.

``dinov2-small`` stands for ``hf:owner/name@commit/file.onnx?sha256=…``; options may follow, as in
``dinov2-small?whole=class``. A package adds a name by an entry point in the group ``patchvote.networks`` that leads to
a mapping with the fields of `KnownNetwork`.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..errors import NetworkError
from ..utils.schema import Check, flag, record, text, whole
from .hub_names import HubName

_TABLE = Path(__file__).with_name("networks.toml")
_WORD, _NUMBER = text(300), whole(1, 1 << 20)
_FIELDS: Check = record(
    {"repository": _WORD, "licence": _WORD, "features": _NUMBER, "stride": _NUMBER},
    {
        "revision": _WORD,
        "file": _WORD,
        "sha256": _WORD,
        "size": _NUMBER,
        "megabytes": whole(0, 1 << 20),
        "sources": whole(0, 1 << 20),
        "one_size": flag,
        "note": _WORD,
    },
)


@dataclasses.dataclass(frozen=True)
class KnownNetwork:
    """A network with a short name.

    Parameters
    ----------
    name : str
        The short name.
    repository, revision, file, sha256 : str
        Where it is, and which file it must be; all but the repository may be empty.
    licence : str
        Licence of the weights.
    features, stride, size : int
        Features per descriptor, pixels between descriptors, and side of the square input.
    megabytes : int
        Size of the download; 0 where it is not known.
    sources : int
        Number of public projects from which revision and digest are quoted.
    one_size : bool
        Whether the network takes images of one size only, so that photos are seen at one scale.
    note : str
        What to know about it.
    """

    name: str
    repository: str
    licence: str
    features: int
    stride: int
    revision: str = ""
    file: str = ""
    sha256: str = ""
    size: int = 224
    megabytes: int = 0
    sources: int = 0
    one_size: bool = False
    note: str = ""

    @classmethod
    def of(cls, name: str, table: Mapping[str, Any], source: object) -> KnownNetwork:
        """Make a row of a table, which may come from another package.

        Raises
        ------
        NetworkError
            A field is missing or cannot be right.
        """
        plain = dict(table)
        known = {field.name for field in dataclasses.fields(cls)} - {"name"}
        fault = _FIELDS(plain) or next((f" has an unknown field {key!r}" for key in plain if key not in known), None)
        if fault is not None:
            what = f"its {fault[1:]}" if fault.startswith(".") else f"it{fault}"
            raise NetworkError(f"the network {name!r} of {source} cannot be used: {what}.")
        network = cls(name, **plain)
        HubName.parse(network.full_name())  # refuses what cannot be a name
        return network

    def full_name(self, options: str = "") -> str:
        """Return the name that the engine of the hub loads, with further options of the user."""
        digest = f"sha256={self.sha256}" if self.sha256 else ""
        query = "&".join(filter(None, [options, digest]))
        revision, file = self.revision and f"@{self.revision}", self.file and f"/{self.file}"
        return f"hf:{self.repository}{revision}{file}" + (f"?{query}" if query else "")


@functools.cache
def known_networks() -> dict[str, KnownNetwork]:
    """Return the networks of our table, by their short names."""
    from ..utils.reading import read_toml

    return {name: KnownNetwork.of(name, table, _TABLE.name) for name, table in read_toml(_TABLE).items()}


def known_names() -> list[str]:
    """Return the short names of our table.

    Examples
    --------
    >>> known_names()[:2]
    ['dinov2-small', 'dinov2-base']
    """
    return list(known_networks())


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
