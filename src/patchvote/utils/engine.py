"""Engine: the interface through which a room has its work done by many workers (`engines/`).

Jobs, items and results travel between machines, so they can be pickled and are small: paths and numbers, never pixels.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Generator, Iterator, Sequence
from typing import Any, Protocol, TypeVar

Item_contra = TypeVar("Item_contra", contravariant=True)
Result_co = TypeVar("Result_co", covariant=True)
Item = TypeVar("Item")
Result = TypeVar("Result")


class Job(Protocol[Item_contra, Result_co]):
    """Work on independent items, each of which may be done twice: a worker may end before it reports a result."""

    @property
    def name(self) -> str:
        """Name of the stage."""

    @property
    def per_task(self) -> int:
        """Largest number of items that a worker gets at once."""

    def start(self) -> Callable[[Sequence[Item_contra]], Sequence[Result_co]]:
        """Open what the job needs, once per worker; return the function that does some items, in order."""


@dataclasses.dataclass(frozen=True)
class Lost:
    """In place of a result: the item ended its worker twice, with the reason as far as it is known."""

    reason: str


class TeamJob(Protocol):
    """Work in which every worker keeps what it has read, and all are asked again and again."""

    @property
    def name(self) -> str:
        """Name of the stage."""

    def start(self) -> Callable[[Any, Any], Any]:
        """Open what the job needs; return the function from a broadcast and a per-worker argument to an answer.

        An answer depends on the arguments and on files alone, not on earlier questions: it may be asked twice.
        """


class Team(Protocol):
    """Workers that are asked together."""

    size: int

    def ask(self, shared: Any, own: Sequence[Any]) -> list[Any]:
        """Ask every worker its own question beside a shared one; return the answers in the order of the workers."""

    def close(self) -> None:
        """End the workers."""


class Engine(Protocol):
    """Runs jobs on workers."""

    def run(self, job: Job[Item, Result], items: Sequence[Item]) -> Generator[tuple[int, Result | Lost], None, None]:
        """Do all items; yield the number of an item and its result as soon as it is known, in any order.

        A worker that ends is replaced, and its items are done again. An exception that the job raises ends the run and
        is raised here.
        """

    def team(self, job: TeamJob) -> Team:
        """Start workers that are asked together."""


def tasks_of(count: int, per_task: int, workers: int) -> list[list[int]]:
    """Divide the numbers of `count` items into tasks of equal size, at least two per worker where there are enough."""
    size = max(1, min(per_task, math.ceil(count / (2 * workers))))
    return [list(range(start, min(start + size, count))) for start in range(0, count, size)]


def in_order(results: Iterator[tuple[int, Any]]) -> Iterator[Any]:
    """Yield results that come in any order in the order of their numbers, each as soon as those before it are there."""
    waiting: dict[int, Any] = {}
    following = 0
    for number, result in results:
        waiting[number] = result
        while following in waiting:
            yield waiting.pop(following)
            following += 1
