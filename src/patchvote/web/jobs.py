"""Jobs: learnings that wait for their turn, run in a process of their own, and can be cancelled.

One job runs at a time, so that the network of the server is never short of a core for long. The model of a workspace is
replaced when its job is complete: a job that fails, is cancelled or dies with the server changes nothing.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import json
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

from ..utils.terminal import say
from .learning import Task
from .metrics import Metrics
from .problems import Problem, missing, unforeseen, without_paths
from .settings import Limits
from .workspaces import Workspace, new_id

_REMEMBERED = 200  # finished jobs whose state can still be read
_GRACE = 2.0  # seconds for a process to end when it is told to
_MAX_LINE = 100_000  # characters of a line of progress


@dataclasses.dataclass(eq=False)
class Job:
    """One learning; whoever shows it compares `version`, which grows with every change."""

    id: str
    workspace: Workspace
    task: Task
    taught: str  # fingerprint of the labelled photos
    status: str = "waiting"
    stage: str = "start"
    done: int = 0
    total: int = 0
    message: str = ""
    started: float = dataclasses.field(default_factory=time.monotonic)
    ended: float | None = None
    version: int = 0
    process: subprocess.Popen[str] | None = None
    is_learned: bool = False  # its model is about to become the present one: too late to cancel

    @property
    def is_over(self) -> bool:
        """Whether nothing will change any more."""
        return self.status not in ("waiting", "running")

    def set(self, **values: Any) -> None:
        """Change some values."""
        for name, value in values.items():
            setattr(self, name, value)
        self.version += 1


class Jobs:
    """Runs jobs one after the other; no message shows paths of `folders`."""

    def __init__(self, limits: Limits, metrics: Metrics, folders: list[Path]) -> None:
        self._limits, self._metrics, self._folders = limits, metrics, folders
        self._changed = threading.Condition()
        self._jobs: dict[str, Job] = {}
        self._waiting: collections.deque[Job] = collections.deque()
        self._closed = False
        self._thread = threading.Thread(target=self._work, name="patchvote-jobs", daemon=True)
        self._thread.start()

    def submit(self, workspace: Workspace, task: Task, taught: str) -> Job:
        """Queue a job, where the workspace has none and not too many wait."""
        with self._changed:
            self.check_free(workspace)
            if self._closed or len(self._waiting) >= self._limits.waiting_jobs:
                raise Problem(429, "busy", "too many jobs are waiting. Try again later.", 30)
            job = Job(new_id(), workspace, task, taught)
            self._jobs[job.id] = job
            self._waiting.append(job)
            oldest = next(iter(self._jobs.values()))
            if len(self._jobs) > _REMEMBERED and oldest.is_over:
                del self._jobs[oldest.id]
            self._changed.notify()
            return job

    def get(self, job: str) -> Job:
        """Return a job; those of before a restart are gone."""
        with self._changed:
            if job not in self._jobs:
                raise missing("job")
            return self._jobs[job]

    def of(self, workspace: Workspace) -> Job | None:
        """Return the job of a workspace that waits or runs, if there is one."""
        with self._changed:
            jobs = (job for job in self._jobs.values() if job.workspace.id == workspace.id and not job.is_over)
            return next(jobs, None)

    def check_free(self, workspace: Workspace) -> None:
        """Refuse to begin where a job of the workspace waits or runs."""
        if self.of(workspace) is not None:
            raise Problem(409, "conflict", "this workspace is learning: wait, or cancel that job.")

    @property
    def running(self) -> int:
        """Number of jobs that run."""
        return sum(job.status == "running" for job in list(self._jobs.values()))

    def plain(self, job: Job) -> dict[str, Any]:
        """Return the state of a job as plain values."""
        with self._changed:
            return {
                "id": job.id,
                "workspace": job.workspace.id,
                "status": job.status,
                "mode": "fit" if job.task.base is None else "add",
                "stage": job.stage,
                "done": job.done,
                "total": job.total,
                "position": self._waiting.index(job) + 1 if job in self._waiting else 0,
                "seconds": round((job.ended or time.monotonic()) - job.started, 2),
                "message": job.message,
            }

    def cancel(self, job: Job) -> None:
        """End a job, if it is not over or about to be; its workspace stays as it was."""
        with self._changed:
            if job.is_over or job.is_learned:
                return
            with contextlib.suppress(ValueError):
                self._waiting.remove(job)
            self._finish(job, "cancelled")
            process = job.process
        if process is not None:
            _end(process)
        else:
            job.workspace.discard_run(Path(job.task.run))

    def close(self) -> None:
        """Cancel all jobs, and wait until their processes have ended."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        for job in list(self._jobs.values()):
            self.cancel(job)
        self._thread.join(_GRACE)

    def _finish(self, job: Job, status: str, message: str = "") -> None:
        job.set(status=status, message=without_paths(message, self._folders), ended=time.monotonic())
        self._metrics.jobs.labels(status).inc()

    def _fail(self, job: Job, message: str) -> None:
        """End a job, unless it was cancelled, and remove what it wrote."""
        job.workspace.discard_run(Path(job.task.run))
        with self._changed:
            if not job.is_over:
                self._finish(job, "failed", message)

    def _work(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting or self._closed)
                if self._closed:
                    return
                job = self._waiting.popleft()
                job.set(status="running", started=time.monotonic())
                with contextlib.suppress(OSError):
                    job.process = _start()
            try:
                if job.process is None:
                    self._fail(job, "a process for learning could not be started. Try again later.")
                else:
                    self._run(job, job.process)
            except Exception as error:  # of ours: the jobs that wait have their turn nevertheless
                self._fail(job, unforeseen(error).message)

    def _run(self, job: Job, process: subprocess.Popen[str]) -> None:
        """Hand over the task, read what the process tells until it ends, and take over its result."""
        with contextlib.suppress(BrokenPipeError):
            # Waits until the process reads it: with no lock held, or all requests would wait, too.
            print(json.dumps(dataclasses.asdict(job.task)), file=process.stdin, flush=True)
        late = threading.Timer(self._limits.job_seconds, _end, [process])
        late.daemon = True
        late.start()
        end: dict[str, Any] = {}
        for line in iter(lambda: process.stdout.readline(_MAX_LINE) if process.stdout else "", ""):
            with contextlib.suppress(ValueError, TypeError):
                told = dict(json.loads(line))
                end = told if "end" in told else end
                if "stage" in told and not job.is_over:
                    job.set(stage=str(told["stage"]), done=int(told["done"]), total=int(told["total"]))
        is_late = time.monotonic() - job.started >= self._limits.job_seconds
        late.cancel()
        for pipe in filter(None, (process.stdin, process.stdout)):  # until now, stdin tells that the server lives
            with contextlib.suppress(OSError):  # it ended before it had read its task
                pipe.close()
        code = process.wait()
        with self._changed:
            job.is_learned = end.get("end") == "done" and not job.is_over
        if job.is_learned:
            self._commit(job)
        elif end.get("end") == "failed" or job.is_over:
            self._fail(job, str(end.get("message")))
        else:
            say(f"fault of a job: {end.get('message') or f'the process ended with {code}'}")
            message = "learning took too long." if is_late else "learning ended unexpectedly. Is there enough memory?"
            self._fail(job, message)

    def _commit(self, job: Job) -> None:
        """Make the model of a job the present one of its workspace."""
        try:
            job.workspace.commit_run(Path(job.task.run), job.taught)
        except Problem as problem:  # the workspace was removed meanwhile
            self._fail(job, problem.message)
        except OSError as error:
            self._fail(job, f"the model could not be written: {error.strerror}.")
        else:
            with self._changed:
                self._finish(job, "done")


def _start() -> subprocess.Popen[str]:
    return subprocess.Popen(  # noqa: S603 - our own module
        [sys.executable, "-m", f"{__package__}.learning"],
        stdin=subprocess.PIPE,  # stays open: when the server ends, so does the process
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,  # warnings of libraries, which may name photos
        text=True,
        encoding="utf-8",
    )


def _end(process: subprocess.Popen[str]) -> None:
    process.terminate()
    try:
        process.wait(_GRACE)
    except subprocess.TimeoutExpired:
        process.kill()
