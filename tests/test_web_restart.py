"""Whatever ends the server, what was taught is there when it starts again, and the last good model answers."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import signal
from pathlib import Path

import pytest

pytest.importorskip("fastapi")

from helpers.waiting import wait_for
from helpers.web import client, crops, files, live, settings, taught
from patchvote.web.client import Client
from patchvote.web.workspaces import Workspaces


def _children(pid: int) -> list[int]:
    """Return the processes that any thread of a process has started."""
    found: list[int] = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(OSError):  # a thread that has ended meanwhile
            found += map(int, (task / "children").read_text().split())
    return found


def _is_alive(pid: int) -> bool:
    """Whether a process runs; one that has ended and that nobody has asked about does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="looks for processes as Linux lists them")
def test_kill_9_while_learning_loses_nothing_that_was_taught_and_the_last_good_model_answers(
    tmp_path, surfaces, real_photos
):
    new = crops(real_photos, "grass", 2, 9)
    with live(tmp_path / "data") as server:
        home = Client(server.address)
        workspace = home.create_workspace("Floors")
        for name, photos in surfaces.items():
            home.add_photos(workspace, photos, name)
        report = home.learn(workspace)
        assert report["photos"] == 18
        answers = home.predict(new, workspace)
        home.add_photos(workspace, crops(real_photos, "coffee", 6, 3), "table")
        job = home._send("POST", f"/v1/workspaces/{workspace}/learn", {})["id"]
        wait_for(lambda: home._json("GET", f"/v1/jobs/{job}")["stage"] != "start")
        (learner,) = _children(server.process.pid)
        os.kill(learner, signal.SIGSTOP)  # so that it is in the middle of its work, however long the rest takes
        # Answers come while it learns.
        assert home.predict(new, workspace) == answers
        before = home.workspace(workspace)
        server.kill()
    os.kill(learner, signal.SIGCONT)
    wait_for(lambda: not _is_alive(learner))  # the process that learned ends with the server
    with live(tmp_path / "data") as server:
        home = Client(server.address)
        after = home.workspace(workspace)
        assert after["job"] is None
        assert after == before | {"job": None}
        assert {one["name"]: one["photos"] for one in after["classes"]} == dict.fromkeys(surfaces, 6) | {"table": 6}
        assert home.predict(new, workspace) == answers
        assert len(list((tmp_path / "data" / "workspaces" / workspace / "runs").iterdir())) == 1
        # Learning can begin again at once.
        assert home.learn(workspace, budget=1)["photos"] == 24
        assert home.workspace(workspace)["model"]["classes"] == ["brick", "grass", "gravel", "table"]


def test_photos_that_were_written_but_not_named_and_half_runs_are_removed(tmp_path, surfaces):
    wanted = settings(tmp_path)
    with client(wanted) as home:
        workspace = taught(home, {"brick": surfaces["brick"][:2]})
    folder = tmp_path / "workspaces" / workspace
    (folder / "photos" / ("ab" * 32)).write_bytes(b"half")
    (folder / "runs" / ("cd" * 16)).mkdir(parents=True)
    state = json.loads((folder / "state.json").read_text())
    with client(wanted) as home:
        assert home.get(f"/v1/workspaces/{workspace}").json()["photos"] == 2
    assert sorted(path.name for path in (folder / "photos").iterdir()) == sorted(one["id"] for one in state["photos"])
    assert list((folder / "runs").iterdir()) == []


def test_an_error_in_the_middle_of_a_change_leaves_the_workspace_as_it_was(tmp_path):
    workspace = Workspaces(tmp_path, settings(tmp_path).limits).create()
    with workspace.change() as state:
        state.make_class("cat", 10)

    def fail() -> None:
        with workspace.change() as state:
            state.make_class("dog", 10)
            raise RuntimeError("in the middle")

    with pytest.raises(RuntimeError, match="in the middle"):
        fail()
    assert list(workspace.state.classes.values()) == ["cat"]
    again = Workspaces(tmp_path, settings(tmp_path).limits).get(workspace.id)
    assert list(again.state.classes.values()) == ["cat"]
    assert again.state.version == workspace.state.version


def test_a_full_disk_is_said_in_a_sentence_and_leaves_the_workspace_as_it_was(tmp_path, surfaces, monkeypatch):
    with client(settings(tmp_path)) as home:
        workspace = taught(home, {"brick": surfaces["brick"][:1]})

        def full(path, parts):
            raise OSError(errno.ENOSPC, "No space left on device", str(path))

        with monkeypatch.context() as patch:
            patch.setattr("patchvote.web.workspaces.write_atomically", full)
            refused = home.post(f"/v1/workspaces/{workspace}/photos", files=files(surfaces["grass"]))
        assert (refused.status_code, refused.json()["error"]["code"]) == (413, "full")
        assert home.get(f"/v1/workspaces/{workspace}").json()["photos"] == 1


def test_a_workspace_that_could_not_be_written_is_not_counted(tmp_path, monkeypatch):
    def full(path, parts):
        raise OSError(errno.ENOSPC, "No space left on device", str(path))

    with client(settings(tmp_path, {"workspaces": 1})) as home:
        with monkeypatch.context() as patch:
            patch.setattr("patchvote.web.workspaces.write_atomically", full)
            assert home.post("/v1/workspaces", json={}).status_code == 413
        assert list((tmp_path / "workspaces").iterdir()) == []
        assert home.post("/v1/workspaces", json={"title": "Birds"}).json()["title"] == "Birds"


def test_ctrl_c_ends_the_server_without_a_word_too_many_and_its_job_with_it(tmp_path, surfaces):
    with live(tmp_path / "data", errors=tmp_path / "errors") as server:
        home = Client(server.address)
        workspace = home.create_workspace()
        for name, photos in surfaces.items():
            home.add_photos(workspace, photos, name)
        job = home._send("POST", f"/v1/workspaces/{workspace}/learn", {})["id"]
        wait_for(lambda: home._json("GET", f"/v1/jobs/{job}")["status"] == "running")
        learners = _children(server.process.pid)
        server.process.send_signal(signal.SIGINT)
        assert server.process.wait(60) == 0
        wait_for(lambda: not any(map(_is_alive, learners)))
    assert (tmp_path / "errors").read_text() == "Ctrl-C ends it; what was taught is kept.\n"


def test_two_servers_do_not_share_a_folder(tmp_path, command):
    with live(tmp_path / "data"):
        done = command("serve", "--data", tmp_path / "data", "--port", "0")
    assert done.code == 1
    assert "another server uses" in done.err


def test_a_port_that_is_taken_is_said_in_a_sentence(tmp_path, command):
    with live(tmp_path / "one") as server:
        done = command("serve", "--data", tmp_path / "two", "--port", server.port)
    assert done.code == 1
    assert "--port" in done.err


def test_many_workspaces_are_read_again_when_they_are_needed(tmp_path, surfaces):
    with client(settings(tmp_path)) as home:
        ids = [home.post("/v1/workspaces", json={"title": str(number)}).json()["id"] for number in range(80)]
        titles = [home.get(f"/v1/workspaces/{workspace}").json()["title"] for workspace in ids]
        photos = home.post(f"/v1/workspaces/{ids[0]}/photos", files=files(surfaces["brick"][:1])).json()
        assert photos["workspace"]["photos"] == 1
    assert titles == [str(number) for number in range(80)]


def test_a_damaged_file_keeps_nobody_from_the_rest(tmp_path, surfaces, surface_models):
    content = (surface_models / "surfaces.patchvote").read_bytes()
    with client(settings(tmp_path)) as home:
        workspace = home.post("/v1/models", files=files([("m", content)], "file")).json()["id"]
        home.post(f"/v1/workspaces/{workspace}/photos", files=files(surfaces["brick"]))
        other = taught(home, {"a": surfaces["brick"][:1]})
    (model,) = (tmp_path / "workspaces" / workspace).glob("runs/*/model.patchvote")
    model.write_bytes(content[:1000])
    (tmp_path / "workspaces" / other / "state.json").write_text('{"id": "')
    with client(settings(tmp_path)) as home:
        state = home.get(f"/v1/workspaces/{workspace}").json()
        assert (state["photos"], state["model"]) == (6, None)
        assert home.post(f"/v1/workspaces/{workspace}/classes", json={"name": "new"}).status_code == 201
        opened = home.put(f"/v1/workspaces/{workspace}/model", files=files([("m", content)], "file"))
        assert opened.json()["workspace"]["model"]["classes"] == ["brick", "grass", "gravel"]
        damaged = home.get(f"/v1/workspaces/{other}")
        assert (damaged.status_code, damaged.json()["error"]["code"]) == (500, "damaged")
        assert (tmp_path / "workspaces" / other / "photos").exists()
        assert home.delete(f"/v1/workspaces/{other}").status_code == 204
        assert home.get(f"/v1/workspaces/{other}").status_code == 404
        assert not (tmp_path / "workspaces" / other).exists()
