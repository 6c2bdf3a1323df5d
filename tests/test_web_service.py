"""The service itself: the page, metrics, the description of the API, the documentation, the command, the client."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import httpx
import hypothesis
import pytest

pytest.importorskip("fastapi")

from helpers.pages import ROOT, blocks
from helpers.web import add, client, files, live, reached, settings, submitted, threaded
from patchvote import ImageClassifier

GUIDE = ROOT / "docs" / "serve.md"


def test_metrics_count_photos_requests_and_jobs(tmp_path, flowers):
    with client(settings(tmp_path, models=(flowers / "m.patchvote",))) as home:
        home.post("/v1/predict", files=files([("0.jpg", (flowers / "photos" / "iris" / "0.jpg").read_bytes())]))
        home.get("/v1/models/other")
        lines = home.get("/metrics").text.splitlines()
    assert {
        "patchvote_photos_total 1.0",
        "patchvote_photos_waiting 0.0",
        "patchvote_photos_refused_total 0.0",
        "patchvote_jobs_running 0.0",
        "patchvote_streams_open 0.0",
        'patchvote_requests_total{route="/v1/models/{name}",status="404"} 1.0',
        'patchvote_request_seconds_count{route="/v1/predict"} 1.0',
    } <= set(lines)


def test_every_route_is_in_the_documentation(served):
    page = GUIDE.read_text(encoding="utf-8")
    for short, long in (("…/", "/v1/workspaces/{workspace}/"), ("{id}", "{workspace}"), ("{class}", "{label}")):
        page = page.replace(short, long)
    assert [path for path in served.get("/openapi.json").json()["paths"] if path not in page] == []


@pytest.fixture(scope="module")
def pets(tmp_path_factory, surfaces, surface_models):
    """Folder of a reader with a few photos, a server that was started with a model of pets, and a collector."""
    folder = tmp_path_factory.mktemp("pets")
    here = folder / "here"
    for label, surface in (("cat", "brick"), ("dog", "grass")):  # surfaces stand for pets
        (here / label).mkdir(parents=True)
        for number, (_, content) in enumerate(surfaces[surface]):
            (here / label / f"{number}.jpg").write_bytes(content)
    ImageClassifier(cache=surface_models / "bags").fit(here).save(folder / "pets.patchvote")
    for label, name in (("cat", "a.jpg"), ("dog", "b.jpg")):
        shutil.copy(here / label / "5.jpg", here / name)
    with socket.create_server(("127.0.0.1", 0)) as collector:
        telemetry = {
            "FASTAPI_OTEL_AUTO_CONFIGURE": "true",
            "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{collector.getsockname()[1]}",
            "OTEL_BSP_SCHEDULE_DELAY": "50",
        }
        with live(folder / "data", folder / "pets.patchvote", errors=folder / "errors", **telemetry) as server:
            yield here, server, collector


@pytest.mark.skipif(not (shutil.which("curl") and shutil.which("bash")), reason="needs curl and bash")
def test_the_lines_of_curl_and_the_program_in_the_documentation_work_as_they_stand(pets, monkeypatch, capsys):
    here, server, _ = pets
    monkeypatch.chdir(here)
    (here / "token").write_text("0123456789abcdef")  # which this server does not need
    (here / ".curlrc").write_text("fail-with-body\nsilent\nwrite-out = \\n\n")  # an error of the server ends the script
    chapter = GUIDE.read_text(encoding="utf-8").partition("with curl\n")[2].partition("\n## ")[0]
    commands = "\n".join(line[4:] for line in chapter.splitlines() if line.startswith("    "))
    commands = re.sub(r"http://127\.0\.0\.1:8000|https://photos\.example\.org", server.address, commands)
    script, environment = ["bash", "-e", "-o", "pipefail", "-c", commands], {"CURL_HOME": str(here), "HOME": str(here)}
    done = subprocess.run(script, env=os.environ | environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    named, explained, models, cats, dogs = (json.loads(line) for line in done.stdout.splitlines() if line[:1] == "{")
    assert [answer["label"] for answer in named["answers"]] == ["cat", "dog"]
    assert ([one["label"] for one in explained["maps"]], explained["width"]) == (["cat"], 32)
    assert [model["name"] for model in models["models"]] == ["pets"]
    assert (len(cats["added"]), dogs["workspace"]["photos"]) == (2, 4)
    assert '"status": "done"' in done.stdout.rpartition("event: end")[2]
    assert ImageClassifier.load(here / "pets.patchvote").classes == ("cat", "dog")
    (program,) = blocks(GUIDE, "python")
    exec(program.replace("http://127.0.0.1:8000", server.address), {})
    assert capsys.readouterr().out.startswith("a.jpg cat ")


def test_the_command_listens_on_this_machine_alone_shares_neither_port_nor_folder_and_sends_no_telemetry(
    pets, tmp_path, command
):
    here, server, collector = pets
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    listening = [row[1] for row in rows if row[3] == "0A" and int(row[1].split(":")[1], 16) == server.port]
    assert listening == [f"0100007F:{server.port:04X}"]
    assert command("serve", "--data", here.parent / "data", "--port", "0").code == 1
    assert command("serve", "--data", tmp_path, "--port", server.port).code == 1
    assert httpx.post(f"{server.address}/v1/workspaces", json={}).status_code == 201
    collector.settimeout(0.5)
    with pytest.raises(TimeoutError):
        collector.accept()
    assert "elemetry" not in (here.parent / "errors").read_text()


def test_without_the_extra_the_command_says_what_to_install():
    code = "import sys; sys.modules['fastapi'] = None; from patchvote.cli import main; sys.argv[1:] = ['serve']; main()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stderr.count("\n"), "patchvote[web]" in done.stderr) == (1, 1, True)


def _real(home: httpx.Client, surfaces: dict) -> dict[str, str]:
    """Return parameters of addresses that exist: a workspace with a model, a class, a photo, and a job that is over."""
    workspace = home.post("/v1/workspaces", json={"model": "surfaces"}).json()["id"]
    photo = add(home, workspace, surfaces["brick"][:1], class_name="brick")["added"][0]["id"]
    job = submitted(home, workspace)
    home.delete(f"/v1/jobs/{job}")
    return {"workspace": workspace, "photo": photo, "label": "c1", "name": "surfaces", "job": job}


def test_no_request_that_the_description_allows_ends_in_a_fault(tmp_path, surfaces, surface_models):
    schemathesis = pytest.importorskip("schemathesis")
    checks = {"deadline": None, "database": None, "suppress_health_check": list(hypothesis.HealthCheck)}
    limits = {"body_seconds": 5.0, "waiting_jobs": 1, "workspaces": 5000}
    seen: dict[str, set[int]] = {}
    with threaded(settings(tmp_path, limits, models=(surface_models / "surfaces.patchvote",))) as port:
        home = reached(f"http://127.0.0.1:{port}")
        real = _real(home, surfaces)
        for result in schemathesis.openapi.from_url(f"{home.base_url}/openapi.json", timeout=120).get_all_operations():
            operation = result.ok()

            @hypothesis.settings(max_examples=6, **checks)
            @hypothesis.given(case=operation.as_strategy(), exists=hypothesis.strategies.booleans())
            def ask(case, exists):
                if exists and case.path_parameters:
                    case.path_parameters = {name: real[name] for name in case.path_parameters}  # noqa: B023
                response = case.call(timeout=120)
                seen.setdefault(case.operation.label, set()).add(response.status_code)
                assert response.status_code < 500, (case.as_curl_command(), response.text)
                if response.status_code >= 400:
                    assert set(response.json()) == {"error"}

            ask()
            if operation.method.upper() == "DELETE" or operation.path.endswith("/delete"):
                real |= _real(home, surfaces)
    assert len(seen) > 25
    # Not everything was refused: most routes were also given what they take.
    assert sum(any(status < 300 for status in statuses) for statuses in seen.values()) > 15
