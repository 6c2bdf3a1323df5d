"""RayEngine: runs jobs on the workers of a Ray cluster (the extra `ray`).

Every worker is an actor with a process of its own, which starts the job once (loads the network, opens the store) and
then does one task after the other. Tasks are handed out one at a time to whichever worker is free, so a slow worker
delays only its own task. A worker that ends is replaced. Its task is divided until the item that ended it is alone; an
item that ends its worker twice when it is alone is given up.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import uuid
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from pathlib import Path
from typing import Any, Generic, Self

import ray
from ray import cloudpickle
from ray.exceptions import RayError, RayTaskError

from ..errors import PatchvoteError, first_line
from ..utils.counting import counted
from ..utils.engine import Item, Job, Lost, Result, TeamJob, tasks_of
from .ray_cluster import connected
from .ray_team import RayTeam

_DEATHS_OF_ITEM = 2  # of its worker, when the item is alone; after that it is given up
# Deaths in a row, per worker, without any finished task: then it is not an item that ends the workers. To find one item
# in a task of 64 takes 6 deaths, and 2 more to give it up.
_DEATHS_IN_A_ROW = 10


class RayEngine:
    """Runs jobs on the workers of a Ray cluster.

    Parameters
    ----------
    address : str, optional
        Address of a running cluster; by default the one that `RAY_ADDRESS` names, or a new one on this machine. If this
        process is connected to a cluster already, that one is used.
    workers : int, optional
        Number of workers; by default as many as the cluster has cores for.
    threads : int, default 1
        Cores that each worker reserves.

    Raises
    ------
    PatchvoteError
        The cluster cannot be reached, or has too few cores for one worker.
    """

    def __init__(self, address: str | None = None, *, workers: int | None = None, threads: int = 1) -> None:
        self._connection = contextlib.ExitStack()
        if not ray.is_initialized():
            self._connection.enter_context(connected(address))
        resources: dict[str, float] = ray.cluster_resources()  # type: ignore[no-untyped-call]
        fitting = int(resources.get("CPU", 0)) // threads
        if fitting < 1:
            self.close()
            has = counted(int(resources.get("CPU", 0)), "core")
            raise PatchvoteError(
                f"the cluster has {has}, and a worker was to have {threads:,} of them: try fewer --jobs (in Python, "
                "threads)."
            )
        self.workers, self.threads, self._fitting = workers or fitting, threads, fitting

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Disconnect from the cluster, if this engine has connected to it."""
        self._connection.close()

    def run(self, job: Job[Item, Result], items: Sequence[Item]) -> Generator[tuple[int, Result | Lost], None, None]:
        """Do all items; see `Engine.run`."""
        with contextlib.closing(_Run(self, job, items)) as running:
            yield from running.results()

    def team(self, job: TeamJob) -> RayTeam:
        """Start a team with as many members as there are workers, or cores for them; see `TeamEngine.team`."""
        # All members have to answer every question: one for whom there is no core would be waited for without end.
        return RayTeam(job, min(self.workers, self._fitting), self.threads)


class _Worker(Generic[Item, Result]):
    """The actor. It unpickles and starts its job with the first task, so that an error there is one of the task."""

    def __init__(self, job: bytes, folder: str) -> None:
        self._job, self._folder = job, folder
        self._work: Callable[[Sequence[Item]], Sequence[Result]] | None = None

    def ready(self) -> None:
        """Return as soon as the actor has a process."""

    def work(self, items: Sequence[Item]) -> list[Result]:
        if self._work is None:
            with contextlib.suppress(OSError):  # relative paths mean the same as in the process that gives them
                os.chdir(self._folder)
            self._work = cloudpickle.loads(self._job).start()
        return list(self._work(items))


@dataclasses.dataclass(frozen=True)
class _Task:
    """Numbers of the items of a task, and how often a worker ended while it had only this one item."""

    numbers: list[int]
    deaths: int = 0

    def after_death(self) -> list[_Task]:
        """Return the tasks to do instead; none if the item is given up."""
        if len(self.numbers) > 1:
            half = len(self.numbers) // 2
            return [_Task(self.numbers[:half]), _Task(self.numbers[half:])]
        return [_Task(self.numbers, self.deaths + 1)] if self.deaths + 1 < _DEATHS_OF_ITEM else []


class _Run(Generic[Item, Result]):
    """One run of a job: its workers, what they do, and what is left to do."""

    def __init__(self, engine: RayEngine, job: Job[Item, Result], items: Sequence[Item]) -> None:
        self._engine, self._job, self._items = engine, job, items
        tasks = tasks_of(len(items), job.per_task, engine.workers)
        self._left = deque(_Task(numbers) for numbers in tasks)
        self._size = min(engine.workers, len(tasks))
        self._workers: dict[Any, Any] = {}  # by the reference of the call that each is busy with
        self._doing: dict[Any, _Task] = {}  # by the same reference; without those of workers that are being started
        self._idle: list[Any] = []
        self._deaths = 0  # in a row

    def results(self) -> Iterator[tuple[int, Result | Lost]]:
        """Hand out tasks and yield results until every item has one."""
        while self._left or self._doing:
            self._hand_out()
            for call in ray.wait(list(self._workers))[0]:
                yield from self._finish(call)

    def close(self) -> None:
        """End all workers."""
        for worker in [*self._idle, *self._workers.values()]:
            ray.kill(worker)

    def _hand_out(self) -> None:
        """Give tasks to idle workers, and start missing workers."""
        while self._left and self._idle:
            worker, task = self._idle.pop(), self._left.popleft()
            name = f"{self._job.name} ({counted(len(task.numbers), 'item')})"
            call = worker.work.options(name=name).remote([self._items[number] for number in task.numbers])
            self._workers[call], self._doing[call] = worker, task
        missing = self._size - len(self._idle) - len(self._workers)
        for _ in range(min(missing, len(self._left))):
            # Not given a task before it is ready: on a busy cluster, a worker may wait for its core for hours.
            worker = self._started_worker()
            self._workers[worker.ready.remote()] = worker

    def _started_worker(self) -> Any:
        actor = ray.remote(_Worker).options(
            name=f"patchvote {self._job.name} {uuid.uuid4().hex[:8]}", num_cpus=self._engine.threads, max_restarts=0
        )
        return actor.remote(cloudpickle.dumps(self._job), str(Path.cwd()))  # type: ignore[no-untyped-call]

    def _finish(self, call: Any) -> Iterator[tuple[int, Result | Lost]]:
        """Take what a worker returns, or replace a worker that has ended."""
        worker, task = self._workers.pop(call), self._doing.pop(call, None)
        try:
            results = ray.get(call)
        except RayTaskError as error:
            self._idle.append(worker)
            raise error.cause if isinstance(error.cause, Exception) else error from None
        except RayError as error:  # the worker, its machine or the connection to it has ended
            yield from self._after_death(task, first_line(error))
            return
        self._idle.append(worker)
        if task is not None:
            self._deaths = 0
            yield from zip(task.numbers, results, strict=True)

    def _after_death(self, task: _Task | None, reason: str) -> Iterator[tuple[int, Lost]]:
        self._deaths += 1
        if self._deaths > _DEATHS_IN_A_ROW * self._size:
            raise PatchvoteError(
                f"{self._deaths} workers of {self._job.name!r} have ended one after the other, whatever they got "
                f"({reason}). Is patchvote installed on every machine of the cluster, and is there enough memory?"
            )
        if task is None:
            return
        again = task.after_death()
        self._left.extendleft(reversed(again))
        if not again:
            yield task.numbers[0], Lost(reason)
