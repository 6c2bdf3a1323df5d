"""RayEngine: runs jobs on the workers of a Ray cluster (the extra `ray`).

Every worker is an actor with a process of its own, which starts the job once and then does one task after the other. A
worker that ends is replaced; its task is divided until the item that ended it is alone.
"""

from __future__ import annotations

import contextlib
import dataclasses
import ipaddress
import logging
import os
import secrets
import socket
import uuid
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from pathlib import Path
from typing import Any, Self

import ray
from ray import cloudpickle
from ray._private import ray_constants
from ray.exceptions import RayError, RayTaskError

from ..errors import PatchvoteError, first_line
from ..utils.engine import Item, Job, Lost, Result, TeamJob, tasks_of
from ..utils.terminal import counted

_DEATHS_OF_ITEM = 2  # of its worker, when the item is alone; after that it is given up
# Deaths in a row, per worker, without any finished task: then it is not an item that ends the workers. To find one item
# in a task of 64 takes 6 deaths, and 2 more to give it up.
_DEATHS_IN_A_ROW = 10
_ATTEMPTS = 3  # to get one answer of a team, before it is taken for granted that the question ends the worker
_MODE, _TOKEN, _TOKEN_FILE = "RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"
_PATIENCE = 20.0  # seconds until a machine that does not answer is given up


class RayEngine:
    """Runs jobs on the workers of a Ray cluster, each of which reserves some `threads`.

    The cluster is the one at `address`, by default the one that this process is connected to, the one that
    `RAY_ADDRESS` names, or a new one on this machine. There are as many workers as it has cores for, or `workers`.
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
            raise PatchvoteError(f"the cluster has {has}, and a worker needs {threads:,}: use fewer --jobs.")
        self.workers, self.threads, self._fitting = workers or fitting, threads, fitting

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Disconnect from the cluster, if this engine has connected to it."""
        self._connection.close()

    def run(self, job: Job[Item, Result], items: Sequence[Item]) -> Generator[tuple[int, Result | Lost], None, None]:
        """Do all items; yield the number and the result of each as soon as it is known, in any order."""
        with contextlib.closing(_Run(self, job, items)) as running:
            yield from running.results()

    def team(self, job: TeamJob) -> RayTeam:
        """Start a team with as many members as there are workers, or cores for them."""
        # All members have to answer every question: one for whom there is no core would be waited for without end.
        return RayTeam(job, min(self.workers, self._fitting), self.threads)


def _start_actor(job: Any, threads: int) -> Any:
    """Start a worker; it unpickles and starts its job with the first call, so that errors are of that call."""
    name = f"patchvote {job.name} {uuid.uuid4().hex[:8]}"
    actor = ray.remote(_Actor).options(name=name, num_cpus=threads, max_restarts=0)
    return actor.remote(cloudpickle.dumps(job), str(Path.cwd()))  # type: ignore[no-untyped-call]


class _Actor:
    def __init__(self, job: bytes, folder: str) -> None:
        self._job, self._folder = job, folder
        self._started: Callable[..., Any] | None = None

    def ready(self) -> None:
        """Return as soon as the actor has a process."""

    def do(self, *what: Any) -> Any:
        if self._started is None:
            with contextlib.suppress(OSError):  # relative paths mean the same as in the process that asks
                os.chdir(self._folder)
            self._started = cloudpickle.loads(self._job).start()
        return self._started(*what)


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


class _Run:
    """One run of a job: its workers, what they do, and what is left to do."""

    def __init__(self, engine: RayEngine, job: Job[Any, Any], items: Sequence[Any]) -> None:
        self._engine, self._job, self._items = engine, job, items
        tasks = tasks_of(len(items), job.per_task, engine.workers)
        self._left = deque(_Task(numbers) for numbers in tasks)
        self._size = min(engine.workers, len(tasks))
        self._workers: dict[Any, Any] = {}  # by the reference of the call that each is busy with
        self._doing: dict[Any, _Task] = {}  # by the same reference; without those of workers that are being started
        self._idle: list[Any] = []
        self._deaths = 0  # in a row

    def results(self) -> Iterator[tuple[int, Any]]:
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
            call = worker.do.options(name=name).remote([self._items[number] for number in task.numbers])
            self._workers[call], self._doing[call] = worker, task
        missing = self._size - len(self._idle) - len(self._workers)
        for _ in range(min(missing, len(self._left))):
            # Not given a task before it is ready: on a busy cluster, a worker may wait for its core for hours.
            worker = _start_actor(self._job, self._engine.threads)
            self._workers[worker.ready.remote()] = worker

    def _finish(self, call: Any) -> Iterator[tuple[int, Any]]:
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


class RayTeam:
    """Workers that keep what they have read, and are all asked in every step.

    One that ends is replaced and asked again: an answer depends on the question and the files alone.
    """

    def __init__(self, job: TeamJob, size: int, threads: int) -> None:
        self.size, self._threads, self._job = size, threads, job
        self._members = [_start_actor(job, threads) for _ in range(size)]

    def ask(self, shared: Any, own: Sequence[Any]) -> list[Any]:
        """Ask every member its own question beside a shared one; return the answers in the order of the members."""
        held = ray.put(shared)  # sent to each machine once
        calls = [self._asked(number, held, question) for number, question in enumerate(own)]
        return [self._answer(number, call, held, own[number]) for number, call in enumerate(calls)]

    def close(self) -> None:
        """End all members."""
        for member in self._members:
            ray.kill(member)

    def _answer(self, number: int, call: Any, held: Any, question: Any) -> Any:
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                return ray.get(call)
            except RayTaskError as error:
                raise error.cause if isinstance(error.cause, Exception) else error from None
            except RayError as error:
                reason = first_line(error)
                self._members[number] = _start_actor(self._job, self._threads)
                if attempt < _ATTEMPTS:
                    call = self._asked(number, held, question)
        raise PatchvoteError(
            f"a worker of {self._job.name!r} ends whenever it is asked: {reason}. Is there enough memory?"
        )

    def _asked(self, number: int, held: Any, question: Any) -> Any:
        return self._members[number].do.options(name=self._job.name).remote(held, question)


@contextlib.contextmanager
def connected(address: str | None) -> Iterator[None]:
    """Connect to a running cluster, or start one that nobody else can reach, until the end of the block.

    A cluster runs any code that it is sent. By default Ray listens on all network interfaces, and writes the token that
    it asks for into the user's home. A cluster that is started here listens on 127.0.0.1 alone, and its token is only
    in the environment of its processes.
    """
    address = address or os.environ.get("RAY_ADDRESS") or "local"
    statistics = "RAY_USAGE_STATS_ENABLED"
    variables = {statistics: os.environ.get(statistics, "0")}  # patchvote sends nothing anywhere
    with contextlib.ExitStack() as stack:
        if address == "local":
            # Ray has no setting for the address to listen on, but a mode for Windows and macOS that does what is wanted
            # here; it was read from the environment when Ray was imported.
            stack.enter_context(_set(vars(ray_constants), {"ENABLE_RAY_CLUSTER": False}))
            variables |= {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"} | _new_token()
        # Ray itself sets the mode of authentication, which would hold for the next cluster as well.
        stack.enter_context(_set(os.environ, variables | {_MODE: os.environ.get(_MODE)}))
        _forget_token()
        stack.callback(_forget_token)
        stack.callback(ray.shutdown)
        _check_reachable(address)
        try:
            ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
        except Exception as error:  # Ray raises errors of many kinds, and plain exceptions
            raise PatchvoteError(
                f"the Ray cluster {address!r} cannot be used: {first_line(error)}. `ray status` shows more."
            ) from error
        if address == "local":
            _check_private()
        yield


@contextlib.contextmanager
def _set(mapping: Any, values: dict[str, Any]) -> Iterator[None]:
    """Set some items of a mapping, and restore them at the end; None leaves an item out."""
    before = {name: mapping.pop(name, None) for name in values}
    mapping.update({name: value for name, value in values.items() if value is not None})
    try:
        yield
    finally:
        for name in values:
            mapping.pop(name, None)
        mapping.update({name: value for name, value in before.items() if value is not None})


def _new_token() -> dict[str, str]:
    """Return a token for a new cluster, if the user has none: Ray would write one to the home."""
    chosen = any(name in os.environ for name in (_MODE, _TOKEN, _TOKEN_FILE))
    return {} if chosen or (Path.home() / ".ray" / "auth_token").exists() else {_TOKEN: secrets.token_hex(32)}


def _forget_token() -> None:
    """Have Ray look for its token again: it keeps the one of an earlier cluster of this process."""
    with contextlib.suppress(ImportError, AttributeError):  # earlier versions know no tokens
        from ray._raylet import AuthenticationTokenLoader  # type: ignore[attr-defined]

        AuthenticationTokenLoader.instance().reset_cache()


def _check_reachable(address: str) -> None:
    """Refuse an address at which nothing listens; Ray would try it for minutes."""
    host, colon, port = address.rpartition("://")[2].rpartition(":")
    if not (colon and port.isascii() and port.isdigit()):  # "local", "auto", or something that Ray explains
        return
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout=_PATIENCE):
            return
    except (OSError, OverflowError, UnicodeError) as error:
        raise PatchvoteError(
            f"nothing answers at the address {address!r} of a Ray cluster ({first_line(error)}). Is it running, and is "
            "this what `ray start --head` printed there? Without --address, workers start on this machine."
        ) from error


def _check_private() -> None:
    """Refuse a cluster that listens to the network."""
    for node in ray.nodes():  # type: ignore[no-untyped-call]
        listens = node["NodeManagerAddress"]
        if not ipaddress.ip_address(listens).is_loopback:
            raise PatchvoteError(
                f"Ray {ray.__version__} has started a cluster that listens on {listens}, where others may reach it. "
                "Start one yourself (`ray start --head`), and pass its address."
            )
