"""Servers for tests: one in the test's own process, and one in a process of its own that can be killed."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import urllib.parse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import uvicorn
from PIL import Image
from starlette.testclient import TestClient

from patchvote.web import jobs as jobs_module
from patchvote.web.app import make_app
from patchvote.web.guard import protocol
from patchvote.web.settings import Limits, Settings

from .waiting import wait_for

SOURCES = Path(__file__).resolve().parents[2] / "src"
ADDRESS = "http://127.0.0.1:8000"
ENDLESS = "import sys; sys.stdin.read()"  # a program that does not end before it is told to


def crops(folder: Path, name: str, count: int, seed: int = 0) -> list[tuple[str, bytes]]:
    """Return crops of one of scikit-image's photos, as names and contents of PNG files."""
    rng, made = np.random.default_rng(seed), []
    image = Image.open(folder / f"{name}.png").convert("RGB")
    for index in range(count):
        side = int(rng.integers(60, 120))
        left, top = int(rng.integers(image.width - side)), int(rng.integers(image.height - side))
        data = io.BytesIO()
        image.crop((left, top, left + side, top + side)).save(data, "PNG")
        made.append((f"{name} {index}.png", data.getvalue()))
    return made


def files(photos: list[tuple[str, bytes]], part: str = "files") -> list[tuple[str, tuple[str, bytes]]]:
    """Return photos as parts of a form."""
    return [(part, photo) for photo in photos]


def settings(data: Path, limits: dict[str, Any] | None = None, **more: Any) -> Settings:
    """Return settings with some limits changed."""
    return Settings(data, limits=dataclasses.replace(Limits(), **(limits or {})), **more)


@contextlib.contextmanager
def client(wanted: Settings, **more: Any) -> Iterator[TestClient]:
    """Run a server in this process, and yield a client of it."""
    with TestClient(make_app(wanted, more.pop("log", None)), base_url=ADDRESS, **more) as made:
        yield made


def taught(client: TestClient, photos: dict[str, list[tuple[str, bytes]]]) -> str:
    """Make a workspace with photos of some classes, and return its id."""
    workspace = client.post("/v1/workspaces", json={}).json()["id"]
    for name, own in photos.items():
        done = client.post(f"/v1/workspaces/{workspace}/photos", files=files(own), data={"class_name": name})
        assert done.status_code == 200, done.text
    return workspace


def learned(client: TestClient, workspace: str, **wanted: Any) -> dict[str, Any]:
    """Learn, follow the events until the end, and return the last state of the job."""
    job = client.post(f"/v1/workspaces/{workspace}/learn", json=wanted)
    assert job.status_code == 202, job.text
    return list(events(client, job.json()["id"]))[-1][1]


def events(client: TestClient, job: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the events of a job."""
    kind = ""
    with client.stream("GET", f"/v1/jobs/{job}/events") as stream:
        for line in stream.iter_lines():
            if line.startswith("event: "):
                kind = line.removeprefix("event: ")
            elif line.startswith("data: "):
                yield kind, json.loads(line.removeprefix("data: "))


def let_jobs_run(monkeypatch: pytest.MonkeyPatch, program: str) -> None:
    """Let jobs of servers in this process start a small program instead of the one that learns."""

    def start() -> subprocess.Popen[str]:
        command = [sys.executable, "-S", "-c", program]
        return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    monkeypatch.setattr(jobs_module, "_start", start)


@contextlib.contextmanager
def threaded(wanted: Settings) -> Iterator[int]:
    """Run a server in a thread, on a free port of this machine, and yield the port."""
    listener = socket.create_server(("127.0.0.1", 0))
    http = protocol(wanted.limits)
    server = uvicorn.Server(uvicorn.Config(make_app(wanted), http=http, ws="none", log_level="error", access_log=False))
    thread = threading.Thread(target=server.run, args=([listener],), daemon=True)
    thread.start()
    wait_for(lambda: server.started)
    try:
        yield listener.getsockname()[1]
    finally:
        server.should_exit = True
        thread.join(60)


class Live:
    """`patchvote serve` in a process of its own."""

    def __init__(self, process: subprocess.Popen[str], address: str) -> None:
        self.process, self.address = process, address
        self.port = int(urllib.parse.urlsplit(address).port or 0)

    def kill(self) -> None:
        """End it as a power cut would."""
        os.kill(self.process.pid, signal.SIGKILL)
        self.process.wait()


@contextlib.contextmanager
def live(data: Path, *words: object, errors: Path | None = None, **environment: str) -> Iterator[Live]:
    """Start the command on a free port of this machine, and end it with the block."""
    command = [sys.executable, "-m", "patchvote", "serve", *map(str, words), "--port", "0", "--data", str(data)]
    surroundings = os.environ | {"PYTHONPATH": str(SOURCES), "PYTHONUNBUFFERED": "1"} | environment
    with contextlib.ExitStack() as stack:
        log = stack.enter_context((errors or Path(os.devnull)).open("w"))
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True, env=surroundings)
        try:
            line = process.stdout.readline() if process.stdout else ""
            assert "http://" in line, line
            yield Live(process, line.split()[-1])
        finally:
            process.terminate()
            try:
                process.wait(15)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            if process.stdout:
                process.stdout.close()
