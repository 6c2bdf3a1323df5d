"""Jobs: learnings that wait for their turn, run in a process of their own, and can be cancelled.

One job runs at a time, so that the network of the server is never short of a core for long. The model of a workspace is
replaced when its job is complete: a job that fails, is cancelled or dies with the server changes nothing.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import queue
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge

from ..errors import PatchvoteError
from ..utils.terminal import say
from .learning import Task
from .problems import Problem, missing, problem_of, without_paths
from .settings import Limits
from .workspaces import Workspace, new_id

_REMEMBERED = 200  # finished jobs whose state can still be read
_GRACE = 2.0  # seconds for the thread to see that its process has ended
_UNEXPECTED = "learning ended unexpectedly. Is there enough memory?"
_MAX_LINE = 100_000  # characters of a line of progress


@dataclasses.dataclass(eq=False)
class Job:
    """One learning."""

    id: str
    workspace: Workspace
    task: Task
    fingerprint: str  # of the labelled photos
    status: str = "waiting"
    stage: str = "start"
    done: int = 0
    total: int = 0
    message: str = ""
    started: float = dataclasses.field(default_factory=time.monotonic)
    ended: float | None = None
    process: subprocess.Popen[str] | None = None
    is_learned: bool = False  # its model is about to become the present one: too late to cancel

    @property
    def is_over(self) -> bool:
        """Whether nothing will change any more."""
        return self.status not in ("waiting", "running")


class Jobs:
    """Runs jobs one after the other; no message shows paths of `folders`."""

    def __init__(self, limits: Limits, registry: CollectorRegistry, folders: list[Path]) -> None:
        self._limits, self._folders = limits, folders
        self._lock = threading.RLock()
        self._jobs: dict[str, Job] = {}  # in the order in which they came
        self._queue: queue.SimpleQueue[Job | None] = queue.SimpleQueue()  # None ends the thread
        self._ended = Counter("patchvote_jobs", "Jobs by how they ended.", ["status"], registry=registry)
        running = Gauge("patchvote_jobs_running", "Jobs that run.", registry=registry)
        running.set_function(lambda: len(self._with_status("running")))
        self._thread = threading.Thread(target=self._work, name="patchvote-jobs", daemon=True)
        self._thread.start()

    def _with_status(self, status: str) -> list[Job]:
        with self._lock:
            return [job for job in self._jobs.values() if job.status == status]

    def submit(self, workspace: Workspace, task: Task, fingerprint: str) -> Job:
        """Queue a job, where the workspace has none and not too many wait."""
        with self._lock:
            self.check_free(workspace)
            if len(self._with_status("waiting")) >= self._limits.waiting_jobs:
                raise Problem(429, "busy", "too many jobs are waiting. Try again later.", 30)
            job = Job(new_id(), workspace, task, fingerprint)
            self._jobs[job.id] = job
            oldest = next(iter(self._jobs.values()))
            if len(self._jobs) > _REMEMBERED and oldest.is_over:
                del self._jobs[oldest.id]
            self._queue.put(job)
            return job

    def get(self, job: str) -> Job:
        """Return a job; those of before a restart are gone."""
        with self._lock:
            if job not in self._jobs:
                raise missing("job")
            return self._jobs[job]

    def of(self, workspace: Workspace) -> Job | None:
        """Return the job of a workspace that waits or runs, if there is one."""
        with self._lock:
            jobs = (job for job in self._jobs.values() if job.workspace.id == workspace.id and not job.is_over)
            return next(jobs, None)

    def check_free(self, workspace: Workspace) -> None:
        """Refuse to begin where a job of the workspace waits or runs."""
        if self.of(workspace) is not None:
            raise Problem(409, "conflict", "this workspace is learning: wait, or cancel that job.")

    def plain(self, job: Job) -> dict[str, Any]:
        """Return the state of a job as plain values."""
        with self._lock:
            waiting = self._with_status("waiting")
            values = {name: getattr(job, name) for name in ("id", "status", "stage", "done", "total", "message")}
            return values | {
                "workspace": job.workspace.id,
                "mode": "fit" if job.task.base is None else "add",
                "position": waiting.index(job) + 1 if job in waiting else 0,
                "seconds": round((job.ended or time.monotonic()) - job.started, 2),
            }

    def cancel(self, job: Job) -> None:
        """End a job, if it is not over or about to be; its workspace stays as it was."""
        with self._lock:
            if job.is_over or job.is_learned:
                return
            self._finish(job, "cancelled")
            process = job.process
        if process is not None:
            process.kill()  # what it has written is removed, or complete
        else:
            shutil.rmtree(job.task.run, ignore_errors=True)

    def close(self) -> None:
        """Cancel all jobs, and wait until their processes have ended."""
        self._queue.put(None)
        for job in list(self._jobs.values()):
            self.cancel(job)
        self._thread.join(_GRACE)

    def _finish(self, job: Job, status: str, message: str = "") -> None:
        job.status, job.message, job.ended = status, without_paths(message, self._folders), time.monotonic()
        self._ended.labels(status).inc()

    def _work(self) -> None:
        while (job := self._queue.get()) is not None:
            status, message = "done", ""
            try:
                self._run(job)
            except Exception as error:  # the jobs that wait have their turn nevertheless
                status, message = "failed", problem_of(error).message
                shutil.rmtree(job.task.run, ignore_errors=True)
            with self._lock:
                if not job.is_over:  # otherwise it was cancelled
                    self._finish(job, status, message)

    def _run(self, job: Job) -> None:
        """Let a process learn, and take over its result, or raise the error with which it ended."""
        with self._lock:
            if job.is_over:  # it was cancelled before its turn
                return
            job.status, job.started = "running", time.monotonic()
            process = job.process = _start()
        late = threading.Timer(self._limits.job_seconds, process.kill)
        late.daemon = True
        late.start()
        end = self._followed(job, process)
        is_late = time.monotonic() - job.started >= self._limits.job_seconds
        late.cancel()
        code = process.wait()
        with self._lock:
            job.is_learned = end.get("end") == "done" and not job.is_over
        if job.is_learned:
            job.workspace.commit_run(Path(job.task.run), job.fingerprint)
            return
        if end.get("end") == "failed" or job.is_over:
            raise PatchvoteError(str(end.get("message")))
        say(f"fault of a job: {end.get('message') or f'the process ended with {code}'}")
        raise PatchvoteError("learning took too long." if is_late else _UNEXPECTED)

    def _followed(self, job: Job, process: subprocess.Popen[str]) -> dict[str, Any]:
        """Hand over the task, show the progress until the process ends, and return how it says that it ended."""
        with contextlib.suppress(BrokenPipeError):
            # Waits until the process reads it: with no lock held, or all requests would wait, too.
            print(json.dumps(dataclasses.asdict(job.task)), file=process.stdin, flush=True)
        end: dict[str, Any] = {}
        for line in iter(lambda: process.stdout.readline(_MAX_LINE) if process.stdout else "", ""):
            with contextlib.suppress(ValueError, TypeError):
                values = dict(json.loads(line))
                end = values if "end" in values else end
                if "stage" in values and not job.is_over:
                    job.stage, job.done, job.total = str(values["stage"]), int(values["done"]), int(values["total"])
        for pipe in filter(None, (process.stdin, process.stdout)):  # until now, stdin tells that the server lives
            with contextlib.suppress(OSError):  # it ended before it had read its task
                pipe.close()
        return end


def _start() -> subprocess.Popen[str]:
    return subprocess.Popen(  # noqa: S603 - our own module
        [sys.executable, "-m", f"{__package__}.learning"],
        stdin=subprocess.PIPE,  # stays open: when the server ends, so does the process
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,  # warnings of libraries, which may name photos
        text=True,
        encoding="utf-8",
    )
