"""The threat model of the server (docs/security.md): slow clients, and where the command listens."""

from __future__ import annotations

import concurrent.futures
import contextlib
import socket
import threading
import time

import pytest

pytest.importorskip("fastapi")

from uvicorn.protocols.http.h11_impl import H11Protocol

from helpers.web import learned, live, settings, taught, threaded
from patchvote import ImageClassifier
from patchvote.web.client import Client


def _ask(port: int, data: bytes, seconds: float = 60.0) -> bytes:
    """Send bytes, and return what comes back until the server closes the connection or nothing comes."""
    with socket.create_connection(("127.0.0.1", port), timeout=seconds) as connection:
        connection.sendall(data)
        answer = b""
        try:
            while chunk := connection.recv(65536):
                answer += chunk
        except (TimeoutError, ConnectionResetError):
            pass
        return answer


@pytest.fixture(scope="module")
def hasty(tmp_path_factory):
    """Port of a server that waits one second for heads and bodies."""
    wanted = settings(tmp_path_factory.mktemp("hasty"), {"body_seconds": 1.0, "header_seconds": 1.0})
    with threaded(wanted) as port:
        yield port


def test_a_slow_upload_is_ended(hasty):
    head = "POST /v1/workspaces HTTP/1.1\r\nHost: 127.0.0.1\r\n"
    head += "Content-Type: application/json\r\nContent-Length: 1000\r\n\r\n"
    with concurrent.futures.ThreadPoolExecutor(5) as pool:
        answers = list(pool.map(lambda _: _ask(hasty, head.encode() + b"{"), range(5)))
    assert all(answer.startswith(b"HTTP/1.1 408") for answer in answers), answers
    assert _ask(hasty, b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n").startswith(
        b"HTTP/1.1 200"
    )


def test_a_body_is_not_awaited_once_its_request_is_answered(hasty):
    head = b"POST /v1/workspaces HTTP/1.1\r\nHost: evil.example\r\nTransfer-Encoding: chunked\r\n\r\n"
    with socket.create_connection(("127.0.0.1", hasty), timeout=60) as connection:
        connection.sendall(head)
        assert connection.recv(1000).startswith(b"HTTP/1.1 421")
        start = time.monotonic()
        with contextlib.suppress(ConnectionError):
            while time.monotonic() - start < 60:
                connection.sendall(b"1\r\nx\r\n")
                time.sleep(0.1)
    assert time.monotonic() - start < 60


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
        request = b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
        with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
            connection.sendall(request)
            received = len(connection.recv(1))
            assert dropped.wait(60)
            with contextlib.suppress(ConnectionError):
                while chunk := connection.recv(1 << 20):
                    received += len(chunk)
        assert 0 < received < 30_000_000
        assert Client(f"http://127.0.0.1:{port}").create_workspace()


def test_a_head_that_comes_byte_by_byte_is_not_waited_for(hasty):
    start = time.monotonic()
    with socket.create_connection(("127.0.0.1", hasty), timeout=60) as connection, contextlib.suppress(OSError):
        while time.monotonic() - start < 60:
            connection.sendall(b"G")
            time.sleep(0.1)
    assert time.monotonic() - start < 60
    # The same on a connection that has had an answer before.
    with socket.create_connection(("127.0.0.1", hasty), timeout=60) as connection:
        connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        assert connection.recv(65536).startswith(b"HTTP/1.1 200")
        connection.sendall(b"GET /hea")
        time.sleep(0.2)
        while connection.recv(65536):  # until the server closes it, or the time is up
            pass


def test_the_command_listens_on_this_machine_alone_unless_told_otherwise(tmp_path):
    with live(tmp_path / "data") as server:
        lines = [line.split() for line in open("/proc/net/tcp")][1:]  # noqa: PTH123, SIM115
        listening = [row[1] for row in lines if row[3] == "0A" and int(row[1].split(":")[1], 16) == server.port]
        assert listening == [f"0100007F:{server.port:04X}"]


def test_the_command_refuses_to_be_open_to_all_without_a_token(command, tmp_path, monkeypatch):
    monkeypatch.delenv("PATCHVOTE_TOKEN", raising=False)
    done = command("serve", "--host", "0.0.0.0", "--data", tmp_path)
    assert done.code == 1
    assert "token" in done.err
    (tmp_path / "token").write_text("short\n")
    assert "at least 16" in command("serve", "--token-file", tmp_path / "token", "--data", tmp_path).err
    assert "cannot be read" in command("serve", "--token-file", tmp_path / "nothing", "--data", tmp_path).err
    (tmp_path / "token").write_text(" \n")  # which must not mean a server without a token
    assert "token is empty: put a token into it" in command("serve", "--token-file", tmp_path / "token").err
    refused = command("serve", "--data", tmp_path / "token")
    assert refused.code == 2
    assert f"--data takes a folder for what is taught, and {tmp_path / 'token'} is a file." in refused.err


def test_models_learned_here_hold_no_path_of_the_machine(served, tmp_path, surfaces):
    workspace = taught(served, {name: photos[:3] for name, photos in surfaces.items()})
    assert learned(served, workspace, voter="nbnn", budget=0)["status"] == "done"
    file = served.get(f"/v1/models/{workspace}/file").content
    assert str(tmp_path).encode() not in file
    (tmp_path / "m.patchvote").write_bytes(file)
    assert ImageClassifier.load(tmp_path / "m.patchvote").classes == ("brick", "grass", "gravel")


def test_the_server_sends_no_telemetry_even_if_the_environment_asks_for_it(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as collector:
        collector.settimeout(1)
        wanted = {
            "FASTAPI_OTEL_AUTO_CONFIGURE": "true",
            "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{collector.getsockname()[1]}",
            "OTEL_BSP_SCHEDULE_DELAY": "50",
        }
        with live(tmp_path / "data", errors=tmp_path / "errors", **wanted) as server:
            assert Client(server.address).create_workspace()
        with pytest.raises(TimeoutError):
            collector.accept()
    assert "elemetry" not in (tmp_path / "errors").read_text()
