"""Jobs that learn: what they report, how they end, and requests that meet at an awkward moment."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import errno
import json
import os
import subprocess
import sys
import threading
import unittest.mock

import pytest

pytest.importorskip("fastapi")

from prometheus_client import CollectorRegistry

from helpers.waiting import wait_for
from helpers.web import ENDLESS, files, let_jobs_run, model_file, refusal, settings, submitted, taught
from patchvote.web import jobs as jobs_module
from patchvote.web.jobs import Jobs
from patchvote.web.learning import Task
from patchvote.web.models import Models
from patchvote.web.problems import Problem
from patchvote.web.routes import Context, photos
from patchvote.web.routes.teaching import EventStream
from patchvote.web.settings import Limits
from patchvote.web.workspaces import Workspaces

PROGRAM = """
from patchvote.errors import PatchvoteError
from patchvote.web import learning

def learn(task, tell):
    {}

learning.learn = learn
learning.main()
"""
TASK = {"photos": "photos", "run": "run", "bags": "bags", "labelled": [], "unlabelled": []}
MANY = [["0" * 64, "n" * 200] for _ in range(2_000)]  # photos whose names are more than a pipe holds


@contextlib.contextmanager
def process(work: str):
    """Start the process of a job that does this instead of learning, and send it its task."""
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    with subprocess.Popen([sys.executable, "-c", PROGRAM.format(work)], text=True, **pipes) as job:
        job.stdin.write(json.dumps(TASK) + "\n")
        job.stdin.flush()
        yield job


def test_a_process_tells_its_progress_and_why_it_fails_without_paths_or_values_and_ends_with_its_server():
    expected = {
        "raise PatchvoteError('there are no photos.')": ("failed", "there are no photos."),
        "raise MemoryError": ("failed", "there is not enough memory to learn from so many photos."),
        "open('/nowhere/secret')": ("failed", f"a file could not be read or written: {os.strerror(errno.ENOENT)}."),
        "raise KeyError('secret')": ("fault", "KeyError at <string>:6"),
    }
    with contextlib.ExitStack() as stack:
        started = [stack.enter_context(process(work)) for work in expected]
        printing = stack.enter_context(process("print('hello'); tell('fit', 1, 2)"))
        waiting = stack.enter_context(process("tell('fit', 0, 1); import time; time.sleep(600)"))
        unheard = stack.enter_context(
            process("import time; [tell(f'{n}', 0, time.sleep(0.01) or 1) for n in range(60_000)]")
        )
        for job, (end, message) in zip(started, expected.values(), strict=True):
            (line,) = job.stdout.read().splitlines()
            assert json.loads(line) == {"end": end, "message": message}
        lines = [json.loads(line) for line in printing.stdout.read().splitlines()]
        assert lines == [{"stage": "fit", "done": 1, "total": 2}, {"end": "done"}]
        assert "hello" in printing.stderr.read()
        for job, pipe in ((waiting, waiting.stdin), (unheard, unheard.stdout)):
            assert json.loads(job.stdout.readline())["done"] == 0
            pipe.close()  # as the system does when the server ends
            assert job.wait(60) == 1


@pytest.fixture
def workspace(tmp_path):
    return Workspaces(tmp_path / "workspaces", Limits()).create()


@pytest.fixture
def jobs(tmp_path):
    made = Jobs(Limits(waiting_jobs=1), CollectorRegistry(), [tmp_path])
    yield made
    made.close()


def _begun(jobs, workspace, **more):
    """Return a job without photos, which fails as soon as it has begun."""
    with workspace.new_run() as run:
        values = TASK | {"photos": str(workspace.folder / "photos"), "run": str(run)} | more
        return jobs.submit(workspace, Task(**values), "")


def _ended(job):
    wait_for(lambda: job.is_over)
    return job.status


def _runs(workspace):
    return sorted(path.name for path in (workspace.folder / "runs").glob("*"))


def test_a_process_that_does_not_read_its_task_keeps_nobody_waiting_and_has_only_so_much_time(
    tmp_path, workspace, monkeypatch
):
    let_jobs_run(monkeypatch, "import time; time.sleep(600)")  # as while it imports
    jobs = Jobs(Limits(job_seconds=4), CollectorRegistry(), [tmp_path])
    first = _begun(jobs, workspace, unlabelled=MANY)
    wait_for(lambda: first.status == "running")
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        assert pool.submit(jobs.plain, first).result(3)
    jobs.cancel(first)
    second = _begun(jobs, workspace, unlabelled=MANY)
    assert (_ended(second), second.message) == ("failed", "learning took too long.")
    assert first.status == "cancelled"
    wait_for(lambda: _runs(workspace) == [])
    jobs.close()


def test_jobs_wait_for_one_another_and_only_so_many(jobs, tmp_path, monkeypatch):
    let_jobs_run(monkeypatch, ENDLESS)
    everything = Workspaces(tmp_path / "workspaces", Limits())
    first, second, third = (everything.create() for _ in range(3))
    running = _begun(jobs, first)
    wait_for(lambda: running.status == "running")
    waiting = _begun(jobs, second)
    for workspace, reason in ((third, "too many jobs"), (second, "is learning")):
        with pytest.raises(Problem, match=reason):
            _begun(jobs, workspace)
    assert (jobs.plain(running)["position"], jobs.plain(waiting)["position"]) == (0, 1)
    jobs.close()
    assert (running.status, waiting.status) == ("cancelled", "cancelled")
    wait_for(lambda: not any(map(_runs, (first, second, third))))


def test_a_job_that_cannot_be_started_or_kept_fails_and_the_next_has_its_turn(jobs, workspace, monkeypatch):
    def failing(error):
        return unittest.mock.Mock(side_effect=error)

    with monkeypatch.context() as patch:
        patch.setattr(jobs_module, "_start", failing(OSError(errno.EAGAIN, "Resource temporarily unavailable")))
        assert _ended(_begun(jobs, workspace)) == "failed"
    let_jobs_run(monkeypatch, 'import sys; sys.stdin.readline(); print(\'{"end": "done"}\')')
    for error in (OSError(errno.ENOSPC, "No space"), RuntimeError("x")):
        with monkeypatch.context() as patch:
            patch.setattr(workspace, "commit_run", failing(error))
            assert _ended(_begun(jobs, workspace)) == "failed"
    assert _runs(workspace) == []
    # It is too late to cancel a job whose model is being kept.
    monkeypatch.setattr(workspace, "commit_run", lambda run, fingerprint: jobs.cancel(jobs.of(workspace)))
    after = _begun(jobs, workspace)
    assert _ended(after) == "done"
    assert after.process.stdout.closed  # the last jobs are remembered, but not their pipes


def test_streams_are_counted_before_their_first_event_until_their_readers_have_gone(tmp_path, jobs, workspace):
    context = Context(settings(tmp_path / "data", {"streams": 2}))
    job = _begun(jobs, workspace)
    jobs.cancel(job)

    async def left(message=None):
        return {"type": "http.disconnect"}

    streams = [EventStream(context, job) for _ in range(2)]
    with pytest.raises(Problem, match="too many streams"):
        EventStream(context, job)
    with concurrent.futures.ThreadPoolExecutor(1) as pool:  # a browser of other tests has a loop in this thread
        for stream in streams:
            pool.submit(asyncio.run, stream({"type": "http"}, left, left)).result()
    assert context.streams == 0


def test_models_are_opened_in_turns_and_not_while_a_job_runs_which_ends_with_its_workspace(
    served, surfaces, surface_models, monkeypatch
):
    let_jobs_run(monkeypatch, ENDLESS)
    workspace = taught(served, {"a": surfaces["brick"][:2], "b": surfaces["grass"][:2]})
    at, load, begun = f"/v1/workspaces/{workspace}", Models.loaded, []
    content = (surface_models / "surfaces.patchvote").read_bytes()

    def opened(_=None):
        return served.put(f"{at}/model", files=model_file(content))

    def slow(models, path):
        begun.append(submitted(served, workspace))
        return load(models, path)

    with monkeypatch.context() as patch:
        patch.setattr(Models, "loaded", slow)
        assert refusal(opened()) == (409, "conflict")
    assert served.get(at).json()["job"]["id"] == begun[0]
    served.delete(f"/v1/jobs/{begun[0]}")
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        assert {response.status_code for response in pool.map(opened, range(6))} == {200}
    assert served.get(f"/v1/models/{workspace}/file").content == content
    job = submitted(served, workspace)
    assert served.delete(at).status_code == 204
    assert served.get(f"/v1/jobs/{job}").json()["status"] == "cancelled"
    assert not (served.folder / workspace).exists()


def test_photos_that_take_long_to_decode_do_not_keep_other_requests_waiting(home, surfaces, monkeypatch):
    may_go_on, decoded = threading.Event(), photos._shown
    monkeypatch.setattr(photos, "_shown", lambda *photo: may_go_on.wait(300) and decoded(*photo))
    uploads = 45  # more than there are threads for requests
    at, upload = f"/v1/workspaces/{taught(home, {})}", files(surfaces["brick"][:1])
    with concurrent.futures.ThreadPoolExecutor(uploads + 1) as pool:
        waiting = [pool.submit(home.post, f"{at}/photos", files=upload) for _ in range(uploads)]
        try:
            wait_for(lambda: sum(future.running() for future in waiting) == uploads)
            assert pool.submit(home.get, at).result(120).status_code == 200
            assert not any(future.done() for future in waiting)
        finally:
            may_go_on.set()
        assert {future.result(120).status_code for future in waiting} == {200}
    assert home.get(at).json()["photos"] == 1
