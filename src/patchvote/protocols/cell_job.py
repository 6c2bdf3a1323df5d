"""Compute the cells of a protocol on the workers of an engine.

A task is one voter with one set of training photos, and all cells that share its training. Workers read the bags from
the stores and write every finished cell into the folder of results, as several processes on one machine do; the cell
itself comes back for the progress.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Sequence

from .plan import Group, by_bags
from .runner import Cell, Runner

Work = tuple[Group, ...]
Computed = list[tuple[Group, str, Cell]]


@dataclasses.dataclass(frozen=True)
class CellJob:
    """The job of a worker that computes cells.

    Parameters
    ----------
    runner : function
        Makes the runner of the protocol, once per worker.
    """

    runner: Callable[[], Runner]
    name: str = "cells"
    per_task: int = 1

    def start(self) -> Callable[[Sequence[Work]], list[Computed]]:
        """Open the image set; return the function that computes and stores the cells of some groups."""
        runner = self.runner()
        return lambda works: [list(runner.compute(work)) for work in works]


def works_of(runner: Runner, groups: Sequence[Group]) -> list[Work]:
    """Divide the cells of groups into parts that share nothing: one voter, and one set of training photos."""
    works: list[Work] = []
    for same_bags in by_bags(groups).values():
        for _, same in itertools.groupby(same_bags, lambda group: (group.setting, runner.split(group).train)):
            members = list(same)
            for voter in dict.fromkeys(voter for group in members for voter in group.voters):
                having = [group for group in members if voter in group.voters]
                works.append(tuple(dataclasses.replace(group, voters=(voter,)) for group in having))
    return works
