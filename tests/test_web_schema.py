"""Requests that schemathesis makes from the description of the API: none ends in a fault of the server."""

from __future__ import annotations

import hypothesis
import pytest

pytest.importorskip("fastapi")
pytest.importorskip("schemathesis")

import schemathesis

from helpers.web import files, settings, threaded
from patchvote.web.client import Client

EXAMPLES = 12  # per route


@pytest.fixture(scope="module")
def home(tmp_path_factory, surface_models):
    """Port of a server with a model."""
    models = (surface_models / "surfaces.patchvote",)
    limits = {"body_seconds": 5.0, "waiting_jobs": 1, "workspaces": 5000}
    with threaded(settings(tmp_path_factory.mktemp("data"), limits, models=models)) as port:
        yield port


def _real(home: Client, surfaces: dict) -> dict[str, str]:
    """Return parameters of addresses that exist: a workspace with a model, a class, a photo, and a job that is over."""
    workspace = home.create_workspace(model="surfaces")
    photo = home.add_photos(workspace, surfaces["brick"][:1], "brick")["added"][0]["id"]
    job = home._send("POST", f"/v1/workspaces/{workspace}/learn", {})["id"]
    home._request("DELETE", f"/v1/jobs/{job}", None, "")
    return {"workspace": workspace, "photo": photo, "label": "c1", "name": "surfaces", "job": job}


def _ask(operation, real: dict[str, str], statuses: set[int]) -> None:
    """Send requests to one route, some of them to an address that exists."""

    @hypothesis.settings(
        max_examples=EXAMPLES,
        deadline=None,
        database=None,
        derandomize=True,
        suppress_health_check=list(hypothesis.HealthCheck),
    )
    @hypothesis.given(case=operation.as_strategy(), exists=hypothesis.strategies.booleans())
    def ask(case, exists):
        if exists and case.path_parameters:
            case.path_parameters = {name: real[name] for name in case.path_parameters}
        response = case.call(timeout=120)
        statuses.add(response.status_code)
        assert response.status_code < 500, (case.as_curl_command(), response.text)
        if response.status_code >= 400:
            assert set(response.json()) == {"error"}

    ask()


def test_no_request_that_the_description_allows_ends_in_a_fault(home, surfaces):
    address = f"http://127.0.0.1:{home}"
    own = Client(address)
    schema = schemathesis.openapi.from_url(f"{address}/openapi.json", timeout=120)
    seen: dict[str, set[int]] = {}
    real = _real(own, surfaces)
    for result in schema.get_all_operations():
        operation = result.ok()
        _ask(operation, real, seen.setdefault(operation.label, set()))
        if operation.method.upper() == "DELETE" or operation.path.endswith("/delete"):
            real = _real(own, surfaces)
    assert len(seen) > 25
    # Not everything was refused: most routes were also given what they take.
    assert sum(any(status < 300 for status in statuses) for statuses in seen.values()) > 15


def test_names_with_all_kinds_of_characters_are_answered(home, surfaces):
    import httpx

    with httpx.Client(base_url=f"http://127.0.0.1:{home}") as client:
        workspace = client.post("/v1/workspaces", json={"model": "surfaces"}).json()["id"]
        for name in (
            "Straße 桜",
            "👩‍🌾",
            "\u202ex",
            "a\ud800b".encode("utf-16", "surrogatepass").decode("utf-16", "replace"),
        ):
            made = client.post(f"/v1/workspaces/{workspace}/classes", json={"name": name})
            assert made.status_code in (201, 422)
        body = '{"name": "\\ud800"}'
        lone = client.post(
            f"/v1/workspaces/{workspace}/classes", content=body, headers={"Content-Type": "application/json"}
        )
        assert lone.status_code == 422
        content = surfaces["brick"][0][1]
        added = client.post(f"/v1/workspaces/{workspace}/photos", files=files([("Straße 桜.png", content)])).json()
        assert added["added"][0]["name"] == "Straße 桜.png"
