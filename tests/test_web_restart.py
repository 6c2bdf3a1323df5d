"""Whatever ends the server, what was taught is there when it starts again, and the last good model answers."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import signal
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("fastapi")

from helpers.waiting import wait_for
from helpers.web import (
    add,
    client,
    crops,
    files,
    learned,
    live,
    model_file,
    reached,
    refusal,
    settings,
    submitted,
    taught,
)
from patchvote.web.problems import Problem
from patchvote.web.workspaces import Workspaces, write_atomically


def _learners(pid: int) -> list[int]:
    """Return the processes that learn for a server."""
    found: list[int] = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(OSError):  # a thread that has ended meanwhile
            found += map(int, (task / "children").read_text().split())
    return [child for child in found if b"patchvote.web.learning" in Path(f"/proc/{child}/cmdline").read_bytes()]


def _is_alive(pid: int) -> bool:
    """Whether a process runs; one that has ended and that nobody has asked about does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="looks for processes as Linux lists them")
def test_kill_9_while_learning_loses_nothing_that_was_taught_and_ctrl_c_ends_the_job_with_the_server(
    tmp_path, surfaces, real_photos
):
    def begin():
        """Begin to learn, and wait until the process of the job is at work."""
        job = submitted(home, workspace)
        wait_for(lambda: home.get(f"/v1/jobs/{job}").json()["stage"] != "start")

    new = crops(real_photos, "grass", 2, 9)
    with live(tmp_path / "data") as server:
        home = reached(server.address)
        workspace = taught(home, surfaces)
        at, ask = f"/v1/workspaces/{workspace}", {"url": f"/v1/predict?model={workspace}", "files": files(new)}
        assert learned(home, workspace)["status"] == "done"
        answers = home.post(**ask).json()
        add(home, workspace, crops(real_photos, "coffee", 6, 3), class_name="table")
        begin()
        (learner,) = _learners(server.process.pid)
        os.kill(learner, signal.SIGSTOP)  # so that it is in the middle of its work, however long the rest takes
        assert home.post(**ask).json() == answers  # answers come while it learns
        before = home.get(at).json()
        server.kill()
    os.kill(learner, signal.SIGCONT)
    wait_for(lambda: not _is_alive(learner))  # the process that learned ends with the server
    with live(tmp_path / "data", errors=tmp_path / "errors") as server:
        home = reached(server.address)
        after = home.get(at).json()
        assert after == before | {"job": None}
        assert {one["name"]: one["photos"] for one in after["classes"]} == dict.fromkeys(surfaces, 6) | {"table": 6}
        assert home.post(**ask).json() == answers
        assert len(list((tmp_path / "data" / "workspaces" / workspace / "runs").iterdir())) == 1
        begin()  # it can begin again at once
        learners = _learners(server.process.pid)
        server.process.send_signal(signal.SIGINT)
        assert server.process.wait(60) == 0
        wait_for(lambda: not any(map(_is_alive, learners)))
    assert (tmp_path / "errors").read_text() == "Ctrl-C ends it; what was taught is kept.\n"


def test_what_no_request_finished_is_set_aside_and_half_runs_are_removed(tmp_path, surfaces):
    with client(settings(tmp_path)) as home:
        workspace = taught(home, {"brick": surfaces["brick"][:2]})
    folder = tmp_path / "workspaces" / workspace
    named = {path.name for path in (folder / "photos").iterdir()}
    (folder / "photos" / ("ab" * 32)).write_bytes(b"not named")
    (folder / "runs" / ("cd" * 16)).mkdir(parents=True)
    (folder.parent / ("ef" * 16)).mkdir()  # a workspace without a state
    with client(settings(tmp_path)) as home:
        assert home.get(f"/v1/workspaces/{workspace}").json()["photos"] == 2
    assert {path.name for path in (folder / "photos").iterdir()} == named
    assert (folder / "aside" / "photos" / ("ab" * 32)).read_bytes() == b"not named"
    assert list((folder / "runs").iterdir()) == []
    assert list(folder.parent.iterdir()) == [folder]


def test_a_photo_whose_file_was_damaged_is_named_not_used_and_repaired_by_adding_it_again(home, surfaces):
    workspace = taught(home, {"brick": surfaces["brick"][:3], "grass": surfaces["grass"][:3]})
    at = f"/v1/workspaces/{workspace}"
    photo = home.get(f"{at}/photos").json()["photos"][0]
    path, rng = home.folder / workspace / "photos" / photo["id"], np.random.default_rng(0)
    content = path.read_bytes()
    for bit in rng.integers(0, 8 * len(content), 20):
        damaged = bytearray(content)
        damaged[bit // 8] ^= 1 << bit % 8
        path.write_bytes(damaged)
        assert refusal(home.get(f"{at}/photos/{photo['id']}/image")) == (422, "invalid")
    assert learned(home, workspace)["status"] == "done"
    assert [one["photo"] for one in home.get(f"{at}/report").json()["skipped"]] == [photo["id"]]
    add(home, workspace, surfaces["brick"][:1])
    assert path.read_bytes() == content
    assert home.get(f"{at}/photos/{photo['id']}/image").status_code == 200


def test_no_flipped_bit_of_a_state_loses_a_photo_or_the_model(tmp_path, surfaces, surface_models):
    with client(settings(tmp_path)) as home:
        content = (surface_models / "surfaces.patchvote").read_bytes()
        workspace = home.post("/v1/models", files=model_file(content)).json()["id"]
        add(home, workspace, surfaces["brick"][:3])
        last = home.get(f"/v1/workspaces/{workspace}").json()
    folder = tmp_path / "workspaces" / workspace
    state, before = folder / "state.json", folder / "state-before.json"
    whole = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    photos = {content for path, content in whole.items() if path not in (state, before)}

    def opened():
        return Workspaces(tmp_path / "workspaces", settings(tmp_path).limits).get(workspace)

    def kept():
        return {path.read_bytes() for path in folder.rglob("*") if path.is_file()}

    rng = np.random.default_rng(0)
    for bit in rng.integers(0, 8 * len(whole[state]), 300):
        damaged = bytearray(whole[state])
        damaged[bit // 8] ^= 1 << bit % 8
        state.write_bytes(damaged)
        found = opened()
        assert found.state.version == last["version"] - 1
        found.model_of(found.state.run).read_bytes()
        assert photos | {whole[before]} <= kept()
        shutil.rmtree(folder / "aside")
        for path, data in whole.items():
            path.write_bytes(data)
    for path in (state, before):
        path.write_bytes(b"{}")
    with pytest.raises(Problem, match="damaged"):
        opened()
    assert photos <= kept()


def test_a_change_that_fails_changes_nothing_and_a_workspace_that_was_removed_is_not_changed(tmp_path):
    everything = Workspaces(tmp_path, settings(tmp_path).limits)
    workspace = everything.create()
    with pytest.raises(RuntimeError), workspace.change() as state:  # noqa: PT012
        state.make_class("dog", 10)
        raise RuntimeError("in the middle")
    again = Workspaces(tmp_path, settings(tmp_path).limits).get(workspace.id)
    assert (workspace.state.classes, workspace.state.version) == (again.state.classes, again.state.version)
    everything.remove(workspace.id)
    for change in (workspace.change, workspace.new_run):
        with pytest.raises(Problem, match="no such workspace"), change():
            pass
    assert not workspace.folder.exists()


def test_a_full_disk_is_said_in_a_sentence_and_leaves_everything_as_it_was(tmp_path, surfaces, monkeypatch):
    def full(path, parts):
        if path.name == "state.json":  # after the photos of the request were written
            raise OSError(errno.ENOSPC, "No space left on device", str(path))
        write_atomically(path, parts)

    with client(settings(tmp_path, {"workspaces": 2})) as home:
        workspace = taught(home, {"brick": surfaces["brick"][:1]})
        at = f"/v1/workspaces/{workspace}"
        with monkeypatch.context() as patch:
            patch.setattr("patchvote.web.workspaces.write_atomically", full)
            assert refusal(home.post(f"{at}/photos", files=files(surfaces["grass"]))) == (413, "full")
            assert refusal(home.post("/v1/workspaces", json={})) == (413, "full")
        assert home.get(at).json()["photos"] == 1
        for part in ("photos", "thumbnails"):
            assert len(list((home.folder / workspace / part).iterdir())) == 1
        assert [path.name for path in home.folder.iterdir()] == [workspace]
        assert home.post("/v1/workspaces", json={"title": "Birds"}).json()["title"] == "Birds"


def test_a_damaged_file_keeps_nobody_from_the_rest(tmp_path, surfaces, surface_models):
    content = (surface_models / "surfaces.patchvote").read_bytes()
    with client(settings(tmp_path)) as home:
        workspace = home.post("/v1/models", files=model_file(content)).json()["id"]
        add(home, workspace, surfaces["brick"])
        other = taught(home, {"a": surfaces["brick"][:1]})
    (model,) = (tmp_path / "workspaces" / workspace).glob("runs/*/model.patchvote")
    model.write_bytes(content[:1000])
    folder = tmp_path / "workspaces" / other
    for name in ("state.json", "state-before.json"):
        (folder / name).write_text('{"id": "')
    with client(settings(tmp_path)) as home:
        at = f"/v1/workspaces/{workspace}"
        state = home.get(at).json()
        assert (state["photos"], state["model"]) == (6, None)
        opened = home.put(f"{at}/model", files=model_file(content))
        assert opened.json()["workspace"]["model"]["classes"] == ["brick", "grass", "gravel"]
        assert refusal(home.get(f"/v1/workspaces/{other}")) == (500, "damaged")
        assert (folder / "photos").exists()
        assert home.delete(f"/v1/workspaces/{other}").status_code == 204
        assert not folder.exists()
