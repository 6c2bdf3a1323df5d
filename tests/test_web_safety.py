"""The threat model of the server (docs/security.md): who may talk to it, and what it tells."""

from __future__ import annotations

import hmac
import json
import re
import time
import urllib.error
import urllib.request

import pytest

pytest.importorskip("fastapi")


from helpers.web import client, crops, files, settings, threaded
from patchvote.errors import PatchvoteError
from patchvote.web.guard import COOKIE, session_of
from patchvote.web.metrics import Metrics
from patchvote.web.settings import Settings

TOKEN = "correct-horse-battery-staple"


@pytest.fixture
def home(tmp_path):
    with client(settings(tmp_path / "data")) as made:
        yield made


@pytest.fixture
def workspace(home):
    return home.post("/v1/workspaces", json={}).json()["id"]


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:8000",
        "127.0.0.1.evil.example",
        "localhost@evil",
        "127.0.0.1:80@evil",
        "127.0.0.1:8000.evil.example",
        "[::1]evil",
        "[::1]:80@evil",
        "[::1].evil.example:8000",
        "[localhost]",
        "",
        "10.0.0.1",
    ],
)
def test_a_forged_host_is_refused(home, host):
    response = home.get("/v1/models", headers={"Host": host})
    assert response.status_code == 421
    assert response.json()["error"]["code"] == "host"


@pytest.mark.parametrize("host", ["127.0.0.1:8000", "localhost:8000", "LOCALHOST", "[::1]:8000"])
def test_addresses_of_this_machine_are_no_forged_host(home, host):
    assert home.get("/v1/models", headers={"Host": host}).status_code == 200


def test_a_server_for_others_answers_to_addresses_and_to_the_names_that_were_listed(tmp_path):
    wanted = settings(tmp_path, host="0.0.0.0", token=TOKEN, hosts=("photos.example",))
    with client(wanted, headers={"Authorization": f"Bearer {TOKEN}"}) as home:
        status = {
            host: home.get("/v1/models", headers={"Host": host}).status_code
            for host in ("photos.example", "192.168.1.7:8000", "evil.example")
        }
    assert status == {"photos.example": 200, "192.168.1.7:8000": 200, "evil.example": 421}


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://127.0.0.1:9999"},
        {"Origin": "http://localhost:8000"},  # another origin to browsers
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    ],
)
def test_a_foreign_origin_can_neither_change_nor_read_anything(home, workspace, headers):
    for request in (
        lambda: home.post("/v1/workspaces", json={}, headers=headers),
        lambda: home.post("/v1/predict", files=files([("a.png", b"x")]), headers=headers),
        lambda: home.delete(f"/v1/workspaces/{workspace}", headers=headers),
        lambda: home.get(f"/v1/workspaces/{workspace}", headers=headers),
        lambda: home.get("/metrics", headers=headers),
    ):
        response = request()
        assert (response.status_code, response.json()["error"]["code"]) == (403, "origin")
    assert home.get(f"/v1/workspaces/{workspace}").status_code == 200


def test_our_own_page_and_programs_are_no_foreign_origin(home):
    for headers in ({"Origin": "http://127.0.0.1:8000", "Sec-Fetch-Site": "same-origin"}, {}):
        assert home.post("/v1/workspaces", json={}, headers=headers).status_code == 201


def test_no_response_allows_another_origin_and_all_have_a_strict_policy(home):
    preflight = home.options(
        "/v1/workspaces", headers={"Origin": "http://evil.example", "Access-Control-Request-Method": "POST"}
    )
    for response in (home.get("/healthz"), home.get("/v1/nothing"), home.get("/"), preflight):
        assert not [name for name in response.headers if name.startswith("access-control")]
        policy = response.headers["Content-Security-Policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert not re.search(r"https?:|\*", policy)
        assert "frame-ancestors 'none'" in policy
        assert response.headers["X-Content-Type-Options"] == "nosniff"
        assert response.headers["Cross-Origin-Resource-Policy"] == "same-origin"
        assert response.headers["Referrer-Policy"] == "no-referrer"


def test_a_missing_or_wrong_token_is_refused_everywhere_but_for_the_page_itself(tmp_path):
    with client(settings(tmp_path, token=TOKEN)) as home:
        routes = home.get("/openapi.json").json()["paths"]
        for path, methods in routes.items():
            for method in methods:
                address = re.sub(r"\{\w+\}", "0" * 32, path)
                response = home.request(method, address)
                is_open = path in ("/healthz", "/v1/session")
                assert (response.status_code == 401) != is_open, (method, path, response.status_code)
        for wrong in ("", TOKEN[:-1], TOKEN + "x", TOKEN.upper(), "é"):
            header = {"Authorization": f"Bearer {wrong}".encode()}
            assert home.get("/v1/models", headers=header).status_code == 401
        assert home.get("/v1/models", headers={"Authorization": f"Bearer {TOKEN}"}).status_code == 200
        assert home.get("/v1/models", headers={"Authorization": f"Basic {TOKEN}"}).status_code == 401


def test_the_token_is_compared_in_constant_time(tmp_path, monkeypatch):
    compared = []
    real = hmac.compare_digest
    monkeypatch.setattr(hmac, "compare_digest", lambda one, other: compared.append((one, other)) or real(one, other))
    with client(settings(tmp_path, token=TOKEN)) as home:
        home.get("/v1/models", headers={"Authorization": "Bearer wrong"})
    assert (b"wrong", TOKEN.encode()) in compared


def test_the_page_gets_a_cookie_for_the_token_that_scripts_and_other_sites_cannot_use(tmp_path):
    with client(settings(tmp_path, token=TOKEN)) as home:
        assert home.post("/v1/session", json={"token": "wrong"}).status_code == 401
        assert home.get("/v1/models").status_code == 401
        cookie = home.post("/v1/session", json={"token": TOKEN}).headers["Set-Cookie"]
        assert {"HttpOnly", "SameSite=strict", "Path=/"} <= set(cookie.split("; "))
        assert TOKEN not in cookie
        assert home.get("/v1/models").status_code == 200
        home.delete("/v1/session")
        assert home.get("/v1/models").status_code == 401


def test_to_be_reached_by_others_a_token_is_needed(tmp_path):
    with pytest.raises(PatchvoteError, match="needs a token"):
        Settings(tmp_path, host="0.0.0.0")
    with pytest.raises(PatchvoteError, match="at least 16"):
        Settings(tmp_path, host="0.0.0.0", token="short")
    assert Settings(tmp_path).host == "127.0.0.1"


def test_no_error_shows_a_path_or_a_traceback(tmp_path, surface_models, monkeypatch):
    logged = []
    wanted = settings(tmp_path / "data", models=(surface_models / "surfaces.patchvote",))
    with client(wanted, log=logged.append, raise_server_exceptions=False) as home:
        workspace = home.post("/v1/workspaces", json={"model": "surfaces"}).json()["id"]
        responses = [
            home.post("/v1/models", files=files([("m", b"x")], "file")),
            home.post("/v1/predict", content=b"{", headers={"Content-Type": "application/json"}),
            home.post("/v1/predict", content=b"--", headers={"Content-Type": "multipart/form-data; boundary=q"}),
            home.post("/v1/workspaces", content=b"[" * 100_000, headers={"Content-Type": "application/json"}),
            home.get("/v1/workspaces/x"),
            home.post("/v1/workspaces", json={"title": 7, str(tmp_path): 1}),
        ]

        def fails(*_, **__):
            raise RuntimeError(f"secret content of {tmp_path}")

        monkeypatch.setattr("patchvote.web.context.Context.state", fails)
        responses.append(home.get(f"/v1/workspaces/{workspace}"))
    assert responses[-1].status_code == 500
    for response in responses[:-1]:
        assert 400 <= response.status_code < 500, response.text
    for response in responses:
        assert set(response.json()) == {"error"}
        for word in ("Traceback", 'File "', ".py", "secret", str(surface_models), "site-packages"):
            assert word not in response.text
    assert not any(str(tmp_path) in response.text for response in [*responses[:-2], responses[-1]])


def test_logs_hold_neither_contents_nor_names_nor_ids(tmp_path, surface_models, real_photos, capfd):
    logged = []
    wanted = settings(tmp_path / "data", models=(surface_models / "surfaces.patchvote",))
    with client(wanted, log=logged.append, raise_server_exceptions=False) as home:
        workspace = home.post("/v1/workspaces", json={"title": "hidden title"}).json()["id"]
        photos = [("hidden name.png", crops(real_photos, "brick", 1)[0][1]), ("hidden.txt", b"hidden content")]
        home.post(f"/v1/workspaces/{workspace}/photos?x=hidden", files=files(photos), data={"class_name": "hidden"})
        home.post("/v1/predict", files=files(photos))
        home.get("/hidden")
    text = "\n".join(logged) + "".join(capfd.readouterr())
    assert len(logged) == 4
    assert "hidden" not in text
    assert workspace not in text
    assert "POST /v1/workspaces/{workspace}/photos 200" in logged[1]


def test_cookies_are_read_in_a_time_that_grows_with_their_length_and_others_do_no_harm(tmp_path):
    own = f"{COOKIE}={session_of(TOKEN)}"
    with client(settings(tmp_path, token=TOKEN)) as home:
        start = time.perf_counter()
        hostile = f'{COOKIE}="' + "\\" * 60_000 + '"'
        assert home.get("/v1/settings", headers={"Cookie": hostile}).status_code == 401
        assert time.perf_counter() - start < 10  # 0.01 s; the standard library of Python 3.11.7 takes 40
        for cookies in (own, f'a={{"b": 1}}; {own}', f"no cookie; {own}; c=d", f"x{own}; {own}"):
            assert home.get("/v1/settings", headers={"Cookie": cookies}).status_code == 200
        for cookies in (f"x{own}", own[:-1], f"{COOKIE}=", COOKIE):
            assert home.get("/v1/settings", headers={"Cookie": cookies}).status_code == 401


def test_a_fault_is_logged_under_its_number_without_its_message(tmp_path, monkeypatch, capfd):
    def fail(metrics):
        raise KeyError("hidden name.jpg")

    monkeypatch.setattr(Metrics, "text", fail)
    with threaded(settings(tmp_path / "data")) as port, pytest.raises(urllib.error.HTTPError) as raised:
        urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60)
    number = json.loads(raised.value.read())["error"]["message"].split()[-1].strip(".")
    log = "".join(capfd.readouterr())
    assert f"fault {number}: KeyError" in log
    assert "hidden" not in log
    assert "Traceback" not in log
