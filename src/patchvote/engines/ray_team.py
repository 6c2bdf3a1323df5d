"""RayTeam: workers of a Ray cluster that keep what they have read, and are all asked in every step.

A member that ends is replaced, and asked again: its answer depends on the question and the files alone.
"""

from __future__ import annotations

import contextlib
import os
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import ray
from ray import cloudpickle
from ray.exceptions import RayError, RayTaskError

from ..errors import PatchvoteError, first_line
from ..utils.engine import TeamJob

_ATTEMPTS = 3  # to get one answer, before it is taken for granted that the question ends the worker


class RayTeam:
    """Members that answer questions about the part of the data that each has read.

    Parameters
    ----------
    job : TeamJob
        Job that every member starts.
    size : int
        Number of members.
    threads : int
        Cores that each member reserves.
    """

    def __init__(self, job: TeamJob, size: int, threads: int) -> None:
        self.size, self._threads, self._name = size, threads, job.name
        self._job = cloudpickle.dumps(job)  # type: ignore[no-untyped-call]
        self._members = [self._started() for _ in range(size)]

    def ask(self, shared: Any, own: Sequence[Any]) -> list[Any]:
        """Ask every member its own question beside a shared one; return the answers in the order of the members.

        Raises
        ------
        PatchvoteError
            A member ends whenever it is asked.
        """
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
                self._members[number] = self._started()  # also after the last one: `close` ends all members
                if attempt < _ATTEMPTS:
                    call = self._asked(number, held, question)
        raise PatchvoteError(f"a worker of {self._name!r} ends whenever it is asked: {reason}. Is there enough memory?")

    def _asked(self, number: int, held: Any, question: Any) -> Any:
        return self._members[number].ask.options(name=self._name).remote(held, question)

    def _started(self) -> Any:
        actor = ray.remote(_Member).options(
            name=f"patchvote {self._name} {uuid.uuid4().hex[:8]}", num_cpus=self._threads, max_restarts=0
        )
        return actor.remote(self._job, str(Path.cwd()))


class _Member:
    """The actor; it starts its job with the first question, so that an error there is one of the question."""

    def __init__(self, job: bytes, folder: str) -> None:
        self._job, self._folder = job, folder
        self._answer: Callable[[Any, Any], Any] | None = None

    def ask(self, shared: Any, own: Any) -> Any:
        if self._answer is None:
            with contextlib.suppress(OSError):  # relative paths mean the same as in the process that gives them
                os.chdir(self._folder)
            self._answer = cloudpickle.loads(self._job).start()
        return self._answer(shared, own)
