"""LocalEngine: runs in this process, task after task, the jobs that an engine gives to many workers."""

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
        """Start a team of two; see `Engine.team`."""
        return LocalTeam(job, size=2)


class LocalTeam:
    """Members of a team that all live in this process."""

    def __init__(self, job: TeamJob, size: int) -> None:
        self.size, self._members = size, [job.start() for _ in range(size)]

    def ask(self, shared: Any, own: Sequence[Any]) -> list[Any]:
        """Ask one member after the other; see `Team.ask`."""
        return [answer(shared, question) for answer, question in zip(self._members, own, strict=True)]

    def close(self) -> None:
        """Forget the members."""
        self._members = []
