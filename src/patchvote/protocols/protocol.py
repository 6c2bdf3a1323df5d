"""Protocol: what is to be compared on which images, as a value read from a TOML file."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from ..errors import PatchvoteError
from ..utils.reading import read_toml
from ..utils.suggest import nearest
from .schema import fault_of_protocol

_DEFINITIONS = Path(__file__).with_name("definitions")
PROTOCOLS = tuple(sorted(path.stem for path in _DEFINITIONS.glob("*.toml")))
DRAWS = ("random", "lists", "domains")


@dataclasses.dataclass(frozen=True)
class Setting:
    """One way to divide the images of a protocol.

    Parameters
    ----------
    name : str
        Such as "random" or "semi-supervised".
    draw : {"random", "lists", "domains"}
        Images of each class at random; the lists that come with the image set; source and target domain.
    splits : int
        How often.
    train : int
        Training images a class, or source images a class.
    test : int
        Test images a class; 0 means all others.
    fewer : dict
        "domains": source images a class for these targets, instead of `train`.
    labelled : int
        "domains": target images a class that are trained on too.
    pairs : tuple of str
        "domains": source and target, joined by a hyphen.
    main : tuple of str
        "domains": the pairs of the paper's own tables.
    seed : int
        From which all splits are drawn.
    """

    name: str
    draw: str
    splits: int
    train: int = 0
    test: int = 0
    fewer: dict[str, int] = dataclasses.field(default_factory=dict)
    labelled: int = 0
    pairs: tuple[str, ...] = ()
    main: tuple[str, ...] = ()
    seed: int = 0

    @property
    def drawn(self) -> dict[str, Any]:
        """All that decides which photos a split of these images has; kept with results."""
        return {name: getattr(self, name) for name in ("draw", "train", "test", "fewer", "labelled", "seed")}


@dataclasses.dataclass(frozen=True)
class Part:
    """Combinations that a protocol has beside those of all its voters, recipes and networks.

    Parameters
    ----------
    voters, recipes, networks : tuples of str
        All of these with one another.
    """

    voters: tuple[str, ...]
    recipes: tuple[str, ...] = ("dense",)
    networks: tuple[str, ...] = ("efficientnet-lite0",)


@dataclasses.dataclass(frozen=True)
class Gain:
    """A row of the table of what each change adds.

    Parameters
    ----------
    words : str
        What is changed.
    voter, recipe, network : str
        The run that shows it.
    cost : float
        Of its network and recipe, beside the default recipe's; as `benchmarks/accuracy.py` measures it.
    """

    words: str
    voter: str
    recipe: str = "dense"
    network: str = "efficientnet-lite0"
    cost: float = 1.0


@dataclasses.dataclass(frozen=True)
class Protocol:
    """What is to be compared on which images.

    Parameters
    ----------
    name : str
        Also the folder of its results.
    title : str
        Name of the image set in tables.
    source : str
        Who published it.
    layout : str
        Reader of the image set (see `datasets.LAYOUTS`).
    settings : tuple of Setting
        Ways to divide it.
    voters, recipes, networks : tuples of str
        What every table has, unless the caller selects: names as in `voters`, `recipes` and `patchvote extract`.
    also : tuple of Part
        Further combinations, where not all are worth their time.
    voter_settings : dict
        Settings of voters that differ here, by voter.
    paper : dict
        The paper's mean and deviation, by setting, voter and pair ("all" where there are no pairs).
    paper_times : dict
        The paper's accuracy, seconds of training and of testing, by voter.
    report : {"scenes", "domains", "patches", "settings", "few"}
        What is made of its results: a column of the paper's table of image sets, tables of pairs of domains, plots of
        recipes or of a voter's settings, or a curve by the number of training images.
    gains : tuple of Gain
        Rows of a table of what each change adds, beside the first of them.

    Examples
    --------
    >>> protocol = Protocol.load("scene15")
    >>> protocol.title, protocol.settings[0].train, protocol.figure("random", "snbnl", None)
    ('Scene-15', 100, (92.88, 0.89))
    """

    name: str
    title: str
    source: str
    layout: str
    settings: tuple[Setting, ...]
    voters: tuple[str, ...]
    recipes: tuple[str, ...] = ("dense", "patch")
    networks: tuple[str, ...] = ("efficientnet-lite0",)
    also: tuple[Part, ...] = ()
    voter_settings: dict[str, dict[str, Any]] = dataclasses.field(default_factory=dict)
    paper: dict[str, Any] = dataclasses.field(default_factory=dict)
    paper_times: dict[str, Any] = dataclasses.field(default_factory=dict)
    report: str = "scenes"
    gains: tuple[Gain, ...] = ()

    @classmethod
    def load(cls, name: str | Path) -> Protocol:
        """Read a protocol by name, or from a TOML file of the user's own.

        Raises
        ------
        PatchvoteError
            There is none of this name, or the file is not one.
        """
        path = Path(name)
        if str(name) in PROTOCOLS:
            path = _DEFINITIONS / f"{name}.toml"
        elif path.suffix == ".toml" and not path.exists():
            raise PatchvoteError(f"{path} cannot be read: there is no such file.")
        elif path.suffix != ".toml":
            raise PatchvoteError(
                f"there is no protocol {str(name)!r}.{nearest(str(name), PROTOCOLS)} "
                f"There are: {', '.join(PROTOCOLS)}; or name a .toml file."
            )
        try:
            told = {"name": path.stem, **read_toml(path)}
            if (wrong := fault_of_protocol(told)) is not None:
                raise PatchvoteError(f"{path} is not a protocol: {wrong.lstrip('.')}.")
            settings = tuple(_of(Setting, setting, path) for setting in told.pop("settings"))
            gains = tuple(_of(Gain, gain, path) for gain in told.pop("gains", ()))
            also = tuple(_of(Part, part, path) for part in told.pop("also", ()))
            read = {**told, "settings": settings, "gains": gains, "also": also}
            protocol: Protocol = _of(cls, read, path)
        except OSError as error:
            raise PatchvoteError(f"{path} cannot be read: {error.strerror or error}.") from None
        except ValueError as error:
            raise PatchvoteError(f"{path} is not a TOML file: {error}") from None
        except (KeyError, TypeError, AttributeError) as error:
            raise PatchvoteError(f"{path} is not a protocol: {error}.") from None
        for setting in protocol.settings:
            if setting.draw not in DRAWS:
                raise PatchvoteError(f"{path}: draw must be one of {', '.join(DRAWS)}, got {setting.draw!r}.")
        return protocol

    def setting(self, name: str) -> Setting:
        """Return the setting of this name."""
        for setting in self.settings:
            if setting.name == name:
                return setting
        names = [setting.name for setting in self.settings]
        raise PatchvoteError(f"{self.name} has no setting {name!r}.{nearest(name, names)} It has: {', '.join(names)}.")

    def figure(self, setting: str, voter: str, pair: str | None) -> tuple[float, float] | None:
        """Return the paper's mean and deviation in per cent; None where it has none."""
        told = self.paper.get(setting, {}).get(voter, {}).get(pair or "all")
        return None if told is None else (float(told[0]), float(told[1]))


def _of(kind: type[Any], told: dict[str, Any], path: Path) -> Any:
    known = [field.name for field in dataclasses.fields(kind)]
    for key in told:
        if key not in known:
            raise PatchvoteError(f"{path} has an unknown key {key!r}.{nearest(key, known)}")
    return kind(**{key: tuple(value) if isinstance(value, list) else value for key, value in told.items()})
