"""Plan a protocol: which of its cells to compute, in which order, and which are finished."""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Iterator, Sequence

from ..backbones.names import EMBEDDED, parts_of
from ..errors import PatchvoteError, UntypedNetworkError
from .names import network_name, split_names
from .protocol import Part, Protocol, Setting
from .recipes import parse_recipe
from .results import Results, Run
from .voters import make_voter


@dataclasses.dataclass(frozen=True)
class Selection:
    """Part of a protocol to run; None selects everything.

    Parameters
    ----------
    settings, pairs, voters, recipes, networks : tuples of str
        Names to select. Voters, recipes and networks need not be among those of the protocol.
    splits : int, optional
        Number of splits, counted from the first.
    """

    settings: tuple[str, ...] | None = None
    pairs: tuple[str, ...] | None = None
    voters: tuple[str, ...] | None = None
    recipes: tuple[str, ...] | None = None
    networks: tuple[str, ...] | None = None
    splits: int | None = None

    @classmethod
    def parse(cls, *texts: str | None, splits: int | None = None) -> Selection:
        """Make a selection from comma-separated names, in the order of the parameters.

        Examples
        --------
        >>> Selection.parse(None, None, "nbnn,snbnl(q=1)", splits=2).voters
        ('nbnn', 'snbnl(q=1)')
        """
        settings, pairs, voters, recipes, networks = (split_names(text) for text in (*texts, *[None] * 5)[:5])
        return cls(settings, pairs, voters, recipes, networks, splits)


@dataclasses.dataclass(frozen=True)
class Group:
    """Cells with the same bags: one split, recipe and network, and several voters.

    Parameters
    ----------
    setting, recipe, networks : str
        Names of setting, recipe and networks.
    pair : str or None
        Source and target domain; None where there are no domains.
    split : int
        Number of the split, from 1.
    voters : tuple of str
        Voters whose cells are not finished.
    """

    setting: str
    recipe: str
    networks: str
    pair: str | None
    split: int
    voters: tuple[str, ...]

    @property
    def words(self) -> str:
        """Setting, pair and split, for messages."""
        return " ".join(filter(None, [self.setting, self.pair, f"split {self.split}"]))

    def run(self, protocol: Protocol, voter: str) -> Run:
        """Return the run that the cell of a voter belongs to."""
        return Run(protocol.name, self.setting, voter, self.recipe, network_name(self.networks))


def plan(protocol: Protocol, selection: Selection, results: Results) -> tuple[list[Group], int]:
    """Return the groups to compute, and how many selected cells are already finished.

    Raises
    ------
    PatchvoteError
        A name of the selection is unknown, or existing results belong to splits that were drawn differently.
    """
    settings = [protocol.setting(name) for name in selection.settings or [s.name for s in protocol.settings]]
    _check_pairs(protocol, settings, selection.pairs or ())
    groups, finished = [], 0
    for ((recipe, networks), voters), setting in itertools.product(_voters(protocol, selection).items(), settings):
        runs = {v: Run(protocol.name, setting.name, v, recipe, network_name(networks)) for v in voters}
        for run in runs.values():
            results.check(run, {"drawn": setting.drawn})
        done = {voter: results.done(run) for voter, run in runs.items()}
        for pair, split in _draws(setting, selection):
            unfinished = tuple(voter for voter in voters if (pair, split) not in done[voter])
            finished += len(voters) - len(unfinished)
            if unfinished:
                groups.append(Group(setting.name, recipe, networks, pair, split, unfinished))
    return groups, finished


def by_bags(groups: Sequence[Group]) -> dict[tuple[str, str], list[Group]]:
    """Group the groups by recipe and networks: those of one entry share their bags."""
    result: dict[tuple[str, str], list[Group]] = {}
    for group in groups:
        result.setdefault((group.recipe, group.networks), []).append(group)
    return result


def _check_pairs(protocol: Protocol, settings: Sequence[Setting], selected: Sequence[str]) -> None:
    known = sorted({pair for setting in settings for pair in setting.pairs})
    for pair in selected:
        if pair not in known:
            raise PatchvoteError(f"{pair!r} is not a pair of {protocol.name}. Pairs: {', '.join(known) or 'none'}.")


def _voters(protocol: Protocol, selection: Selection) -> dict[tuple[str, str], list[str]]:
    """Return the selected voters by recipe and networks, without duplicates; refuse unknown names."""
    voters: dict[tuple[str, str], list[str]] = {}
    for part in _parts(protocol, selection):  # which may overlap
        for voter in part.voters:
            make_voter(voter, protocol.voter_settings, calibrated=protocol.calibrated)
        for recipe, networks in itertools.product(part.recipes, part.networks):
            parse_recipe(recipe, "")
            selected = voters.setdefault((recipe, networks), [])
            selected += [voter for voter in part.voters if voter not in selected]
    for _, networks in voters:
        typed = networks in (selection.networks or ())
        if not typed and not set(parts_of(networks)) <= set(EMBEDDED):
            raise UntypedNetworkError(networks, f"the protocol {protocol.name}", "--networks")
    return voters


def _draws(setting: Setting, selection: Selection) -> Iterator[tuple[str | None, int]]:
    """Yield the selected pairs and splits of a setting; pairs with the same training photos follow one another."""
    pairs: list[str | None] = [pair for pair in setting.pairs if pair in (selection.pairs or setting.pairs)]
    pairs = pairs if setting.pairs else [None]
    for split in range(1, min(selection.splits or setting.splits, setting.splits) + 1):
        for pair in sorted(pairs, key=functools.partial(_same_source, setting.fewer)):
            yield pair, split


def _parts(protocol: Protocol, selection: Selection) -> list[Part]:
    """Return the selected parts: a selection replaces the names of the main part, and filters those of the others."""
    selected = selection.voters, selection.recipes, selection.networks
    main = Part(
        *(
            names or defaults
            for names, defaults in zip(selected, (protocol.voters, protocol.recipes, protocol.networks), strict=True)
        )
    )
    others = [
        Part(
            *(
                tuple(name for name in defined if names is None or name in names)
                for names, defined in zip(selected, part, strict=True)
            )
        )
        for part in ((part.voters, part.recipes, part.networks) for part in protocol.also)
    ]
    return [main, *others]


def _same_source(fewer: dict[str, int], pair: str | None) -> tuple[str, bool]:
    """Return the sort key that puts pairs with the same training photos next to each other."""
    source, _, target = (pair or "").partition("-")
    return source, target in fewer
