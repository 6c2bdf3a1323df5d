"""The service itself: the page with its ETags, health, metrics, the description of the API, the command, the client."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

pytest.importorskip("fastapi")

from helpers.web import ENDLESS, client, crops, events, files, let_jobs_run, live, settings, taught
from patchvote import ImageClassifier
from patchvote.errors import PatchvoteError
from patchvote.networks import load
from patchvote.networks.onnx_file import write_network
from patchvote.web.app import make_app
from patchvote.web.client import Client, ServerError


@pytest.fixture
def page(tmp_path):
    folder = tmp_path / "static"
    folder.mkdir()
    (folder / "index.html").write_text("<!doctype html><title>page</title>", encoding="utf-8")
    (folder / "app.js").write_text("'use strict';", encoding="utf-8")
    return folder


def test_the_page_comes_with_etags_and_is_sent_once(tmp_path, page):
    with client(settings(tmp_path / "data", static=page)) as home:
        first = home.get("/")
        assert (first.status_code, first.headers["content-type"]) == (200, "text/html; charset=utf-8")
        script = home.get("/static/app.js")
        assert "javascript" in script.headers["content-type"]
        for path, response in (("/", first), ("/static/app.js", script)):
            tag = response.headers["ETag"]
            for known in (tag, f"W/{tag}", f'"other", {tag}'):
                again = home.get(path, headers={"If-None-Match": known})
                assert (again.status_code, again.content) == (304, b"")
            assert home.get(path, headers={"If-None-Match": '"other"'}).status_code == 200
        for path in ("/static/nothing.js", "/static/%2e%2e/index.html"):
            assert home.get(path).status_code == 404
        assert "nothing at this address" in home.get("/nothing").json()["error"]["message"]


def test_another_content_has_another_etag(tmp_path, page):
    tags = []
    for text in ("one", "two"):
        (page / "app.js").write_text(text, encoding="utf-8")
        with client(settings(tmp_path / "data", static=page)) as home:
            tags.append(home.get("/static/app.js").headers["ETag"])
    assert tags[0] != tags[1]


def test_health_and_settings_are_told(served):
    assert served.get("/healthz").json()["status"] == "ok"
    told = served.get("/v1/settings").json()
    assert told["models"] == ["surfaces", "nearest"]
    assert told["token"] is False
    assert ".jpg" in told["endings"]


def test_metrics_count_photos_requests_and_jobs(served, surfaces):
    served.post("/v1/predict?model=surfaces", files=files(surfaces["brick"][:2]))
    served.get("/v1/models/other")
    lines = dict(line.rsplit(" ", 1) for line in served.get("/metrics").text.splitlines() if not line.startswith("#"))
    assert lines["patchvote_photos_total"] == "2.0"
    assert lines['patchvote_requests_total{route="/v1/predict",status="200"}'] == "1.0"
    assert lines['patchvote_requests_total{route="/v1/models/{name}",status="404"}'] == "1.0"
    assert lines['patchvote_request_seconds_count{route="/v1/predict"}'] == "1.0"
    assert lines['patchvote_request_seconds_bucket{le="+Inf",route="/v1/predict"}'] == "1.0"
    assert float(lines["patchvote_memory_bytes"]) > 1e7
    assert lines["patchvote_photos_waiting"] == "0.0"


def test_the_description_of_the_api_has_examples_and_a_summary_of_every_route(served):
    described = served.get("/openapi.json").json()
    for path, methods in described["paths"].items():
        for method, route in methods.items():
            assert route["summary"], (method, path)
    assert described["components"]["schemas"]["Answer"]["examples"][0]["label"] == "cat"
    body = described["paths"]["/v1/predict"]["post"]["requestBody"]["content"]
    assert set(body) == {"multipart/form-data", "application/json"}
    assert body["application/json"]["example"]["photos"]


def test_every_route_is_in_the_documentation(served):
    from pathlib import Path

    page = (Path(__file__).parent.parent / "docs" / "serve.md").read_text(encoding="utf-8")
    short = (
        page.replace("…/", "/v1/workspaces/{workspace}/").replace("{id}", "{workspace}").replace("{class}", "{label}")
    )
    assert [path for path in served.get("/openapi.json").json()["paths"] if path not in short] == []


def test_streams_of_events_are_bounded(tmp_path, surfaces, monkeypatch):
    let_jobs_run(monkeypatch, ENDLESS)
    with client(settings(tmp_path, {"streams": 0})) as home:
        workspace = taught(home, {name: photos[:1] for name, photos in surfaces.items()})
        job = home.post(f"/v1/workspaces/{workspace}/learn", json={}).json()["id"]
        assert home.get(f"/v1/jobs/{job}/events").status_code == 429
        assert home.delete(f"/v1/jobs/{job}").json()["status"] == "cancelled"


def test_jobs_wait_for_one_another_and_only_so_many(tmp_path, surfaces, monkeypatch):
    let_jobs_run(monkeypatch, ENDLESS)
    with client(settings(tmp_path, {"waiting_jobs": 1})) as home:
        ids = [taught(home, {name: own[:1] for name, own in surfaces.items()}) for _ in range(4)]
        answers = [home.post(f"/v1/workspaces/{workspace}/learn", json={}) for workspace in ids]
        assert answers[0].status_code == 202
        refused = [answer for answer in answers if answer.status_code == 429]
        assert refused
        assert int(refused[0].headers["Retry-After"]) > 0
        waiting = [answer.json() for answer in answers if answer.status_code == 202]
        assert waiting[-1]["position"] == 1
        for job in waiting:
            home.delete(f"/v1/jobs/{job['id']}")
        assert [list(events(home, job["id"]))[-1][1]["status"] for job in waiting] == ["cancelled"] * len(waiting)


def test_a_job_that_takes_too_long_is_ended_and_says_so(tmp_path, surfaces):
    with client(settings(tmp_path, {"job_seconds": 0.2})) as home:
        workspace = taught(home, surfaces)
        job = home.post(f"/v1/workspaces/{workspace}/learn", json={}).json()["id"]
        last = list(events(home, job))[-1][1]
        assert (last["status"], last["message"]) == ("failed", "learning took too long.")
        assert home.get(f"/v1/workspaces/{workspace}").json()["model"] is None


def test_the_client_asks_explains_teaches_and_fetches(tmp_path, surface_models, surfaces, real_photos):
    token = "a token of sixteen characters"
    with live(tmp_path / "data", surface_models / "surfaces.patchvote", PATCHVOTE_TOKEN=token) as server:
        home = Client(server.address, token=token)
        new = crops(real_photos, "grass", 2, 5)
        (tmp_path / "a.png").write_bytes(new[0][1])
        answers = home.predict([tmp_path / "a.png", new[1]])
        assert [answer["file"] for answer in answers] == ["a.png", new[1][0]]
        assert home.explain(tmp_path / "a.png", labels=["brick"], width=8, height=8)["maps"][0]["label"] == "brick"
        workspace = home.upload(home.download("surfaces"))
        assert home.add_photos(workspace, surfaces["brick"][:1], "tiles")["added"][0]["name"] == surfaces["brick"][0][0]
        assert home.predict(new, workspace) == home.predict(new, "surfaces")
        with pytest.raises(ServerError, match="no such"):
            home.workspace("0" * 32)
        with pytest.raises(ServerError, match="token"):
            Client(server.address).workspace(workspace)
    with pytest.raises(PatchvoteError, match="Is the server running"):
        home.workspace(workspace)
    with pytest.raises(PatchvoteError, match="http://"):
        Client("ftp://example.com")


def test_without_the_extra_the_command_says_what_to_install_and_the_rest_works():
    code = """
import sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("fastapi", "uvicorn", "starlette", "python_multipart", "multipart"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Absent())
import patchvote.web.client, patchvote.web.settings
sys.argv = ["patchvote", "serve"]
from patchvote.cli import main
main()
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert "pip install 'patchvote[web]'" in done.stderr


def test_no_other_command_loads_the_web_framework():
    code = """
import sys
sys.argv = ["patchvote", "--help"]
from patchvote.cli import make_app
try:
    make_app()()
except SystemExit:
    pass
print("loaded:", [name for name in ("fastapi", "starlette", "uvicorn") if name in sys.modules])
"""
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.endswith("loaded: []\n")


def test_the_network_of_the_command_line_is_for_models_that_need_one(tmp_path, surface_models):
    backbone = load("efficientnet-lite0")
    write_network(tmp_path / "net.onnx", backbone.graph(), backbone.spec)
    rng = np.random.default_rng(0)
    photos = [rng.integers(0, 255, (64, 64, 3), dtype=np.uint8) for _ in range(4)]
    classifier = ImageClassifier(str(tmp_path / "net.onnx"), cache=False).fit(photos, list("abab"))
    (tmp_path / "away").mkdir()
    classifier.save(tmp_path / "away" / "own.patchvote")
    models = (tmp_path / "away" / "own.patchvote", surface_models / "surfaces.patchvote")
    with client(settings(tmp_path / "data", models=models, network=str(tmp_path / "net.onnx"))) as made:
        assert {one["name"] for one in made.get("/v1/models").json()["models"]} == {"own", "surfaces"}
    with pytest.raises(PatchvoteError, match="An ONNX file is found beside it"):
        make_app(settings(tmp_path / "other", models=models), None)
