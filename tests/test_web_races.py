"""Requests that meet: models opened at once, jobs that are cancelled, removed or fail at an awkward moment."""

from __future__ import annotations

import asyncio
import concurrent.futures
import errno
import threading

import pytest

pytest.importorskip("fastapi")

from helpers.waiting import wait_for
from helpers.web import ENDLESS, client, files, let_jobs_run, settings, taught
from patchvote.web import jobs as jobs_module
from patchvote.web.app import make_context
from patchvote.web.jobs import Jobs
from patchvote.web.learning import Task
from patchvote.web.metrics import Metrics
from patchvote.web.problems import Problem
from patchvote.web.routes import photos
from patchvote.web.routes.learning import EventStream
from patchvote.web.settings import Limits
from patchvote.web.workspaces import Workspaces


@pytest.fixture
def workspace(tmp_path):
    return Workspaces(tmp_path / "workspaces", Limits()).create()


@pytest.fixture
def jobs(tmp_path):
    made = Jobs(Limits(), Metrics(), [tmp_path])
    yield made
    made.close()


def _submitted(jobs, workspace, **more):
    """Return a job without photos, which fails as soon as it has begun."""
    run = workspace.new_run()
    folder = str(workspace.folder / "photos")
    values = {"labelled": [], "unlabelled": []} | more
    return jobs.submit(workspace, Task(folder, str(run), str(workspace.folder / "bags"), **values), "")


@pytest.fixture
def quick(monkeypatch):
    """Processes that say at once that they have learned."""
    let_jobs_run(monkeypatch, 'import sys; sys.stdin.readline(); print(\'{"end": "done"}\')')


def _runs(workspace):
    return sorted(path.name for path in (workspace.folder / "runs").glob("*"))


def test_a_run_that_is_being_made_is_not_swept_by_another_that_is_complete(workspace):
    first, second = workspace.new_run(), workspace.new_run()
    for run in (first, second):
        (run / "model.patchvote").write_bytes(b"model")
    workspace.commit_run(second, "")
    workspace.commit_run(first, "")
    assert workspace.model_of(workspace.state.run).read_bytes() == b"model"
    assert _runs(workspace) == [first.name]


def test_models_that_are_opened_at_once_leave_one_of_them(served, surface_models):
    workspace = served.post("/v1/workspaces", json={"model": "surfaces"}).json()["id"]
    content = (surface_models / "surfaces.patchvote").read_bytes()

    def put(_):
        return served.put(f"/v1/workspaces/{workspace}/model", files=files([("m", content)], "file")).status_code

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        assert set(pool.map(put, range(6))) == {200}
    assert served.get(f"/v1/workspaces/{workspace}").json()["model"]["opened"]
    assert served.get(f"/v1/models/{workspace}/file").content == content


def test_no_model_is_opened_where_a_job_began_while_the_file_was_read(served, surfaces, surface_models, monkeypatch):
    let_jobs_run(monkeypatch, ENDLESS)
    workspace = taught(served, {"a": surfaces["brick"][:2], "b": surfaces["grass"][:2]})
    content = (surface_models / "surfaces.patchvote").read_bytes()
    from patchvote.web.models import Models

    check, begun = Models.loaded, []

    def slow(models, path):
        begun.append(served.post(f"/v1/workspaces/{workspace}/learn", json={}).json()["id"])
        return check(models, path)

    monkeypatch.setattr(Models, "loaded", slow)
    refused = served.put(f"/v1/workspaces/{workspace}/model", files=files([("m", content)], "file"))
    assert (refused.status_code, refused.json()["error"]["code"]) == (409, "conflict")
    assert served.get(f"/v1/jobs/{begun[0]}").json()["status"] in ("waiting", "running")
    assert served.delete(f"/v1/jobs/{begun[0]}").json()["status"] == "cancelled"


def test_a_job_that_is_cancelled_before_it_reads_its_task_does_not_stop_the_next(jobs, workspace):
    many = [["0" * 64, "n" * 200] for _ in range(2_000)]  # more than a pipe holds
    job = _submitted(jobs, workspace, unlabelled=many)
    wait_for(lambda: job.process is not None)
    jobs.cancel(job)
    assert job.status == "cancelled"
    after = _submitted(jobs, workspace)
    wait_for(lambda: after.is_over)
    assert after.status == "failed"  # it has no photos; but it had its turn
    assert job.status == "cancelled"
    wait_for(lambda: _runs(workspace) == [])


def test_nothing_waits_while_a_process_that_learns_starts(jobs, workspace, monkeypatch):
    let_jobs_run(monkeypatch, "import time; time.sleep(600)")  # it reads nothing, as while it imports
    many = [["0" * 64, "n" * 200] for _ in range(2_000)]  # more than a pipe holds
    job = _submitted(jobs, workspace, unlabelled=many)
    wait_for(lambda: job.status == "running")
    answered = threading.Event()
    threading.Thread(target=lambda: (jobs.plain(job), answered.set()), daemon=True).start()
    assert answered.wait(60)
    jobs.cancel(job)


def test_a_job_that_waits_and_is_cancelled_leaves_nothing(jobs, workspace, tmp_path):
    other = Workspaces(tmp_path / "workspaces", Limits()).create()
    first, second = _submitted(jobs, workspace), _submitted(jobs, other)
    jobs.cancel(second)
    jobs.cancel(first)
    assert _runs(other) == []
    wait_for(lambda: _runs(workspace) == [])


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), "No space"),
        (RuntimeError("a fault"), "a fault of the server"),
    ],
)
def test_a_job_that_cannot_be_kept_fails_and_the_next_has_its_turn(jobs, workspace, monkeypatch, quick, error, says):
    def fail(*arguments, **named):
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(workspace, "commit_run", fail)
        job = _submitted(jobs, workspace)
        wait_for(lambda: job.is_over)
    assert job.status == "failed"
    assert says in job.message
    after = _submitted(jobs, workspace)
    wait_for(lambda: after.is_over)
    assert after.status == "done"
    assert after.process.stdout.closed  # the last jobs are remembered, but not their pipes


def test_it_is_too_late_to_cancel_a_job_whose_model_is_being_kept(jobs, workspace, monkeypatch, quick):
    def commit(run, taught):
        jobs.cancel(jobs.of(workspace))

    monkeypatch.setattr(workspace, "commit_run", commit)
    job = _submitted(jobs, workspace)
    wait_for(lambda: job.is_over)
    assert job.status == "done"


def test_a_process_that_cannot_be_started_is_told(jobs, workspace, monkeypatch):
    def fail():
        raise OSError(errno.EAGAIN, "Resource temporarily unavailable")

    monkeypatch.setattr(jobs_module, "_start", fail)
    job = _submitted(jobs, workspace)
    wait_for(lambda: job.is_over)
    assert (job.status, _runs(workspace)) == ("failed", [])


def test_nothing_begins_in_a_workspace_that_was_removed(tmp_path, surfaces, monkeypatch):
    let_jobs_run(monkeypatch, ENDLESS)
    with client(settings(tmp_path)) as home:
        workspace = taught(home, {"a": surfaces["brick"][:1], "b": surfaces["grass"][:1]})
        job = home.post(f"/v1/workspaces/{workspace}/learn", json={}).json()["id"]
        assert home.delete(f"/v1/workspaces/{workspace}").status_code == 204
        assert home.get(f"/v1/jobs/{job}").json()["status"] == "cancelled"
        assert list((tmp_path / "workspaces").iterdir()) == []
    everything = Workspaces(tmp_path / "more", Limits())
    removed = everything.create()
    everything.remove(removed)
    with pytest.raises(Problem, match="no such workspace"):
        removed.new_run()
    assert not removed.folder.exists()


def test_streams_that_are_asked_for_at_once_are_counted_before_their_first_event(tmp_path, jobs, workspace):
    context = make_context(settings(tmp_path / "data", {"streams": 2}))
    job = _submitted(jobs, workspace)
    jobs.cancel(job)

    async def sent(message):
        pass

    async def left():
        return {"type": "http.disconnect"}

    streams = [EventStream(context, job) for _ in range(2)]
    with pytest.raises(Problem, match="too many streams"):
        EventStream(context, job)
    for stream in streams:  # their readers have gone
        asyncio.run(stream({"type": "http"}, left, sent))
    assert context.streams == 0


def test_photos_that_take_long_to_decode_do_not_keep_other_requests_waiting(tmp_path, surfaces, monkeypatch):
    may_go_on = threading.Event()
    decoded = photos._shown

    def slow(photo):
        may_go_on.wait(300)
        return decoded(photo)

    monkeypatch.setattr(photos, "_shown", slow)
    uploads = 45  # more than there are threads for requests
    with client(settings(tmp_path)) as home, concurrent.futures.ThreadPoolExecutor(uploads + 1) as pool:
        workspace = taught(home, {})
        address = f"/v1/workspaces/{workspace}"
        waiting = [
            pool.submit(home.post, f"{address}/photos", files=files(surfaces["brick"][:1])) for _ in range(uploads)
        ]
        try:
            wait_for(lambda: sum(future.running() for future in waiting) == uploads)
            assert pool.submit(home.get, address).result(120).status_code == 200
            assert not any(future.done() for future in waiting)
        finally:
            may_go_on.set()
        assert {future.result(120).status_code for future in waiting} == {200}
        assert home.get(address).json()["photos"] == 1
