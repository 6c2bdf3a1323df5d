"""LocalEngine: runs jobs in this process, task after task.

It does by the same jobs what an engine with many workers does, so it shows whether a difference comes from the cluster.
Functions that take an engine need none on one machine: without one they run as a single pipeline, which is faster.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence

from ..utils.engine import Item, Job, Lost, Result, tasks_of


class LocalEngine:
    """Runs jobs in this process."""

    def run(self, job: Job[Item, Result], items: Sequence[Item]) -> Generator[tuple[int, Result | Lost], None, None]:
        """Do all items in order; see `Engine.run`."""
        work = job.start()
        for task in tasks_of(len(items), job.per_task, workers=1):
            yield from zip(task, work([items[number] for number in task]), strict=True)
