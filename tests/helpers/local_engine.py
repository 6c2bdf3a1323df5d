"""LocalEngine: runs jobs in this process, task after task.

It does by the same jobs what an engine with many workers does, so it shows whether a difference comes from the cluster.
Functions that take an engine need none on one machine: without one they run as a single pipeline, which is faster.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any

from patchvote.utils.engine import Item, Job, Lost, Result, TeamJob, tasks_of


class LocalEngine:
    """Runs jobs in this process."""

    def run(self, job: Job[Item, Result], items: Sequence[Item]) -> Generator[tuple[int, Result | Lost], None, None]:
        """Do all items in order; see `Engine.run`."""
        work = job.start()
        for task in tasks_of(len(items), job.per_task, workers=1):
            yield from zip(task, work([items[number] for number in task]), strict=True)

    def team(self, job: TeamJob) -> LocalTeam:
        """Start a team of two; see `TeamEngine.team`."""
        return LocalTeam(job, size=2)


class LocalTeam:
    """Members of a team that all live in this process.

    Parameters
    ----------
    job : TeamJob
        Job that every member starts.
    size : int
        Number of members.
    """

    def __init__(self, job: TeamJob, size: int) -> None:
        self.size, self._members = size, [job.start() for _ in range(size)]

    def ask(self, shared: Any, own: Sequence[Any]) -> list[Any]:
        """Ask one member after the other; see `Team.ask`."""
        return [answer(shared, question) for answer, question in zip(self._members, own, strict=True)]

    def close(self) -> None:
        """Forget the members."""
        self._members = []
