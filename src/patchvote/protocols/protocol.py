"""Protocol: what is compared on which images, read from a TOML file."""

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
        Name of the setting, such as "random" or "semi-supervised".
    draw : {"random", "lists", "domains"}
        How images are divided: each class at random; by the lists that come with the image set; or into source and
        target domain.
    splits : int
        Number of splits.
    train : int
        Training images per class; with "domains", source images per class.
    test : int
        Test images per class; 0 means all that are not trained on.
    fewer : dict
        Source images per class for some target domains, instead of `train`; only for "domains".
    labelled : int
        Labelled target images per class that are also trained on; only for "domains".
    pairs : tuple of str
        Source and target domain, joined by a hyphen; only for "domains".
    main : tuple of str
        Pairs of the paper's tables; only for "domains".
    seed : int
        Seed from which all splits are drawn.
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
        """Everything that determines which photos a split has; stored with the results."""
        return {name: getattr(self, name) for name in ("draw", "train", "test", "fewer", "labelled", "seed")}


@dataclasses.dataclass(frozen=True)
class Part:
    """Combinations that a protocol runs in addition to all its voters, recipes and networks.

    Parameters
    ----------
    voters, recipes, networks : tuples of str
        Names, of which every combination is run.
    """

    voters: tuple[str, ...]
    recipes: tuple[str, ...] = ("dense",)
    networks: tuple[str, ...] = ("efficientnet-lite0",)


@dataclasses.dataclass(frozen=True)
class Gain:
    """A row of the table that shows the gain of each change.

    Parameters
    ----------
    words : str
        Description of the change, as in the table.
    voter, recipe, network : str
        Names of the run that measures the change.
    cost : float
        Time of extraction relative to the default network and recipe, as measured by `benchmarks/accuracy.py`.
    """

    words: str
    voter: str
    recipe: str = "dense"
    network: str = "efficientnet-lite0"
    cost: float = 1.0


@dataclasses.dataclass(frozen=True)
class Quoted:
    """A row of the paper's tables with numbers of another paper.

    Parameters
    ----------
    name : str
        Name of the system, with its authors and year.
    setting : str
        Setting under which the paper has the row.
    figures : dict
        Accuracy in per cent, or accuracy and deviation, by pair ("all" where there are no pairs).

    Examples
    --------
    >>> Quoted("A", "random", {"all": 90}).figure(None), Quoted("A", "random", {"all": [90, 1]}).figure("a-b")
    ((90.0, 0.0), None)
    """

    name: str
    setting: str
    figures: dict[str, Any]

    def figure(self, pair: str | None) -> tuple[float, float] | None:
        """Return mean and deviation in per cent; None where the paper has a dash."""
        figure = self.figures.get(pair or "all")
        if figure is None:
            return None
        mean, deviation = figure if isinstance(figure, list) else (figure, 0.0)
        return float(mean), float(deviation)


@dataclasses.dataclass(frozen=True)
class Protocol:
    """What is compared on which images.

    Parameters
    ----------
    name : str
        Name of the protocol, and of the folder of its results.
    title : str
        Name of the image set in tables.
    source : str
        Publication of the image set.
    layout : str
        Reader of the image set (see `datasets.LAYOUTS`).
    settings : tuple of Setting
        Ways to divide the image set into training and test images.
    voters, recipes, networks : tuples of str
        Names that are run unless the caller selects others, as in `voters`, `recipes` and `patchvote extract`.
    also : tuple of Part
        Further combinations, where running every combination would take too long.
    voter_settings : dict
        Settings of voters that differ from their defaults, by voter.
    paper : dict
        The paper's mean and deviation, by setting, voter and pair ("all" where there are no pairs).
    paper_times : dict
        The paper's accuracy, seconds of training and of testing, by voter.
    paper_notes : dict
        What a reader must know about the paper's numbers, by setting.
    quoted : tuple of Quoted
        Rows of other papers that the paper's tables quote.
    report : {"scenes", "domains", "patches", "settings", "few", "parts", "time"}
        What the page shows of its results: a column of the paper's table of image sets, tables of pairs of domains,
        plots of recipes or of a voter's settings, a curve by the number of training images, comparisons with the pooled
        image, or a curve of accuracy over training time.
    calibrated : bool
        Whether every voter holds training images out, so that its probabilities and rejections can be compared; the
        seconds of training then include that of the calibration.
    gains : tuple of Gain
        Rows of the table that compares each change with the first row.

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
    paper_notes: dict[str, str] = dataclasses.field(default_factory=dict)
    quoted: tuple[Quoted, ...] = ()
    report: str = "scenes"
    calibrated: bool = False
    gains: tuple[Gain, ...] = ()

    @classmethod
    def load(cls, name: str | Path) -> Protocol:
        """Read a protocol by name, or from a TOML file of the user.

        Raises
        ------
        PatchvoteError
            There is no protocol of this name, or the file is not a protocol.
        """
        path = Path(name)
        if str(name) in PROTOCOLS:
            path = _DEFINITIONS / f"{name}.toml"
        elif path.suffix == ".toml" and not path.exists():
            raise PatchvoteError(f"{path} cannot be read: there is no such file.")
        elif path.suffix != ".toml":
            raise PatchvoteError(
                f"there is no protocol {str(name)!r}.{nearest(str(name), PROTOCOLS)} Or name a .toml file."
            )
        try:
            values = {"name": path.stem, **read_toml(path)}
            _check_keys(cls, values, path)  # first: a mistyped key would otherwise be called missing
            if (fault := fault_of_protocol(values)) is not None:
                raise PatchvoteError(f"{path} is not a protocol: {fault.lstrip('.')}.")
            settings = tuple(_make(Setting, setting, path) for setting in values.pop("settings"))
            gains = tuple(_make(Gain, gain, path) for gain in values.pop("gains", ()))
            also = tuple(_make(Part, part, path) for part in values.pop("also", ()))
            quoted = tuple(_make(Quoted, row, path) for row in values.pop("quoted", ()))
            made = {"settings": settings, "gains": gains, "also": also, "quoted": quoted}
            protocol: Protocol = _make(cls, {**values, **made}, path)
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
        """Return the paper's mean and deviation in per cent; None where the paper has no such number."""
        figure = self.paper.get(setting, {}).get(voter, {}).get(pair or "all")
        return None if figure is None else (float(figure[0]), float(figure[1]))


def _check_keys(kind: type[Any], values: dict[str, Any], path: Path) -> None:
    """Refuse keys that are no fields of a dataclass, and suggest the nearest."""
    known = [field.name for field in dataclasses.fields(kind)]
    for key in values:
        if key not in known:
            raise PatchvoteError(f"{path} has an unknown key {key!r}.{nearest(key, known)}")


def _make(kind: type[Any], values: dict[str, Any], path: Path) -> Any:
    _check_keys(kind, values, path)
    return kind(**{key: tuple(value) if isinstance(value, list) else value for key, value in values.items()})
