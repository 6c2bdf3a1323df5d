"""The threat model of the server (docs/security.md): who may talk to it, how slowly, and what it tells."""

from __future__ import annotations

import concurrent.futures
import contextlib
import re
import socket
import threading
import time

import httpx
import pytest

pytest.importorskip("fastapi")

from uvicorn.protocols.http.h11_impl import H11Protocol

from helpers.web import client, files, model_file, refusal, settings, threaded
from patchvote.errors import PatchvoteError
from patchvote.web.settings import Settings

TOKEN = "correct-horse-battery-staple"


@pytest.fixture(scope="module")
def locked(tmp_path_factory):
    """A client without the token of a server that needs it."""
    with client(settings(tmp_path_factory.mktemp("locked"), token=TOKEN)) as made:
        yield made


FORGED = "evil.example evil.example:8000 127.0.0.1.evil.example localhost@evil 127.0.0.1:80@evil 10.0.0.1 [localhost]"
FORGED += " 127.0.0.1:8000.evil.example [::1]evil [::1]:80@evil [::1].evil.example:8000"


def test_a_forged_host_is_refused(home, tmp_path):
    for host in ("", *FORGED.split()):
        assert refusal(home.get("/v1/models", headers={"Host": host})) == (421, "host"), host
    for host in ("127.0.0.1:8000", "localhost:8000", "LOCALHOST", "[::1]:8000"):
        assert home.get("/v1/models", headers={"Host": host}).status_code == 200, host
    wanted = settings(tmp_path, host="0.0.0.0", token=TOKEN, hosts=("photos.example",))
    with client(wanted, headers={"Authorization": f"Bearer {TOKEN}"}) as public:
        for host, status in (("photos.example", 200), ("192.168.1.7:8000", 200), ("evil.example", 421)):
            assert public.get("/v1/models", headers={"Host": host}).status_code == status


def test_a_foreign_origin_can_neither_change_nor_read_anything(home, workspace):
    at = f"/v1/workspaces/{workspace}"
    origins = ("http://evil.example", "null", "http://127.0.0.1:9999", "http://localhost:8000")  # others to browsers
    foreign = [{"Origin": origin} for origin in origins] + [
        {"Sec-Fetch-Site": f"{site}-site"} for site in ("cross", "same")
    ]
    for headers in foreign:
        for request in ("POST /v1/workspaces", "POST /v1/predict", f"DELETE {at}", f"GET {at}", "GET /metrics"):
            assert refusal(home.request(*request.split(), headers=headers)) == (403, "origin")
    for headers in ({"Origin": "http://127.0.0.1:8000", "Sec-Fetch-Site": "same-origin"}, {}):
        assert home.post("/v1/workspaces", json={}, headers=headers).status_code == 201
        assert home.get(at, headers=headers).status_code == 200


def test_no_response_allows_another_origin_and_all_have_a_strict_policy(home):
    foreign = {"Origin": "http://evil.example", "Access-Control-Request-Method": "POST"}
    preflight = home.options("/v1/workspaces", headers=foreign)
    for response in (home.get("/healthz"), home.get("/v1/nothing"), home.get("/"), preflight):
        assert not [name for name in response.headers if name.startswith("access-control")]
        policy = response.headers["Content-Security-Policy"]
        assert {"default-src 'none'", "frame-ancestors 'none'"} <= set(policy.split("; "))
        assert not re.search(r"https?:|\*|unsafe", policy)
        assert response.headers["X-Content-Type-Options"] == "nosniff"
        assert response.headers["Cross-Origin-Resource-Policy"] == "same-origin"
        assert response.headers["Referrer-Policy"] == "no-referrer"


def test_a_missing_or_wrong_token_is_refused_everywhere_but_for_the_page_itself(locked):
    for path, methods in locked.get("/openapi.json").json()["paths"].items():
        for method in methods:
            response = locked.request(method, re.sub(r"\{\w+\}", "0" * 32, path))
            is_open = path in ("/healthz", "/v1/session")
            assert (response.status_code == 401) != is_open, (method, path, response.status_code)
    for header, status in ((f"Bearer {TOKEN[:-1]}", 401), (f"Basic {TOKEN}", 401), (f"Bearer {TOKEN}", 200)):
        assert locked.get("/v1/models", headers={"Authorization": header}).status_code == status


def test_the_page_gets_a_cookie_for_the_token_that_scripts_and_other_sites_cannot_use(locked):
    assert locked.get("/v1/models").status_code == 401
    cookie = locked.post("/v1/session", json={"token": TOKEN}).headers["Set-Cookie"]
    assert {"HttpOnly", "SameSite=strict", "Path=/"} <= set(cookie.split("; "))
    assert TOKEN not in cookie
    assert locked.get("/v1/models").status_code == 200
    kept = dict(locked.cookies)
    assert locked.post("/v1/session", json={"token": TOKEN}).cookies != kept  # another session has another cookie
    locked.cookies.update(kept)
    locked.delete("/v1/session")
    locked.cookies.update(kept)  # whoever copied the cookie
    assert locked.get("/v1/models").status_code == 401


def test_guesses_of_the_token_are_answered_slowly_and_nobody_else_waits(locked):
    def seconds(token, method="GET", path="/v1/models"):
        start, headers = time.perf_counter(), {"Authorization": f"Bearer {token}"}
        assert (locked.request(method, path, json={"token": token}, headers=headers).status_code == 401) == (
            token != TOKEN
        )
        return time.perf_counter() - start

    with concurrent.futures.ThreadPoolExecutor() as pool:
        guess = pool.submit(seconds, "x" * 20)
        assert seconds(TOKEN) < 1 <= guess.result()
    assert seconds("x" * 20, "POST", "/v1/session") >= 1


def test_to_be_reached_by_others_a_token_is_needed(tmp_path, command, monkeypatch):
    with pytest.raises(PatchvoteError, match="at least 16"):
        Settings(tmp_path, host="0.0.0.0", token="short")
    monkeypatch.delenv("PATCHVOTE_TOKEN", raising=False)
    (tmp_path / "empty").write_text(" \n")  # which must not mean a server without a token
    for words in (("--host", "0.0.0.0"), ("--token-file", tmp_path / "missing"), ("--token-file", tmp_path / "empty")):
        assert command("serve", *words, "--data", tmp_path).code == 1


def test_no_error_and_no_line_of_the_log_shows_a_path_a_name_or_a_content(
    tmp_path, surface_models, surfaces, monkeypatch, capfd
):
    wanted, logged = settings(tmp_path / "data", models=(surface_models / "surfaces.patchvote",)), []
    as_json = {"headers": {"Content-Type": "application/json"}}
    with client(wanted, log=logged.append) as home:
        workspace = home.post("/v1/workspaces", json={"title": "hidden title"}).json()["id"]
        at = f"/v1/workspaces/{workspace}"
        photos = [("hidden name.png", surfaces["brick"][0][1]), ("hidden.txt", b"hidden content")]
        home.post(f"{at}/photos?x=hidden", files=files(photos), data={"class_name": "hidden"})
        responses = [
            home.get("/hidden"),
            home.post("/v1/models", files=model_file(b"x")),
            home.post("/v1/predict", content=b"{", **as_json),
            home.post("/v1/workspaces", content=b"[" * 100_000, **as_json),
            home.post("/v1/workspaces", json={"title": 7, str(tmp_path): 1}),
        ]

        def fails(*_, **__):
            raise RuntimeError(f"hidden content of {tmp_path}")

        monkeypatch.setattr("patchvote.web.routes.Context.state", fails)
        fault = home.get(at)
    assert fault.status_code == 500
    for response in responses:
        assert 400 <= response.status_code < 500, response.text
    for response in (*responses, fault):
        assert set(response.json()) == {"error"}
        for word in ("Traceback", 'File "', ".py", "hidden", "site-packages", str(surface_models), str(tmp_path)):
            assert word not in response.text
    text = "\n".join(logged) + "".join(capfd.readouterr())
    assert not re.search(f"hidden|{workspace}|Traceback", text)
    assert "POST /v1/workspaces/{workspace}/photos 200" in logged[1]
    number = fault.json()["error"]["message"].split()[-1].strip(".")
    assert f"fault {number}: RuntimeError" in text


HEALTH = b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"


@pytest.fixture(scope="module")
def hasty(tmp_path_factory):
    """Opens connections to a server that waits one second for heads and bodies."""
    wanted = settings(tmp_path_factory.mktemp("hasty"), {"body_seconds": 1.0, "header_seconds": 1.0})
    with threaded(wanted) as port:
        yield lambda: socket.create_connection(("127.0.0.1", port), timeout=60)


POST = b"POST /v1/workspaces HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\n"


@pytest.mark.parametrize(
    ("head", "answer", "more"),
    [
        (POST % b"127.0.0.1" + b"Content-Length: 9\r\n\r\n{", b"HTTP/1.1 408", b" "),
        (POST % b"evil.example" + b"Transfer-Encoding: chunked\r\n\r\n", b"HTTP/1.1 421", b"1\r\nx\r\n"),
        (b"G", b"", b"E"),
        (HEALTH, b"HTTP/1.1 200", b"G"),  # the next head, on a connection that has had an answer before
    ],
    ids=["body", "body of an answered request", "head", "next head"],
)
def test_who_sends_slowly_is_not_waited_for(hasty, head, answer, more):
    with hasty() as connection:
        connection.sendall(head)
        assert not answer or connection.recv(65536).startswith(answer)
        with pytest.raises(ConnectionError):  # noqa: PT012 - the server closes it
            for _ in range(1000):
                connection.sendall(more)
                time.sleep(0.05)


@pytest.mark.parametrize(
    "limits",
    [{"response_seconds": 0.5, "unread_bytes": 1 << 30}, {"response_seconds": 600.0, "unread_bytes": 1 << 10}],
    ids=["in time", "in memory"],
)
def test_responses_that_nobody_reads_are_dropped(tmp_path, limits, monkeypatch):
    dropped, lost = threading.Event(), H11Protocol.connection_lost
    monkeypatch.setattr(H11Protocol, "connection_lost", lambda self, error: (lost(self, error), dropped.set()))
    monkeypatch.setattr("patchvote.web.guard._MIN_READING", 1 << 30)
    (tmp_path / "index.html").write_bytes(b"x" * 30_000_000)  # more than the system holds for a connection
    with threaded(settings(tmp_path / "data", limits, static=tmp_path)) as port:
        with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
            connection.sendall(b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
            received = len(connection.recv(1))
            assert dropped.wait(60)
            with contextlib.suppress(ConnectionError):
                while chunk := connection.recv(1 << 20):
                    received += len(chunk)
        assert 0 < received < 30_000_000
        assert httpx.get(f"http://127.0.0.1:{port}/healthz").status_code == 200
