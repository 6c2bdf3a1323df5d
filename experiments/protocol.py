"""Protocol: what is compared on which images, read from a TOML file."""

from __future__ import annotations

import dataclasses
import tomllib
from pathlib import Path
from typing import Any

from patchvote.errors import PatchvoteError
from patchvote.utils.terminal import nearest

_DEFINITIONS = Path(__file__).with_name("definitions")
PROTOCOLS = tuple(sorted(path.stem for path in _DEFINITIONS.glob("*.toml")))


@dataclasses.dataclass(frozen=True)
class Setting:
    """One way to divide the images of a protocol."""

    name: str
    draw: str  # "random": each class at random; "lists": published lists; "domains": source and target domain
    splits: int
    train: int = 0  # training images per class; with "domains", source images per class
    test: int = 0  # test images per class; 0 for all that are not trained on
    fewer: dict[str, int] = dataclasses.field(default_factory=dict)  # source images per class for some targets
    labelled: int = 0  # labelled target images per class that are also trained on
    pairs: tuple[str, ...] = ()  # source and target domain, joined by a hyphen
    main: tuple[str, ...] = ()  # pairs of the paper's tables
    seed: int = 0

    @property
    def drawn(self) -> dict[str, Any]:
        """Everything that determines which photos a split has; stored with the results."""
        return {name: getattr(self, name) for name in ("draw", "train", "test", "fewer", "labelled", "seed")}


@dataclasses.dataclass(frozen=True)
class Part:
    """Names of which every combination is run in addition to those of the protocol."""

    voters: tuple[str, ...]
    recipes: tuple[str, ...] = ("dense",)
    networks: tuple[str, ...] = ("efficientnet-lite0",)


@dataclasses.dataclass(frozen=True)
class Protocol:
    """What is compared on which images."""

    name: str  # also that of the folder of its results
    title: str  # the image set, in tables
    source: str  # publication of the image set
    layout: str  # reader of the image set (`datasets.LAYOUTS`)
    settings: tuple[Setting, ...]
    voters: tuple[str, ...]
    recipes: tuple[str, ...] = ("dense", "patch")
    networks: tuple[str, ...] = ("efficientnet-lite0",)
    also: tuple[Part, ...] = ()
    voter_settings: dict[str, dict[str, Any]] = dataclasses.field(default_factory=dict)
    paper: dict[str, Any] = dataclasses.field(default_factory=dict)  # mean, deviation by setting, voter, pair or "all"
    paper_times: dict[str, Any] = dataclasses.field(default_factory=dict)  # accuracy and seconds of training by voter

    @classmethod
    def load(cls, name: str | Path) -> Protocol:
        """Read a protocol by name, or from a TOML file.

        Examples
        --------
        >>> protocol = Protocol.load("scene15")
        >>> protocol.title, protocol.settings[0].train, protocol.figure("random", "snbnl-paper", None)
        ('Scene-15', 100, (92.88, 0.89))
        """
        path = _DEFINITIONS / f"{name}.toml" if str(name) in PROTOCOLS else Path(name)
        if path.suffix != ".toml":
            raise PatchvoteError(f"there is no protocol {str(name)!r}.{nearest(str(name), PROTOCOLS)}")
        try:
            values = {"name": path.stem, **tomllib.loads(path.read_text(encoding="utf-8"))}
            for key, kind in (("settings", Setting), ("also", Part)):
                values[key] = [_make(kind, part) for part in values.get(key, ())]
            protocol: Protocol = _make(cls, values)
        except (OSError, ValueError, TypeError) as error:
            raise PatchvoteError(f"{path} is not a protocol: {error}.") from None
        return protocol

    def setting(self, name: str) -> Setting:
        """Return the setting of this name."""
        names = [setting.name for setting in self.settings]
        if name not in names:
            raise PatchvoteError(
                f"{self.name} has no setting {name!r}.{nearest(name, names)} It has: {', '.join(names)}."
            )
        return self.settings[names.index(name)]

    def figure(self, setting: str, voter: str, pair: str | None) -> tuple[float, float] | None:
        """Return the paper's mean and deviation in per cent; None where the paper has no such number."""
        figure = self.paper.get(setting, {}).get(voter, {}).get(pair or "all")
        return None if figure is None else (float(figure[0]), float(figure[1]))


def _make(kind: Any, values: dict[str, Any]) -> Any:
    return kind(**{key: tuple(value) if isinstance(value, list) else value for key, value in values.items()})
